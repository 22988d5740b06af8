package egress

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func not() bool { return false }

// What could begin a request is held back for a while, then passed on, and
// refused if it is one after all.
func TestHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, inside := net.Pipe()
		defer program.Close()
		begin := time.Now()
		go func() { _, _ = io.WriteString(program, "ping") }()
		out, err := sniff(inside, not)
		if err != nil || out.kind != other || !out.open || string(out.bytes) != "ping" || time.Since(begin) != holdTime {
			t.Fatalf("%+v, %v after %v", out, err, time.Since(begin))
		}
		g := &guarded{inside, out.bytes}
		go func() {
			_, _ = io.WriteString(program, " /x HTTP/1.1\r\n")
			_, _ = io.WriteString(program, "Host: other.example\r\n\r\n")
		}()
		got, err := io.ReadAll(g)
		if refused := (*refusal)(nil); !errors.As(err, &refused) || strings.Contains(string(got), "HTTP") {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestGuardLetsOthersThrough(t *testing.T) {
	program, inside := net.Pipe()
	go func() {
		for _, s := range []string{"ping", "ping\n", "GET / HTTP/1.1\r\n"} { // the last is in the middle of something else
			_, _ = io.WriteString(program, s)
		}
		program.Close()
	}()
	got, err := io.ReadAll(&guarded{inside, []byte("ping")})
	if err != nil || string(got) != "pingping\nGET / HTTP/1.1\r\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// Nothing is held back of what a server has spoken before, and a request that
// comes byte by byte is one.
func TestSniffInPieces(t *testing.T) {
	for _, c := range []struct {
		sent   string
		spoken bool
		kind   kind
	}{
		{"EHLO", true, other},
		{"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", false, overHTTP},
		{string(prefaceH2), false, overHTTP2},
		{"\x00\x00\x00\x08", false, other},
	} {
		synctest.Test(t, func(t *testing.T) {
			program, inside := net.Pipe()
			defer program.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range c.sent {
					time.Sleep(holdTime / 2) // of the bubble's clock
					if _, err := io.WriteString(program, c.sent[i:i+1]); err != nil {
						return
					}
				}
			}()
			out, err := sniff(inside, func() bool { return c.spoken })
			if err != nil || out.kind != c.kind || out.open {
				t.Errorf("%q: %+v, %v", c.sent, out, err)
			}
			inside.Close()
			<-done
		})
	}
}

// However sniffing ends, no deadline of its own is left, which would cut off who
// has said all and waits for the answer.
func TestNoDeadlineIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		sent   string
		spoken func() bool
	}{"all of it is short": {"ping", not}, "the server has spoken": {"ping", func() bool { return true }}, "it is none": {"220 hello\r\n", not}} {
		program, inside := net.Pipe()
		last := &lastDeadline{Conn: inside}
		go func() {
			_, _ = io.WriteString(program, c.sent)
			program.Close()
		}()
		if out, err := sniff(last, c.spoken); err != nil || out.kind != other || string(out.bytes) != c.sent {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if !last.at.IsZero() {
			t.Errorf("%s: the deadline %s is left", name, last.at)
		}
	}
}

type lastDeadline struct {
	net.Conn
	at time.Time
}

func (l *lastDeadline) SetReadDeadline(at time.Time) error {
	l.at = at
	return l.Conn.SetReadDeadline(at)
}
