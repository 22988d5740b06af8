package agent

import (
	"context"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// hub tells whoever listens what happens in a run: the entries of its
// transcript, all of them, and between these what is not kept, as far as the
// listener keeps up.
type hub struct {
	mu      sync.Mutex
	entries []api.AgentEvent
	ended   bool
	changed chan struct{} // closed and made anew at each change
	hearers map[*hearer]struct{}
}

// hearer is one who listens. What is not kept waits for it in passing.
type hearer struct {
	passing []passing
	bytes   int // of their words
}

type passing struct {
	behind int // entries that come before it
	event  api.AgentEvent
}

// What of what is not kept waits for one who listens.
const (
	maxPassing      = 4096
	maxPassingBytes = 1 << 20
)

func newHub(entries []api.AgentEvent) *hub {
	return &hub{entries: entries, changed: make(chan struct{}), hearers: map[*hearer]struct{}{}}
}

// next is the number of the entry that will come.
func (h *hub) next() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.entries) == 0 {
		return 1
	}
	return h.entries[len(h.entries)-1].Seq + 1
}

func (h *hub) add(e api.AgentEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
	h.wake()
}

func (h *hub) tell(e api.AgentEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.hearers {
		if n := len(e.Text) + len(e.Reasoning); len(l.passing) < maxPassing && l.bytes+n <= maxPassingBytes {
			l.passing = append(l.passing, passing{len(h.entries), e})
			l.bytes += n
		}
	}
	h.wake()
}

// end says that nothing more comes.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	h.wake()
}

func (h *hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// follow gives the entries with numbers above after, and what comes, until the
// run's last entry, the end of the work on it, or the end of the context.
func (h *hub) follow(ctx context.Context, after int64, yield func(api.AgentEvent, error) bool) {
	l := new(hearer)
	h.mu.Lock()
	h.hearers[l] = struct{}{}
	at := 0
	for at < len(h.entries) && h.entries[at].Seq <= after {
		at++
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.hearers, l)
		h.mu.Unlock()
	}()
	for {
		h.mu.Lock()
		changed, ended := h.changed, h.ended
		var now []api.AgentEvent
		for {
			if len(l.passing) > 0 && l.passing[0].behind <= at {
				now = append(now, l.passing[0].event)
				l.bytes -= len(l.passing[0].event.Text) + len(l.passing[0].event.Reasoning)
				l.passing = l.passing[1:]
				continue
			}
			if at == len(h.entries) {
				break
			}
			now = append(now, h.entries[at])
			at++
		}
		h.mu.Unlock()
		for _, e := range now {
			if !yield(e, nil) || e.Type == api.AgentEventEnded {
				return
			}
		}
		if ended && len(now) == 0 {
			yield(api.AgentEvent{}, errStopping)
			return
		}
		if len(now) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			yield(api.AgentEvent{}, context.Cause(ctx))
			return
		}
	}
}

// all gives the entries so far.
func (h *hub) all() []api.AgentEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.entries[:len(h.entries):len(h.entries)]
}
