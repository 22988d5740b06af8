package httpapi

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// mcp passes a request on to the Model Context Protocol, whose own refusals
// are put into our words.
func (s *Server) mcp(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("id") != "" {
		if err := s.isThere(r); err != nil {
			return err
		}
	}
	if s.MCP == nil {
		return fault.New(api.CodeUnsupported, "this server does not speak MCP")
	}
	refused := &refusals{ResponseWriter: w}
	s.MCP.ServeHTTP(refused, r)
	if refused.status == 0 {
		return nil
	}
	words := strings.TrimSpace(refused.words.String())
	switch refused.status {
	case http.StatusNotFound:
		return fault.New(api.CodeNotFound, "no such MCP session").WithHint("it has ended, by itself or with the daemon: initialize another one")
	case http.StatusForbidden, http.StatusUnauthorized:
		return fault.New(api.CodeDenied, "this MCP session is another key's").WithHint("initialize one of your own")
	case http.StatusTooManyRequests:
		return fault.New(api.CodeRateLimited, "%s", words).WithHint("end some with DELETE, or let them end by themselves")
	case http.StatusRequestEntityTooLarge:
		return fault.New(api.CodeTooLarge, "%s", words)
	case http.StatusMethodNotAllowed:
		return errMethod(r, []string{http.MethodPost})
	}
	return fault.New(api.CodeInvalid, "%s", words)
}

// refusals keeps back what is written after a status that is a failure, unless
// it is JSON.
type refusals struct {
	http.ResponseWriter
	status int
	words  bytes.Buffer
}

func (w *refusals) WriteHeader(status int) {
	if status >= 400 && !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *refusals) Write(p []byte) (int, error) {
	if w.status == 0 {
		return w.ResponseWriter.Write(p)
	}
	if room := 4<<10 - w.words.Len(); room > 0 {
		w.words.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *refusals) Flush() {
	if w.status == 0 {
		_ = http.NewResponseController(w.ResponseWriter).Flush() // ours can
	}
}

func (w *refusals) Unwrap() http.ResponseWriter { return w.ResponseWriter }
