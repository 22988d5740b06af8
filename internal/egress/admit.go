package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// flow is a connection out of a sandbox.
type flow struct {
	s *Sandbox
	a *attempt
	t target

	ctx    context.Context //nolint:containedctx // the flow's own life
	cancel context.CancelCauseFunc

	decision decision
	opened   bool     // TLS is opened, and only HTTP goes through
	refused  *refusal // it is only answered that it is refused
	ended    sync.Once

	upMu  sync.Mutex
	up    net.Conn       // nil: dialled when a request comes
	first bool           // up was handed out
	at    netip.AddrPort // what was dialled last
}

var _ Flow = (*flow)(nil)

// target finds what an address stands for and notes it.
func (s *Sandbox) target(a *attempt, dst netip.AddrPort) (t target, known bool) {
	t = target{addr: dst.Addr().Unmap().WithZone(""), port: dst.Port()}
	a.event.Port = int(t.port)
	name, made := s.addresses.name(t.addr)
	if name != "" {
		t.name, a.event.Name = name, name
		return t, true
	}
	a.event.Address = t.addr.String()
	return t, !made
}

// Admit implements Gate. It dials, so that whether the host answers decides what
// the program inside sees of its connect.
func (s *Sandbox) Admit(ctx context.Context, dst netip.AddrPort) (Flow, error) {
	f := &flow{s: s, a: s.attempt("tcp")}
	f.ctx, f.cancel = context.WithCancelCause(context.Background())
	var known bool
	f.t, known = s.target(f.a, dst)
	open := s.meter.open.Add(1)
	switch {
	case s.meter.spent():
		return f.no(&refusal{reason: errBudget.Error(), limit: limitBytes})
	case open > s.meter.flows.Load():
		return f.no(&refusal{reason: TooMany, limit: limitFlows})
	case !s.meter.starts.AllowN(s.engine.now(), 1):
		return f.no(&refusal{reason: "too many connections a second", limit: limitFlowRate})
	case !known:
		return f.no(&refusal{reason: "no name has that address here"})
	}
	p, err := s.enter(f)
	if err != nil {
		return f.no(err)
	}
	if !f.decision.allowed {
		return f.no(&refusal{rule: f.decision.rule, reason: f.decision.reason})
	}
	if f.opened {
		return f, nil
	}
	if f.t.port == 80 {
		proxy, err := s.engine.proxyFor("http", f.t)
		if err != nil {
			return f.no(err)
		}
		if proxy != nil { // it is asked for requests, not for a connection
			return f, nil
		}
	}
	if err := f.dial(ctx, p); err != nil {
		return f.no(err)
	}
	if err := context.Cause(f.ctx); err != nil { // cut meanwhile
		return f.no(err)
	}
	if !f.holds(s.policy.Load()) { // it was changed before what was dialled was known
		return f.no(&refusal{reason: "the policy was changed"})
	}
	return f, nil
}

// decide sets what a policy says of the flow.
func (f *flow) decide(p *Policy) {
	f.decision = f.t.decide(p)
	f.opened = p.opens(f.t.at()) || f.decision.inspect
}

// dial connects the flow to its target.
func (f *flow) dial(ctx context.Context, p *Policy) error {
	conn, at, err := f.s.engine.dial(ctx, p, f.t)
	if err != nil {
		return err
	}
	f.upMu.Lock()
	f.up, f.at = conn, at
	f.upMu.Unlock()
	f.a.dialled(at)
	return nil
}

// upstream is the flow's own connection to its target, nil for none.
func (f *flow) upstream() net.Conn {
	f.upMu.Lock()
	defer f.upMu.Unlock()
	return f.up
}

// holds says whether a policy would have the flow as it is.
func (f *flow) holds(p *Policy) bool {
	d := f.t.decide(p)
	if !d.allowed || (p.opens(f.t.at()) || d.inspect) != f.opened {
		return false
	}
	f.upMu.Lock()
	at := f.at
	f.upMu.Unlock()
	return !at.IsValid() || f.s.engine.permits(p, f.t, at) == nil
}

// no ends a flow that is not let out. What is refused on the port of plain HTTP
// is told why; everything else is reset.
func (f *flow) no(err error) (Flow, error) {
	var r *refusal
	if !errors.As(err, &r) {
		f.a.fail(f.decision.rule, brief(err))
		f.end()
		return nil, err
	}
	f.a.refusedAt(r)
	if f.t.port == 80 && f.s.meter.open.Load() <= f.s.meter.flows.Load() {
		f.refused = r
		return f, nil
	}
	f.a.turnDown(r)
	f.end()
	return nil, r
}

// cut ends a flow from outside.
func (f *flow) cut(why string) { f.cancel(errors.New(why)) }

// Close implements Flow.
func (f *flow) Close() error {
	if f.refused != nil {
		f.a.turnDown(f.refused)
	}
	f.a.fail(f.decision.rule, "the connection did not come about")
	f.end()
	return nil
}

// end gives back what the flow holds.
func (f *flow) end() {
	f.ended.Do(func() {
		f.s.leave(f)
		f.s.meter.open.Add(-1)
		f.cancel(net.ErrClosed)
		if up := f.upstream(); up != nil {
			_ = up.Close()
		}
	})
}

const headTime = 30 * time.Second // for the first bytes where they decide
