package netstack

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/pandastack/pandastack/internal/netns"
)

const (
	dnsPort = 53

	maxQuery    = 1 << 10          // bytes of a question
	maxQueries  = 64               // that are being answered at once; more are dropped, and asked again
	queryTime   = 10 * time.Second // for an answer
	dnsIdle     = 10 * time.Second // that a TCP connection may be silent
	maxDNSConns = 16               // over TCP at once
)

func isDNS(p *packet) bool {
	return p.port() == dnsPort && (p.dst == netns.Gateway4 || p.dst == netns.Gateway6)
}

// answer answers a question that came in a UDP packet.
func (s *Stack) answer(p packet) {
	length := int(binary.BigEndian.Uint16(p.payload[4:]))
	if length < 8 || length > len(p.payload) || length-8 > maxQuery {
		s.refuse(&p, "dns", portUnreachable, "malformed question")
		return
	}
	select {
	case s.queries <- struct{}{}:
	default:
		return
	}
	question := append([]byte{}, p.payload[8:length]...)
	p.payload = append([]byte{}, p.payload[:8]...) // the frame is somebody else's soon
	s.work.Go(func() {
		defer func() { <-s.queries }()
		ctx, cancel := context.WithTimeout(s.life, queryTime)
		defer cancel()
		if a := s.gate().Resolve(ctx, question, false); len(a) > 0 && len(a) <= netns.MTU-48 {
			s.link.write(p.net, datagram(&p, a))
		}
	})
}

// answerAll answers the questions on a TCP connection, one after the other.
func (s *Stack) answerAll(ctx context.Context, conn net.Conn) {
	for {
		if err := conn.SetDeadline(time.Now().Add(dnsIdle)); err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		if n == 0 || n > maxQuery {
			return
		}
		question := make([]byte, n)
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		ask, cancel := context.WithTimeout(ctx, queryTime)
		a := s.gate().Resolve(ask, question, true)
		cancel()
		if len(a) == 0 || len(a) > 1<<16-1 {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...)); err != nil {
			return
		}
	}
}

// blocked answers a question with "there is no such name", without looking at
// more of it than its end.
func blocked(query []byte) []byte {
	end, err := questionEnd(query)
	if err != nil {
		return nil
	}
	a := append([]byte{}, query[:end]...)
	a[2] = 0x80 | query[2]&0x79 // an answer; kind of question and "recursion desired" are kept
	a[3] = 0x80 | 3             // recursion is available; NXDOMAIN
	copy(a[4:12], []byte{0, 1, 0, 0, 0, 0, 0, 0})
	return a
}

var errQuestion = errors.New("not one question")

// questionEnd finds where the one question of a message ends.
func questionEnd(q []byte) (int, error) {
	if len(q) < 12 || q[2]&0x80 != 0 || binary.BigEndian.Uint16(q[4:]) != 1 {
		return 0, errQuestion
	}
	for i := 12; i < len(q) && i < 12+255; {
		n := int(q[i])
		if n == 0 {
			if i+5 > len(q) {
				break
			}
			return i + 5, nil
		}
		if n > 63 {
			break
		}
		i += 1 + n
	}
	return 0, errQuestion
}
