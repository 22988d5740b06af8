package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
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
}

// sniff reads from a connection until it is known what it carries, and all of a
// ClientHello or the head of the first request. strict takes whatever is not TLS for HTTP.
// An error besides those of reading says that it is malformed.
func sniff(conn io.Reader, strict bool) (out sniffed, err error) {
	buf := make([]byte, 0, 4<<10)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, readErr := conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		out, err = look(buf, strict)
		out.bytes = buf
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
