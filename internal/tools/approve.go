package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// Store is what approvals are kept in, so that those which wait survive the daemon.
type Store interface {
	// AddApproval keeps one, and of those of its sandbox that were decided the last
	// keep. store.ErrFull when most of them are pending already.
	AddApproval(ctx context.Context, a store.Approval, most, keep int) error
	Approval(ctx context.Context, owner, id string) (store.Approval, error)
	ApprovalOf(ctx context.Context, sandbox, key string) (store.Approval, error)
	Approvals(ctx context.Context, owner, sandbox, agent, status string, limit int) ([]store.Approval, error)
	// DecideApproval writes a decision, unless there is one: then it gives that with
	// store.ErrStale.
	DecideApproval(ctx context.Context, id string, d store.Decision) (store.Approval, error)
	// BeginApproved notes that the call begins; store.ErrStale when it has before.
	BeginApproved(ctx context.Context, id string) error
	CancelApprovals(ctx context.Context, sandbox string, now time.Time) error
	ExpireApprovals(ctx context.Context, now time.Time) error
}

var _ Store = (*store.Store)(nil)

// A sandbox makes approvals as it likes, and the host keeps them: these are the
// bounds of what one can have kept.
const (
	maxShown    = 64 << 10 // bytes of arguments: nobody reads more before deciding
	maxPending  = 256      // of one sandbox
	keepDecided = 500      // of one sandbox
)

// ask has somebody decide about a call, and waits. The program waits in its call
// meanwhile. When the daemon ends the decision stays open: the sandbox presents
// the call again.
func (s *Service) ask(ctx context.Context, sb store.Sandbox, b *box, head guestapi.CallHead, t *Tool, args json.RawMessage, p api.ToolPolicy, rule string, held func(bool)) (store.Approval, error) {
	if s.o.Store == nil {
		return store.Approval{}, errNoStore
	}
	held(true) // before anybody sees it: were the daemon ended in between, the call would be lost and the question stay
	defer held(false)
	a, err := s.pending(ctx, sb, b, head, t, args, p, rule)
	if err != nil {
		return a, err
	}
	b.hold(s.o.Now())
	defer func() { b.free(s.o.Now()) }()
	decided, err := s.wait(ctx, a)
	if err != nil {
		return a, err
	}
	switch decided.Status {
	case api.ApprovalApproved:
		if err := s.o.Store.BeginApproved(ctx, a.ID); errors.Is(err, store.ErrStale) {
			return decided, failed(KindInterrupted, "the call had begun when the server was ended; whether it was carried out is not known")
		} else if err != nil {
			return decided, err
		}
		return decided, nil
	case api.ApprovalDenied:
		e := failed(KindDenied, "somebody who was asked denied it")
		if decided.Reason != "" {
			e.Message += ": " + decided.Reason
		}
		return decided, e
	case api.ApprovalExpired:
		return decided, failed(KindDenied, "nobody decided about it within %v", decided.ExpiresAt.Sub(decided.CreatedAt))
	}
	return decided, failed(KindInterrupted, "nobody waits for it any more")
}

// pending makes the approval, or finds the one that an earlier daemon made.
func (s *Service) pending(ctx context.Context, sb store.Sandbox, b *box, head guestapi.CallHead, t *Tool, args json.RawMessage, p api.ToolPolicy, rule string) (store.Approval, error) {
	if head.Again {
		a, err := s.o.Store.ApprovalOf(ctx, sb.ID, head.Key)
		if err == nil && (a.Tool != t.Name || !bytes.Equal(a.Arguments, args)) {
			// Only the guest says that it is the same call.
			return a, failed(KindInvalid, "it is not the call that somebody was asked about")
		}
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return a, err
		}
		// A copy of a sandbox presents what its original asked: its calls are its own.
	}
	if len(args) > maxShown {
		return store.Approval{}, failed(KindTooLarge, "the arguments have %d bytes of JSON; at most %d are shown to somebody who decides", len(args), maxShown).hint("write larger things to a file or a place that both sides reach")
	}
	now := s.o.Now().UTC().Truncate(time.Millisecond)
	a := store.Approval{Key: head.Key, Owner: sb.Owner, Approval: api.Approval{
		ID: newID("ap-"), SandboxID: sb.ID, AgentID: b.runID(), ContextID: head.Context, ExecutionID: head.ExecutionID, Tool: t.Name, Arguments: args,
		Host: t.Host, Advice: b.noticed(), Rule: rule, Status: api.ApprovalPending, CreatedAt: now,
		ExpiresAt: now.Add(seconds(p.ExpireSeconds, defaultExpiry)),
	}}
	err := s.o.Store.AddApproval(ctx, a, maxPending, keepDecided)
	if errors.Is(err, store.ErrFull) { // perhaps of some whose time is over
		if err = s.o.Store.ExpireApprovals(ctx, now); err == nil {
			err = s.o.Store.AddApproval(ctx, a, maxPending, keepDecided)
		}
	}
	switch {
	case errors.Is(err, store.ErrFull):
		return a, failed(KindRateLimited, "%d calls of this sandbox wait for somebody's decision, the most there may be", maxPending).hint("wait until they are decided, or expire")
	case err != nil:
		return a, err
	}
	s.tell(a.Approval)
	s.log.InfoContext(ctx, "a call waits for approval", "approval", a.ID, "sandbox", sb.ID, "tool", t.Name)
	return a, nil
}

