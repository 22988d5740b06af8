package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// What a program inside is told of a refusal, where its protocol has room for words.

const (
	refusalTime = 5 * time.Second // for a refused request to arrive
	lingerTime  = time.Second     // for the client to read the refusal
	maxPath     = 1 << 10         // bytes of a path in the audit
	maxWord     = 32              // of a method
	maxPhrase   = 500             // of the words in a status line
)

// words are what is said in answers.
func (t target) words(r *refusal) string {
	return fmt.Sprintf("blocked by policy: %s: %s\n", t.host(), r.reason)
}

// tellRefusal waits for a request and answers that it is refused.
func (f *flow) tellRefusal(conn *metered) {
	_ = conn.SetReadDeadline(time.Now().Add(refusalTime))
	first, _ := sniff(conn, nil) // whatever it is, it is refused
	if first.kind == overHTTP {
		f.a.event.Protocol, f.a.event.Method, f.a.event.Path = "http", clip(first.head.method, maxWord), withoutQuery(first.head.target)
	}
	f.tell(conn, first.kind, f.refused)
}

// tell ends a flow with words, or what its protocol has instead.
func (f *flow) tell(conn net.Conn, k kind, err error) {
	r, status := (*refusal)(nil), 0
	refused := errors.As(err, &r)
	if !refused {
		r = &refusal{reason: brief(err)}
	}
	if k == overHTTP {
		status = http.StatusForbidden
		if !refused {
			status = http.StatusBadGateway
		} else if strings.HasPrefix(r.reason, "malformed") {
			status = http.StatusBadRequest
		}
	}
	f.a.event.Status = status
	if refused {
		f.a.turnDown(r)
	} else {
		f.a.fail(f.decision.rule, f.why(err))
	}
	switch k {
	case overTLS:
		_, _ = conn.Write(alertDenied) // it may be gone, as below
	case overHTTP:
		inWords(conn, status, f.t.words(r), f.a.event.Method == http.MethodHead)
		return
	default:
		return // closed with the flow
	}
	linger(conn)
}

// inWords says words over HTTP/1, in the body and, since that is what many
// clients make their errors of, in the status line.
func inWords(conn net.Conn, status int, words string, head bool) {
	body := words
	if head {
		body = ""
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, phrase(words), len(words), body)
	linger(conn)
}

// phrase makes words fit into a status line.
func phrase(words string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, clip(strings.TrimSuffix(words, "\n"), maxPhrase))
}

// linger lets the client read what was said: closing at once would reset the
// connection.
func linger(conn net.Conn) {
	_ = closeWrite(conn)
	_ = conn.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, maxHead))
}

// brief is an error without the addresses of this host's side.
func brief(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

func withoutQuery(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return clip(path, maxPath)
}

// clip bounds what the sandbox said for the audit.
func clip(s string, most int) string { return s[:min(len(s), most)] }
