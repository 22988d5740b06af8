package kernel

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	grace         = time.Minute      // the guest gets to end a cell after its deadline
	interruptTime = 15 * time.Second // for the interrupt of a cell whose client is gone
)

// Run runs a cell and waits for its end. A cell that raises or hits its
// deadline is an outcome, not an error.
func (s *Service) Run(ctx context.Context, owner, sid, cid string, req api.RunRequest) (api.Execution, error) {
	share, done := s.budget.share(ctx, owner)
	defer done()
	return assemble(s.Stream(ctx, owner, sid, cid, req), share)
}

// Wait waits for an execution and gives it whole.
func (s *Service) Wait(ctx context.Context, owner, sid, cid, eid string) (api.Execution, error) {
	share, done := s.budget.share(ctx, owner)
	defer done()
	return assemble(s.Attach(ctx, owner, sid, cid, eid, 0, false), share)
}

// Stream runs a cell and gives its events as they happen, ending with the end
// event. Its Execution holds all but the streamed parts.
func (s *Service) Stream(ctx context.Context, owner, sid, cid string, req api.RunRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		run, err := s.check(cid, req)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		s.stream(ctx, owner, sid, cid, run, req.Detach, yield)
	}
}

// stream sends what is to be run and follows it to its end.
func (s *Service) stream(ctx context.Context, owner, sid, cid string, run guestapi.RunRequest, detach bool, yield func(api.Event, error) bool) {
	e := execution{sid, cid, run.ExecutionID}
	f := &follow{s: s, owner: owner, execution: e, link: s.link(owner, sid), timeout: time.Duration(run.TimeoutMS) * time.Millisecond}
	f.front, f.ask = run.Notebook != nil || run.Ask != nil, run.Ask != nil
	if !f.front {
		f.tap = s.taps.of(e, run.Code)
	}
	f.opened = func() { s.watch.run(e, detach) }
	defer func() {
		if f.told && !f.ended {
			f.tap(Told{Left: true})
		}
		switch {
		case f.isOpen:
			s.watch.leave(e, f.ended)
		case f.asked && ctx.Err() != nil: // gone before the guest could say that it has the cell
			s.watch.run(e, detach)
			s.watch.leave(e, false)
		}
	}()
	f.events(ctx, 0, f.start(run), yield)
}

// Attach gives the events of an execution from after on. With follow it goes
// on until the end, without it waits for the end and gives what was kept.
func (s *Service) Attach(ctx context.Context, owner, sid, cid, eid string, after int64, follows bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if after < 0 {
			yield(api.Event{}, fault.InvalidField("after", "after must not be negative, but is %d", after))
			return
		}
		e := execution{sid, cid, eid}
		f := &follow{s: s, owner: owner, execution: e, link: s.link(owner, sid), timeout: s.cfg.MaxTimeout}
		if s.watch.attach(e) {
			defer func() { s.watch.leave(e, f.ended) }()
		}
		f.events(ctx, after, func(ctx context.Context, c *guest.Client, after int64) (*guest.Events, error) {
			events, err := c.Attach(ctx, cid, eid, after, follows)
			return events, s.near(ctx, c, cid, err)
		}, yield)
	}
}

func (s *Service) check(cid string, req api.RunRequest) (guestapi.RunRequest, error) {
	run := guestapi.RunRequest{ExecutionID: req.ExecutionID, Code: req.Code, TimeoutMS: req.TimeoutMS, Follow: true}
	if err := guestapi.CheckCode(req.Code); err != nil {
		return run, err
	}
	if run.TimeoutMS == 0 {
		run.TimeoutMS = s.cfg.DefaultTimeout.Milliseconds()
	}
	if most := s.cfg.MaxTimeout.Milliseconds(); run.TimeoutMS < 0 || run.TimeoutMS > most {
		return run, fault.InvalidField("timeout_ms", "timeout_ms must be between 1 and %d, but is %d", most, run.TimeoutMS)
	}
	if run.ExecutionID == "" {
		run.ExecutionID = newID("")
	}
	return run, guestapi.CheckID("execution_id", run.ExecutionID)
}

// follow is one caller's view of an execution.
type follow struct {
	s         *Service
	owner     string
	execution execution
	link      guest.Link
	timeout   time.Duration

	opened     func() // called once, when the guest has the cell
	isOpen     bool
	asked      bool // the code may have reached the guest
	generation int  // of the guest that it was sent to
	seen       int64
	ended      bool

	front bool       // a front end of Jupyter follows
	ask   bool       // it is no cell
	tap   func(Told) // is told, too; nil for none
	told  bool       // the tap knows that it has started
}

// start opens the stream by sending the code, which the guest takes for an
// attach when it has it already. A guest of another generation is a copy from
// an earlier time: there the code is never sent again.
func (f *follow) start(run guestapi.RunRequest) guest.Open {
	cid := f.execution.context
	return func(ctx context.Context, c *guest.Client, after int64) (*guest.Events, error) {
		if f.asked && c.Generation() != f.generation {
			return c.Attach(ctx, cid, run.ExecutionID, after, true)
		}
		f.asked, f.generation = true, c.Generation()
		run.After = after
		events, err := c.Run(ctx, cid, run)
		if cid == api.DefaultContext && errors.Is(err, fault.NotFound) {
			if err := f.s.makeDefault(ctx, f.owner, f.execution.sandbox, c); err != nil {
				return nil, err
			}
			events, err = c.Run(ctx, cid, run)
		}
		if err == nil && !f.isOpen {
			f.isOpen = true
			f.opened()
		}
		return events, f.s.near(ctx, c, cid, err)
	}
}

