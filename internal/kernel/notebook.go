package kernel

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Notebook runs a cell for a front end of Jupyter, or asks what it asks, and
// gives the events. The cell goes on when nobody follows it, and has the longest
// time that there is. An empty ExecutionID and TimeoutMS are filled in.
func (s *Service) Notebook(ctx context.Context, owner, sid, cid string, run guestapi.RunRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		err := error(nil)
		switch {
		case run.Ask != nil:
			err = guestapi.CheckAsk(*run.Ask)
		case len(run.Code) > guestapi.MaxCode:
			err = guestapi.CheckCode(run.Code)
		}
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		run.Follow = true
		if run.ExecutionID == "" {
			run.ExecutionID = newID("")
		}
		if run.TimeoutMS == 0 {
			run.TimeoutMS = s.cfg.MaxTimeout.Milliseconds()
		}
		s.stream(ctx, owner, sid, cid, run, run.Ask == nil, yield)
	}
}

// Input answers the input() of a running cell of a notebook.
func (s *Service) Input(ctx context.Context, owner, sid, cid, eid, value string) error {
	if len(value) > guestapi.MaxInput {
		return fault.InvalidField("value", "an answer of %d bytes is too long: it may have %d", len(value), guestapi.MaxInput)
	}
	ctx = guest.Unrepeatable(ctx)
	_, err := withClient(ctx, s, owner, sid, func(c *guest.Client) (struct{}, error) {
		return struct{}{}, c.Input(ctx, cid, eid, value)
	})
	return err
}

// Told is an event of a cell that somebody else runs in a context.
type Told struct {
	ExecutionID string
	Code        string
	Event       api.Event
	// Left says, in place of an event, that whoever ran it follows it no more:
	// what it does from now on nobody is told.
	Left bool
}

// Tap has f told of the cells that others than notebooks run in a context
// through this daemon, until stop is called, and perhaps of one thing more. f must
// not block.
func (s *Service) Tap(sid, cid string, f func(Told)) (stop func()) {
	return s.taps.add(sid+"/"+cid, f)
}

type tap struct{ f func(Told) }

// taps are those who want to be told, by context.
type taps struct {
	mu    sync.RWMutex
	known map[string]map[*tap]bool
}

func (t *taps) add(where string, f func(Told)) (stop func()) {
	one := &tap{f}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[where] == nil {
		t.known[where] = map[*tap]bool{}
	}
	t.known[where][one] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.known[where], one)
		if len(t.known[where]) == 0 {
			delete(t.known, where)
		}
	}
}

// of gives what tells those who want to know of an execution.
func (t *taps) of(e execution, code string) func(Told) {
	return func(told Told) {
		told.ExecutionID, told.Code = e.id, code
		t.mu.RLock()
		list := slices.Collect(maps.Keys(t.known[e.sandbox+"/"+e.context]))
		t.mu.RUnlock() // those who are told have locks of their own
		for _, each := range list {
			each.f(told)
		}
	}
}
