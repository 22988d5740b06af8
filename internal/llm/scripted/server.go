package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/llm"
)

// piece is how many characters of a reply one event carries.
const piece = 12

// Server plays a script over HTTP, as chat completions at
// /v1/chat/completions and as Anthropic's messages at /v1/messages.
type Server struct {
	Script *Script
	Key    string // that requests must carry; "" takes any, and none

	mu       sync.Mutex
	requests []json.RawMessage
	problems []string
}

var _ http.Handler = (*Server)(nil)

// Requests gives the bodies of the requests so far.
func (s *Server) Requests() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]json.RawMessage{}, s.requests...)
}

// Problems says what was asked that the script or the protocol does not have.
func (s *Server) Problems() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.problems...)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var read func([]byte) (seen, error)
	var write func(*out, llm.Reply)
	key := r.Header.Get("X-Api-Key")
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/chat/completions":
		read, write = readOpenAI, writeOpenAI
		key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	case "POST /v1/messages":
		read, write = readAnthropic, writeAnthropic
	default:
		s.refuse(w, http.StatusNotFound, "no route "+r.Method+" "+r.URL.Path, "")
		return
	}
	if s.Key != "" && key != s.Key {
		s.refuse(w, http.StatusUnauthorized, "invalid api key", "")
		return
	}
	var raw json.RawMessage
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<20)).Decode(&raw); err != nil {
		s.problem(w, err)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, raw)
	s.mu.Unlock()
	in, err := read(raw)
	if err != nil {
		s.problem(w, err)
		return
	}
	turn, reply, fault, done, err := s.Script.answer(in)
	if err != nil {
		s.problem(w, err)
		return
	}
	if turn.PauseMS > 0 {
		select {
		case <-time.After(time.Duration(turn.PauseMS) * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
	if fault != nil && fault.Status != 0 {
		s.refuse(w, fault.Status, fault.Message, fault.RetryAfter)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	o := &out{w: w, left: -1, anthropic: r.URL.Path == "/v1/messages", done: done}
	if fault != nil {
		o.left, o.inBand = fault.BreakAfter, fault.Error
	}
	write(o, reply)
}

func (s *Server) problem(w http.ResponseWriter, err error) {
	s.mu.Lock()
	s.problems = append(s.problems, err.Error())
	s.mu.Unlock()
	s.refuse(w, http.StatusBadRequest, err.Error(), "")
}

func (s *Server) refuse(w http.ResponseWriter, status int, words, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]string{"type": "invalid_request_error", "message": words}}) // nobody to tell
}

// out writes events until what a fault lets through is used up.
type out struct {
	w         http.ResponseWriter
	left      int // characters until it breaks; -1: never
	inBand    bool
	anthropic bool
	done      func()
	err       error
}

// end writes the last of a reply. The turn is said before it: who has read it
// may ask for the next at once.
func (o *out) end(last func()) {
	if o.err == nil {
		o.done()
		last()
	}
}

func (o *out) event(name string, data any) {
	if o.err != nil {
		return
	}
	raw, err := json.Marshal(data)
	if err == nil {
		if o.anthropic {
			_, err = fmt.Fprintf(o.w, "event: %s\n", name)
		}
		if err == nil {
			_, err = fmt.Fprintf(o.w, "data: %s\n\n", raw)
		}
	}
	if err == nil {
		err = http.NewResponseController(o.w).Flush()
	}
	o.err = err
}

// pieces says a text a bit at a time.
func (o *out) pieces(text string, say func(part string)) {
	for text != "" && o.err == nil {
		n := min(piece, len(text))
		for n < len(text) && text[n]&0xc0 == 0x80 {
			n++
		}
		if o.left >= 0 && n > o.left {
			o.broke()
			return
		}
		if o.left >= 0 {
			o.left -= n
		}
		say(text[:n])
		text = text[n:]
	}
}

func (o *out) broke() {
	if o.inBand {
		if o.anthropic {
			o.event("error", map[string]any{"type": "error", "error": map[string]string{"type": "overloaded_error", "message": "Overloaded"}})
		} else {
			o.event("", map[string]any{"error": map[string]string{"message": "the server had an error", "type": "server_error"}})
		}
		o.err = fmt.Errorf("the script breaks off here")
		return
	}
	panic(http.ErrAbortHandler)
}
