package agent

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm"
)

// Tools has what cells call outside of their sandboxes.
type Tools interface {
	// Plan checks what a run asks for.
	Plan(ctx context.Context, owner string, t *api.Tools) (*api.Tools, error)
	// Attach says that a sandbox works for a run. What is asked about its calls, and
	// decided, is sent to heard as far as there is room, until detach.
	Attach(run, sandbox string, heard chan api.Approval) (detach func())
	// Ended says that a run has ended, whether it was attached or not.
	Ended(run string)
	// Reading says that a cell begins, and Noticed what reading it said.
	Reading(sandbox string)
	Noticed(sandbox string, advice []api.AgentAdvice)
	// Prompt describes the tools of a sandbox to a model; "" when it has none.
	Prompt(ctx context.Context, owner, sandbox string, budget int, count func(string) int) (string, error)
	// Give gives tools to a sandbox that was there before.
	Give(ctx context.Context, owner, sandbox string, t *api.Tools) error
	// Approvals lists those of a run.
	Approvals(ctx context.Context, owner, sandbox, run, status string, limit int) ([]api.Approval, error)
}

const (
	toolTokens   = 2000 // of the prompt, for stubs
	mostApproval = 1000 // of a run that are looked at when it goes on
)

// attach has the run hear of its calls that wait for decisions, and of what it
// missed while no daemon worked on it.
func (r *runner) attach(ctx context.Context) error {
	run := &r.state.run
	if r.s.cfg.Tools == nil {
		return nil
	}
	r.approvals = make(chan api.Approval, 64)
	r.detach = r.s.cfg.Tools.Attach(run.ID, run.SandboxID, r.approvals)
	if len(r.state.waiting) > 0 {
		r.clock.hold()
	}
	return r.missed(ctx)
}

// missed notes decisions that the transcript lacks.
func (r *runner) missed(ctx context.Context) error {
	list, err := r.s.cfg.Tools.Approvals(ctx, r.state.run.Workspace, "", r.state.run.ID, "", mostApproval)
	if err != nil {
		return err
	}
	for _, a := range list {
		_, waits := r.state.waiting[a.ID]
		if known := r.state.asked[a.ID]; !known && a.Status == api.ApprovalPending || waits && a.Status != api.ApprovalPending {
			if err := r.approval(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// approval writes down that a call waits for a decision, or had one. The run's
// time stands still while one waits.
func (r *runner) approval(a api.Approval) error {
	if err := r.put(api.AgentEvent{Type: api.AgentEventApproval, Turn: r.state.turn, Approval: &a}); err != nil {
		return err
	}
	if len(r.state.waiting) > 0 {
		r.clock.hold()
	} else {
		r.clock.free()
	}
	return r.t.sync()
}

// stream runs a cell, and meanwhile writes down what is asked and decided about
// its calls.
func (r *runner) stream(ctx context.Context, req api.RunRequest) iter.Seq2[api.Event, error] {
	run := &r.state.run
	events := r.s.cfg.Kernels.Stream(ctx, run.Workspace, run.SandboxID, r.state.context, req)
	if r.approvals == nil {
		return events
	}
	return func(yield func(api.Event, error) bool) {
		r.s.cfg.Tools.Reading(run.SandboxID)
		type item struct {
			e   api.Event
			err error
		}
		items, done := make(chan item), make(chan struct{})
		defer close(done)
		go func() {
			defer close(items)
			for e, err := range events {
				select {
				case items <- item{e, err}:
				case <-done:
					return
				}
			}
		}()
		for {
			select {
			case it, more := <-items:
				if !more {
					return
				}
				if raw, is := it.e.Data[adviceType]; is {
					r.noticed(raw)
				}
				if !yield(it.e, it.err) {
					return
				}
			case a := <-r.approvals:
				if err := r.approval(a); err != nil {
					yield(api.Event{}, err)
					return
				}
			}
		}
	}
}

func (r *runner) noticed(raw string) {
	var advice []api.AgentAdvice
	if json.Unmarshal([]byte(raw), &advice) == nil {
		r.s.cfg.Tools.Noticed(r.state.run.SandboxID, advice[:min(len(advice), maxAdvice)])
	}
}

// toolPrompt describes the tools of the run's sandbox.
func (r *runner) toolPrompt(ctx context.Context) (string, error) {
	if r.s.cfg.Tools == nil {
		return "", nil
	}
	budget := r.state.req.Limits.ToolTokens
	if budget == 0 {
		budget = toolTokens
	}
	return r.s.cfg.Tools.Prompt(ctx, r.state.run.Workspace, r.state.run.SandboxID, budget, llm.Guess)
}

// waits folds what is asked and decided: a run waits as long as a call does, and
// that time does not count.
func (s *state) waits(e api.AgentEvent) {
	if s.waiting == nil {
		s.waiting, s.asked = map[string]time.Time{}, map[string]bool{}
	}
	a := e.Approval
	s.asked[a.ID] = true
	if a.Status == api.ApprovalPending {
		if len(s.waiting) == 0 {
			s.since = e.Time
		}
		s.waiting[a.ID] = e.Time
		s.run.Status = api.AgentWaiting
		return
	}
	if _, waited := s.waiting[a.ID]; !waited {
		return
	}
	if delete(s.waiting, a.ID); len(s.waiting) == 0 {
		s.away += e.Time.Sub(s.since)
		s.run.Status = api.AgentRunning
	}
}

// clock ends a run when its time is over. One goroutine uses it.
type clock struct {
	timer *time.Timer
	ends  time.Time
	left  time.Duration
	held  bool
}

func startClock(left time.Duration, over func()) *clock {
	return &clock{timer: time.AfterFunc(left, over), ends: time.Now().Add(left)}
}

// hold keeps it from running.
func (c *clock) hold() {
	if c == nil || c.held || !c.timer.Stop() {
		return
	}
	c.held, c.left = true, time.Until(c.ends)
}

// free lets it run on.
func (c *clock) free() {
	if c == nil || !c.held {
		return
	}
	c.held, c.ends = false, time.Now().Add(c.left)
	c.timer.Reset(c.left)
}

func (c *clock) stop() { c.timer.Stop() }
