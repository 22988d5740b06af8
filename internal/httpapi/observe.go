package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/caller"
)

// state is what is known of a request while it is served. It is shared by the
// handler and the access log of one request and by nobody else.
type state struct {
	id    string
	route string
	who   auth.Identity
	path  string // for the log, where that of the request holds a secret; "" otherwise
	wrote bool
	err   error
}

type stateKey struct{}

func stateOf(ctx context.Context) *state {
	st, _ := ctx.Value(stateKey{}).(*state)
	if st == nil {
		st = &state{}
	}
	return st
}

// Metrics is told of each request when it is over: its route as in Routes, ""
// for none of them, the status, 0 when the connection was cut before one, and
// how long it took. A stream takes as long as it was followed.
type Metrics interface {
	Request(route string, status int, took time.Duration, stream bool)
}

// observe gives a request its id, logs it, and turns a panic into a 500.
func (s *Server) observe(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	start := time.Now()
	st := &state{id: requestID(r)}
	ctx := caller.With(r.Context(), caller.Caller{RequestID: st.id})
	r = r.WithContext(context.WithValue(ctx, stateKey{}, st))
	w.Header().Set(caller.Header, st.id)
	rec := &recorder{ResponseWriter: w, state: st}
	defer func() {
		p := recover()
		if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic value, not an error chain
			s.Log.LogAttrs(r.Context(), slog.LevelError, "panic in a handler", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			if !st.wrote {
				s.fail(rec, r, fmt.Errorf("panic: %v", p))
				p = nil
			}
		}
		took := time.Since(start)
		s.logAccess(r, rec, took)
		if s.Metrics != nil {
			stream := strings.HasPrefix(rec.Header().Get("Content-Type"), "text/event-stream")
			s.Metrics.Request(st.route, rec.status, took, stream)
		}
		if p != nil {
			panic(http.ErrAbortHandler)
		}
	}()
	next(rec, r)
}

func (s *Server) logAccess(r *http.Request, rec *recorder, took time.Duration) {
	level := slog.LevelInfo
	if rec.status < 400 && (r.URL.Path == "/healthz" || r.URL.Path == "/readyz") {
		level = slog.LevelDebug
	}
	if !s.Log.Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method),
		slog.String("path", cmp.Or(rec.state.path, r.URL.Path)), // without the query: it holds paths of the user's
		slog.Int("status", rec.status),
		slog.Int64("bytes", rec.bytes),
		slog.Float64("ms", float64(took.Microseconds())/1000),
	}
	if rec.state.who.Prefix != "" {
		attrs = append(attrs, slog.String("key", rec.state.who.Prefix))
	}
	if err := rec.state.err; err != nil && !errors.Is(err, http.ErrAbortHandler) {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID takes over the client's id when it is fit for a log line.
func requestID(r *http.Request) string {
	if id := r.Header.Get(caller.Header); caller.ValidID(id) {
		return id
	}
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// recorder remembers what was sent, for the access log.
type recorder struct {
	http.ResponseWriter
	state  *state
	status int
	bytes  int64
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack gives the connection to what upgrades it.
func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && !w.state.wrote {
		w.state.wrote, w.status = true, http.StatusSwitchingProtocols
	}
	return conn, buf, err
}

func (w *recorder) WriteHeader(status int) {
	if (status >= 200 || status == http.StatusSwitchingProtocols) && !w.state.wrote {
		w.state.wrote, w.status = true, status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if !w.state.wrote {
		w.state.wrote, w.status = true, http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}
