package kernels

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// maxFrame is the longest control frame.
const maxFrame = 24 << 20

// frame is one message of a context's control channel, in either direction.
type frame struct {
	Op         string                     `json:"op"`
	ID         string                     `json:"id,omitempty"`
	Count      int                        `json:"count,omitempty"` // of this cell
	Next       int                        `json:"next,omitempty"`  // of the next
	Data       api.Bundle                 `json:"data,omitempty"`
	Metadata   map[string]json.RawMessage `json:"metadata,omitempty"`
	Last       bool                       `json:"last,omitempty"`
	Status     string                     `json:"status,omitempty"`
	ErrorName  string                     `json:"error_name,omitempty"`
	ErrorValue string                     `json:"error_value,omitempty"`
	Traceback  string                     `json:"traceback,omitempty"`
	Prompt     string                     `json:"prompt,omitempty"`
	Password   bool                       `json:"password,omitempty"`
	Type       string                     `json:"type,omitempty"` // of a message
	Content    json.RawMessage            `json:"content,omitempty"`
	Buffers    [][]byte                   `json:"buffers,omitempty"`
	Reply      json.RawMessage            `json:"reply,omitempty"`
	PID        int                        `json:"pid,omitempty"`      // of a copy
	Warnings   []string                   `json:"warnings,omitempty"` // about a fork
	Error      string                     `json:"error,omitempty"`    // why there was none

	size int // of a frame that was read
}

// initFrame makes a spare into a context.
type initFrame struct {
	Op        string            `json:"op"`
	ContextID string            `json:"context_id"`
	CWD       string            `json:"cwd"`
	Envs      map[string]string `json:"envs"`
	Reseed    bool              `json:"reseed"`
	Entropy   []byte            `json:"entropy"`
	Memory    int64             `json:"memory_limit"`
}

type runFrame struct {
	Op       string             `json:"op"`
	ID       string             `json:"id"`
	Code     string             `json:"code"`
	Notebook *guestapi.Notebook `json:"notebook,omitempty"`
}

// askFrame is a request of a notebook that is no cell.
type askFrame struct {
	Op string `json:"op"`
	ID string `json:"id"`
	guestapi.Ask
}

type inputFrame struct {
	Op    string `json:"op"`
	ID    string `json:"id"`
	Value string `json:"value"`
}

type interruptFrame struct {
	Op string `json:"op"`
	ID string `json:"id"`
}

// forkFrame asks a context for copies of itself. It comes with four descriptors
// for each.
type forkFrame struct {
	Op    string `json:"op"`
	ID    string `json:"id"`
	Count int    `json:"count"`
}

type reseedFrame struct {
	Op      string `json:"op"`
	Entropy []byte `json:"entropy"`
}

func encodeFrame(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxFrame {
		return nil, fmt.Errorf("a frame of %d bytes is too long", len(body))
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

var errFrameTooLong = errors.New("the interpreter sent a frame that is too long")

// frameReader cuts frames out of the bytes of a control channel. Those bytes
// may come from a program that found the descriptor, so they can be anything.
type frameReader struct{ buf []byte }

func (r *frameReader) feed(b []byte) { r.buf = append(r.buf, b...) }

// next takes the next whole frame.
func (r *frameReader) next() (f frame, ok bool, err error) {
	if len(r.buf) < 4 {
		return f, false, nil
	}
	n := int(binary.BigEndian.Uint32(r.buf))
	if n > maxFrame {
		return f, false, errFrameTooLong
	}
	if len(r.buf) < 4+n {
		return f, false, nil
	}
	if err := json.Unmarshal(r.buf[4:4+n], &f); err != nil {
		return f, false, fmt.Errorf("the interpreter sent a frame that is not understood: %w", err)
	}
	f.size = n
	if r.buf = r.buf[4+n:]; len(r.buf) == 0 {
		r.buf = nil // a large frame does not hold memory for long
	}
	return f, true, nil
}
