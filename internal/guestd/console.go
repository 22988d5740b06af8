package guestd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
)

// Console keeps the last lines of what the agent logs and of what programs
// leave on the console, so that the host can read them. It is part of every
// snapshot, so it stays small.
type Console struct {
	also io.Writer

	mu      sync.Mutex
	lines   []guestapi.LogLine
	size    int
	seq     int64
	parts   map[string][]byte // of lines that are not at their end
	changed chan struct{}     // closed and replaced with every line
}

// NewConsole makes a Console that also writes everything to w.
func NewConsole(w io.Writer) *Console {
	return &Console{also: w, parts: map[string][]byte{}, changed: make(chan struct{})}
}

// Stream is where one stream is written to: "stdout" is what programs leave,
// "stderr" the agent's log.
func (c *Console) Stream(name string) io.Writer { return consoleStream{c, name} }

type consoleStream struct {
	c    *Console
	name string
}

// Write never fails: what cannot be passed on is kept all the same.
func (s consoleStream) Write(b []byte) (int, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.also.Write(b)
	rest := b
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		part := append(c.parts[s.name], line...)
		if !whole {
			c.parts[s.name] = part[:min(len(part), guestapi.MaxLogLine)]
			return len(b), nil
		}
		c.add(s.name, part)
		c.parts[s.name] = part[:0]
		rest = after
	}
}

// add keeps a line and lets go of the oldest. The lock is held.
func (c *Console) add(stream string, line []byte) {
	text := strings.ToValidUTF8(string(line[:min(len(line), guestapi.MaxLogLine)]), "�")
	c.seq++
	c.lines = append(c.lines, guestapi.LogLine{Seq: c.seq, Time: time.Now().UTC(), Stream: stream, Line: text})
	c.size += len(text)
	drop := 0
	for len(c.lines)-drop > guestapi.KeepLogLines || c.size > guestapi.KeepLogBytes {
		c.size -= len(c.lines[drop].Line)
		drop++
	}
	if drop > 0 {
		c.lines = append(c.lines[:0], c.lines[drop:]...)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// after gives the kept lines above a number, and a channel that is closed when
// there are more.
func (c *Console) after(n int64) ([]guestapi.LogLine, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.seq - int64(len(c.lines)) // number before the first that is kept
	skip := min(max(n-first, 0), int64(len(c.lines)))
	return append([]guestapi.LogLine(nil), c.lines[skip:]...), c.changed
}

// getLog gives the lines that are kept, and with follow those that come.
func (a *Agent) getLog(w http.ResponseWriter, r *http.Request) error {
	after, follow, err := afterAndFollow(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	enc := json.NewEncoder(w)
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	flush() // the head of the answer, which may stay silent for long
	for {
		lines, changed := a.cfg.Console.after(after)
		for _, l := range lines {
			if enc.Encode(l) != nil {
				return nil // the host is gone
			}
			after = l.Seq
		}
		flush()
		if !follow {
			return nil
		}
		select {
		case <-changed:
		case <-alive.C:
			if _, err := w.Write([]byte("\n")); err != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
