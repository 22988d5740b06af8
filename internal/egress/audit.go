package egress

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
)

// How many refusals of one sandbox are written; the others are counted. What is
// allowed is always written: it is bounded by flow_rate.
const (
	refusalsPerSecond = 50
	refusalsAtOnce    = 200
)

// audit writes the lines of one sandbox.
type audit struct {
	write func(api.NetworkEvent)

	mu         sync.Mutex
	refusals   *rate.Limiter
	suppressed int64
}

func newAudit(write func(api.NetworkEvent)) *audit {
	return &audit{write: write, refusals: rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)}
}

func (a *audit) note(e api.NetworkEvent, now time.Time) {
	a.mu.Lock()
	if e.Verdict == api.NetworkRefused && !a.refusals.AllowN(now, 1) {
		a.suppressed++
		a.mu.Unlock()
		return
	}
	e.Suppressed, a.suppressed = a.suppressed, 0
	a.mu.Unlock()
	a.write(e)
}

// flush writes how many refusals were not written and have no line to be told in.
func (a *audit) flush(e api.NetworkEvent) {
	a.mu.Lock()
	e.Suppressed, a.suppressed = a.suppressed, 0
	a.mu.Unlock()
	if e.Suppressed > 0 {
		a.write(e)
	}
}

// attempt is a line of the audit that is being put together. It ends once.
type attempt struct {
	s       *Sandbox
	event   api.NetworkEvent
	out, in atomic.Int64
	once    sync.Once
}

// attempt begins a line.
func (s *Sandbox) attempt(protocol string) *attempt {
	return &attempt{s: s, event: api.NetworkEvent{Time: s.engine.now(), SandboxID: s.id.Sandbox, Workspace: s.id.Workspace, Protocol: protocol}}
}

// about copies what is known of a connection to the line of one of its requests.
func (a *attempt) about(of *attempt) {
	a.event.Name, a.event.Address, a.event.Port, a.event.ECH = of.event.Name, of.event.Address, of.event.Port, of.event.ECH
}

func (a *attempt) dialled(to netip.AddrPort) {
	if to.IsValid() {
		a.event.Address = to.Addr().String()
	}
}

func (a *attempt) refusedAt(r *refusal) {
	if r.addr.IsValid() {
		a.event.Address = r.addr.String()
	}
}

func (a *attempt) refuse(r *rule, reason string) { a.end(api.NetworkRefused, r, reason) }

// turnDown ends a line with a refusal, and tells of the limit that is behind it.
func (a *attempt) turnDown(r *refusal) {
	a.refuse(r.rule, r.reason)
	if r.limit != "" {
		a.s.limited(r.limit, r.reason)
	}
}

func (a *attempt) fail(r *rule, reason string) { a.end(api.NetworkFailed, r, reason) }
func (a *attempt) allow(r *rule)               { a.end(api.NetworkAllowed, r, "") }

func (a *attempt) end(verdict api.NetworkVerdict, r *rule, reason string) {
	a.once.Do(func() {
		now := a.s.engine.now()
		e := a.event
		e.Verdict, e.Reason = verdict, reason
		if r != nil {
			e.Rule = r.text
		}
		e.BytesOut, e.BytesIn = a.out.Load(), a.in.Load()
		e.DurationMS = float64(now.Sub(e.Time)) / float64(time.Millisecond)
		a.s.audit.note(e, now)
	})
}