// wait waits for the decision about an approval.
func (s *Service) wait(ctx context.Context, a store.Approval) (store.Approval, error) {
	ch := make(chan api.Approval, 1)
	s.mu.Lock()
	s.waits[a.ID] = ch
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waits, a.ID)
		s.mu.Unlock()
	}()
	// It may have been decided before anybody waited.
	now, err := s.o.Store.Approval(ctx, a.Owner, a.ID)
	if err != nil || now.Status != api.ApprovalPending {
		return now, err
	}
	late := time.NewTimer(a.ExpiresAt.Sub(s.o.Now()))
	defer late.Stop()
	select {
	case <-ch:
	case <-late.C:
		return s.settle(ctx, a, store.Decision{Status: api.ApprovalExpired, At: s.o.Now()})
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), guest.ErrCancelled) {
			_, err := s.settle(context.WithoutCancel(ctx), a, store.Decision{Status: api.ApprovalCancelled, At: s.o.Now()})
			return a, errors.Join(failed(KindInterrupted, "the cell was interrupted"), err)
		}
		return a, failed(KindInterrupted, "the connection to the sandbox broke while the call waited")
	}
	return s.o.Store.Approval(ctx, a.Owner, a.ID)
}

// settle writes a decision; one that was made before counts.
func (s *Service) settle(ctx context.Context, a store.Approval, d store.Decision) (store.Approval, error) {
	decided, err := s.o.Store.DecideApproval(ctx, a.ID, d)
	if errors.Is(err, store.ErrStale) {
		return decided, nil
	}
	if err == nil {
		s.tell(decided.Approval)
	}
	return decided, err
}

// Approvals lists those of an owner, the oldest first. Empty strings are any.
func (s *Service) Approvals(ctx context.Context, owner, sandbox, agent, status string, limit int) ([]api.Approval, error) {
	out := []api.Approval{}
	if s.o.Store == nil {
		return out, nil
	}
	if err := s.o.Store.ExpireApprovals(ctx, s.o.Now()); err != nil {
		return nil, err
	}
	list, err := s.o.Store.Approvals(ctx, owner, sandbox, agent, status, limit)
	for _, a := range list {
		out = append(out, a.Approval)
	}
	return out, err
}

// Approval gives one.
func (s *Service) Approval(ctx context.Context, owner, id string) (api.Approval, error) {
	if err := s.o.Store.ExpireApprovals(ctx, s.o.Now()); err != nil {
		return api.Approval{}, err
	}
	a, err := s.o.Store.Approval(ctx, owner, id)
	if errors.Is(err, store.ErrNotFound) {
		return api.Approval{}, errNoApproval(id)
	}
	return a.Approval, err
}

func errNoApproval(id string) error {
	return fault.New(api.CodeNotFound, "there is no approval %.60q", id).WithHint("pandastack approval ls lists those that wait")
}

const maxReason = 1000

// Decide decides about a call that waits. Of two decisions the first one counts,
// and the other one is told so.
func (s *Service) Decide(ctx context.Context, owner, by, id string, d api.Decision) (api.Approval, error) {
	if len(d.Reason) > maxReason {
		return api.Approval{}, fault.InvalidField("reason", "reason has %d bytes; at most %d are kept", len(d.Reason), maxReason)
	}
	if _, err := s.Approval(ctx, owner, id); err != nil {
		return api.Approval{}, err
	}
	status := api.ApprovalDenied
	if d.Approve {
		status = api.ApprovalApproved
	}
	a, err := s.o.Store.DecideApproval(ctx, id, store.Decision{Status: status, Reason: d.Reason, By: by, At: s.o.Now()})
	if errors.Is(err, store.ErrStale) {
		return a.Approval, fault.New(api.CodeConflict, "the call was decided before: %s", words(a.Approval)).WithHint("a call has one decision")
	}
	if err != nil {
		return a.Approval, err
	}
	s.tell(a.Approval)
	s.log.InfoContext(ctx, "a call was decided", "approval", id, "sandbox", a.SandboxID, "tool", a.Tool, "status", a.Status, "by", by)
	return a.Approval, nil
}

func words(a api.Approval) string {
	if a.By != "" {
		return a.Status + " by " + a.By
	}
	return a.Status
}

// tell wakes whoever waits for a decision, or wants to hear of it.
func (s *Service) tell(a api.Approval) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.waits[a.ID]; ch != nil && a.Status != api.ApprovalPending {
		select {
		case ch <- a:
		default:
		}
	}
	for ch := range s.runs[a.AgentID] {
		select {
		case ch <- a:
		default: // who listens reads the list when it has missed some
		}
	}
}

func (b *box) hold(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds == 0 {
		b.since = now
	}
	b.holds++
}

func (b *box) free(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds--; b.holds == 0 {
		b.held += now.Sub(b.since)
	}
}

func (b *box) runID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run
}

func (b *box) noticed() []api.AgentAdvice {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.advice
}

// Held is how long calls of a sandbox have waited for decisions, all together:
// the deadlines of its cells are later by that.
func (s *Service) Held(id string) time.Duration {
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.held
	if b.holds > 0 {
		held += s.o.Now().Sub(b.since)
	}
	return held
}