var errNotEnded = fault.New(api.CodeTimeout, "the sandbox did not end the cell at its deadline")

// events follows to the end. A sandbox that ends in the middle ends the cell,
// and so does a guest that does not keep the deadline.
func (f *follow) events(ctx context.Context, after int64, open guest.Open, yield func(api.Event, error) bool) {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Before it has started a cell may wait for others, each with its deadline.
	deadline := f.deadline(limited, func() { cancel(errNotEnded) })

	f.seen = after
	for e, err := range guest.Follow(limited, after, f.link, open) {
		if err != nil {
			if end, ok := f.untimely(err); ok && ctx.Err() == nil {
				f.s.explain(ctx, f.owner, f.execution.sandbox, end.Execution)
				f.end(end)
				yield(end, nil)
				return
			}
			yield(api.Event{}, err)
			return
		}
		f.seen = e.Seq
		switch e.Type {
		case api.EventStarted:
			e.ExecutionID = f.execution.id
			deadline(f.timeout + grace)
		case api.EventEnd:
			e.Execution.ExecutionID = f.execution.id
			f.s.explain(ctx, f.owner, f.execution.sandbox, e.Execution)
			f.end(e)
		case api.EventMessage:
			if !f.front {
				continue // it is a notebook's
			}
		case api.EventExit:
			err = fault.New(api.CodeInternal, "the agent in the sandbox took the cell for a process")
		}
		if f.tap != nil && e.Type != api.EventEnd {
			f.told = f.told || e.Type == api.EventStarted
			f.tap(Told{Event: e})
		}
		if !yield(e, err) || f.ended || err != nil {
			return
		}
	}
}

// deadline calls late when the time that is set last is over. While calls of the
// sandbox wait for decisions it stands still.
func (f *follow) deadline(ctx context.Context, late func()) (set func(time.Duration)) {
	held := func() time.Duration {
		if f.s.cfg.Held == nil {
			return 0
		}
		return f.s.cfg.Held(f.execution.sandbox)
	}
	var mu sync.Mutex
	var timer *time.Timer
	before := held()
	timer = time.AfterFunc(f.s.cfg.MaxTimeout+grace, func() {
		mu.Lock()
		defer mu.Unlock()
		now := held()
		more := now - before
		before = now
		switch {
		case ctx.Err() != nil:
		case more > 0:
			timer.Reset(more)
		default:
			late()
		}
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
	return func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		before = held()
		timer.Reset(d)
	}
}

// end notes that the execution has ended.
func (f *follow) end(e api.Event) {
	f.ended = true
	if f.tap != nil {
		f.tap(Told{Event: e})
	}
	if !f.ask {
		f.s.ended(f.owner, f.execution, e.Execution)
	}
}

// explain adds to the error of a cell which limit of its sandbox is behind it.
func (s *Service) explain(ctx context.Context, owner, sid string, x *api.Execution) {
	if s.cfg.Hint == nil || x.Error == nil {
		return
	}
	if hint := s.cfg.Hint(ctx, owner, sid, string(x.End), *x.Error); hint != "" {
		words := strings.TrimRight(*x.Error, "\n") + "\n\n" + hint
		x.Error = &words
	}
}

// untimely makes up the end of a cell whose guest cannot tell it any more.
func (f *follow) untimely(err error) (api.Event, bool) {
	x := &api.Execution{ExecutionID: f.execution.id, End: api.EndKernelDied, Exit: 1, ExitCode: 1}
	var ended *guest.EndedError
	var words string
	switch {
	case errors.Is(err, errNotEnded):
		x.End = api.EndTimeout
		words = "The cell was to end at its deadline, but the sandbox did not answer. It may still be running."
	case errors.As(err, &ended) && (f.asked || f.seen > 0):
		if ended.Reason == "oom" {
			x.End = api.EndOOM
		}
		words = "The sandbox ended while the cell was running: " + err.Error()
	default:
		return api.Event{}, false
	}
	x.Error = &words
	return api.Event{Seq: f.seen + 1, Type: api.EventEnd, Execution: x}, true
}

// interruptLeft stops a cell that nobody waits for any more.
func (s *Service) interruptLeft(e execution) {
	ctx, cancel := context.WithTimeout(guest.WithoutWaking(context.Background()), interruptTime)
	defer cancel()
	err := s.InterruptExecution(ctx, "", e.sandbox, e.context, e.id)
	if err != nil && !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.Conflict) {
		s.cfg.Logger.Warn("a cell whose client is gone could not be interrupted", "sandbox", e.sandbox, "context", e.context, "execution", e.id, "error", err)
		return
	}
	s.cfg.Logger.Info("interrupted a cell whose client is gone", "sandbox", e.sandbox, "context", e.context, "execution", e.id)
}
