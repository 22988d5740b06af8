package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
)

// keepAlive is how often a silent stream gets a comment, so that neither end
// nor anything between takes it for dead.
const keepAlive = 15 * time.Second

// nextLine is the one character that the encoder leaves as it is and that
// clients take for the end of a line: Python's splitlines does.
var nextLine = []byte("\u0085")

// sse writes a stream of server-sent events. The response begins with the
// first event or comment; until then an error can still be an ordinary one.
type sse struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	begun bool
	quiet bool // nothing was sent since the last tick
	err   error
	buf   []byte
}

func newSSE(w http.ResponseWriter, every time.Duration) *sse {
	s := &sse{w: w, rc: http.NewResponseController(w), stop: make(chan struct{}), done: make(chan struct{})}
	go s.breathe(every)
	return s
}

// breathe sends the comments.
func (s *sse) breathe(every time.Duration) {
	defer close(s.done)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-t.C:
			s.mu.Lock()
			if s.quiet {
				s.write([]byte(": still here\n\n"))
			}
			s.quiet = true
			s.mu.Unlock()
		}
	}
}

// close ends the comments. The handler must not return before.
func (s *sse) close() {
	close(s.stop)
	<-s.done
}

// begin sends the headers, for a stream that may stay silent for long.
func (s *sse) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start()
	if err := s.rc.Flush(); err != nil {
		s.err = err
	}
	return s.err
}

// send writes one event. A negative seq means no id.
func (s *sse) send(seq int64, event string, data any) error {
	raw, err := json.Marshal(data) // never holds a line break, which would end the event
	if err != nil {
		return err
	}
	raw = bytes.ReplaceAll(raw, nextLine, []byte(`\u0085`))
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buf[:0]
	if seq >= 0 {
		b = strconv.AppendInt(append(b, "id: "...), seq, 10)
		b = append(b, '\n')
	}
	b = append(append(append(b, "event: "...), event...), '\n')
	b = append(append(append(b, "data: "...), raw...), '\n', '\n')
	s.write(b)
	if cap(b) <= 64<<10 {
		s.buf = b
	}
	return s.err
}

func (s *sse) write(b []byte) {
	if s.err != nil {
		return
	}
	s.start()
	_ = s.rc.SetWriteDeadline(time.Now().Add(streamStall))
	if _, s.err = s.w.Write(b); s.err == nil {
		s.err = s.rc.Flush()
	}
	s.quiet = false
}

func (s *sse) start() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	// Without the charset some clients read text as Latin-1.
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // nginx would hold the stream back
	s.w.WriteHeader(http.StatusOK)
}

func (s *sse) started() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begun
}

// streamed ends a handler of a stream: an error before the first byte is an
// ordinary response; later it is an event, since the status is gone.
func (s *Server) streamed(out *sse, r *http.Request, err error) error {
	if err == nil || !out.started() {
		return err
	}
	stateOf(r.Context()).err = err
	if r.Context().Err() != nil && !errors.Is(context.Cause(r.Context()), ErrStopping) && !keyEnded(r) {
		return nil // nobody is there to read it
	}
	body, _ := s.failure(r, err)
	_ = out.send(-1, "error", body)
	return nil
}

// The data of the events, as far as api.Event is not it already.
type (
	startedData struct {
		ExecutionID    string `json:"execution_id,omitempty"`
		ExecutionCount int    `json:"execution_count,omitempty"`
		PID            int    `json:"pid,omitempty"`
	}
	textData struct {
		Text string `json:"text"`
		Raw  []byte `json:"raw,omitempty"`
	}
	resultData struct {
		Data             api.Bundle                 `json:"data"`
		Metadata         map[string]json.RawMessage `json:"metadata"`
		IsLastExpression bool                       `json:"is_last_expression"`
	}
	promptData struct {
		Prompt string `json:"prompt"`
	}
	gapData struct {
		Stream  string `json:"stream"`
		Dropped int64  `json:"dropped"`
	}
	// endData is an Execution without what was streamed.
	endData struct {
		api.Execution
		Stdout      *struct{} `json:"stdout,omitempty"`
		Stderr      *struct{} `json:"stderr,omitempty"`
		Results     *struct{} `json:"results,omitempty"`
		ResultsMeta *struct{} `json:"results_meta,omitempty"`
	}
)

// dataOf gives the data of an event, with the fields of its type and no other.
func dataOf(e api.Event) any {
	switch e.Type {
	case api.EventStarted:
		return startedData{e.ExecutionID, e.ExecutionCount, e.PID}
	case api.EventStdout, api.EventStderr:
		return textData{e.Text, e.Raw}
	case api.EventResult:
		meta := e.Metadata
		if meta == nil {
			meta = map[string]json.RawMessage{}
		}
		return resultData{e.Data, meta, e.IsLastExpression}
	case api.EventInputRequest:
		return promptData{e.Prompt}
	case api.EventGap:
		return gapData{e.Stream, e.Dropped}
	case api.EventEnd:
		if e.Execution != nil {
			return endData{Execution: *e.Execution}
		}
	case api.EventExit:
		if e.Exit != nil {
			return e.Exit
		}
	}
	return struct{}{}
}
