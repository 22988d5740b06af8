package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// kind is what a connection carries, by its first bytes.
type kind int

const (
	other kind = iota
	overTLS
	overHTTP  // HTTP/1
	overHTTP2 // without TLS
)

// sniffed is the beginning of a connection.
type sniffed struct {
	kind  kind
	hello hello
	head  head
	bytes []byte // all that was read
	open  bool   // it can still become a request
}

// holdTime is how long bytes that could begin a request are held back for more.
// A program that waits for an answer to them is not left waiting.
const holdTime = 300 * time.Millisecond

// sniff reads from a connection until it is known what it carries, and all of a
// ClientHello or the head of the first request. spoken says whether the server
// has spoken already, so that it is not HTTP; nil: it must be HTTP or TLS.
// An error besides those of reading says that it is malformed.
func sniff(conn net.Conn, spoken func() bool) (out sniffed, err error) {
	strict := spoken == nil
	if !strict { // who reads on must not run into a deadline of ours, at the end of what was sent neither
		defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	}
	buf := make([]byte, 0, 4<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, readErr := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		out, err = look(buf, strict)
		out.bytes = buf
		undecided := !strict && len(buf) > 0 && out.kind == other && errors.Is(err, errMore)
		switch {
		case undecided && spoken():
			return out, nil
		case undecided && timedOut(readErr):
			out.open = true
			return out, nil
		case undecided && readErr == nil:
			_ = conn.SetReadDeadline(time.Now().Add(holdTime)) // not supported: it waits for more
			continue
		}
		if !strict && n > 0 {
			_ = conn.SetReadDeadline(time.Time{})
		}
		switch {
		case !errors.Is(err, errMore):
			return out, err
		case readErr == io.EOF && !strict && out.kind != overTLS && out.kind != overHTTP: //nolint:errorlint // of a net.Conn
			return out, nil // it was short: nothing that we know
		case readErr != nil:
			return out, readErr
		}
	}
}

func timedOut(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// look says what the bytes that have come are.
func look(b []byte, strict bool) (out sniffed, err error) {
	switch {
	case len(b) == 0:
		return out, errMore
	case startsTLS(b):
		out.kind = overTLS
		out.hello, err = parseHello(b)
		return out, err
	case bytes.HasPrefix(b, prefaceH2):
		out.kind = overHTTP2
		return out, nil
	case bytes.HasPrefix(prefaceH2, b):
		return out, errMore
	}
	http := strict
	if !strict {
		if http, err = startsHTTP(b); err != nil || !http {
			return out, err
		}
	}
	out.kind = overHTTP
	out.head, err = parseHead(b)
	return out, err
}

// replayed is a connection whose first bytes were read and are read again.
type replayed struct {
	net.Conn
	first []byte
}

// CloseWrite says that nothing more comes, as far as the connection can say that.
func (r *replayed) CloseWrite() error { return closeWrite(r.Conn) }

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// guarded reads from a connection whose first bytes were passed on though they
// could begin a request, and refuses it when they do.
type guarded struct {
	io.Reader
	seen []byte // nil when it is known not to be one
}

func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Reader.Read(b)
	if g.seen == nil || n == 0 {
		return n, err
	}
	g.seen = append(g.seen, b[:n]...)
	switch http, more := startsHTTP(g.seen); {
	case http:
		return 0, &refusal{reason: "a request came in pieces, too slowly to be looked at"}
	case more == nil:
		g.seen = nil
	}
	return n, err
}
