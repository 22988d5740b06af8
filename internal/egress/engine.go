package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Options is what an Engine works with. The zero value is usable: the host's
// resolver, routes and roots, no proxy, no interception, no audit.
type Options struct {
	// Resolver looks names up for sandboxes, with a final dot; default: the
	// host's, which is its hosts file and then DNS.
	Resolver interface {
		LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	}
	// Dial connects to an address that was decided on; default: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Own gives the addresses that the daemon listens at. They are never
	// reached, whatever a policy says.
	Own func() []netip.AddrPort
	// HostAddrs gives the addresses of this machine, which are as closed as
	// private ones; default: those of its interfaces.
	HostAddrs func() ([]netip.Addr, error)
	// Proxy is the upstream proxy of the host's owner; nil: none.
	Proxy *httpproxy.Config
	// Roots are what the certificates of hosts are verified with when TLS is
	// opened; nil: the system's.
	Roots *x509.CertPool
	// CA signs for hosts whose TLS is opened; nil: policies that need that are
	// refused as unsupported.
	CA *CA
	// Secret gives the value of a secret that the server keeps, for every
	// request anew.
	Secret func(ctx context.Context, workspace, ref string) (string, error)
	// Audit takes the line of each decision. It must not wait.
	Audit func(api.NetworkEvent)
	// Limited is told of a limit that a sandbox has met, once a minute for each.
	// It must not wait.
	Limited func(Identity, Hit)
	// IPv6 answers AAAA questions with made-up addresses, too: the stack has
	// to carry IPv6.
	IPv6 bool
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Engine carries what leaves the sandboxes of one daemon.
type Engine struct {
	opt   Options
	proxy func(*url.URL) (*url.URL, error) // nil: none
	now   func() time.Time
	ipv6  bool

	mu      sync.Mutex
	host    map[netip.Addr]bool // addresses of this machine
	hostAge time.Time
}

// New makes an Engine.
func New(opt Options) *Engine {
	if opt.Resolver == nil {
		opt.Resolver = hostResolver{}
	}
	if opt.Dial == nil {
		opt.Dial = (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext
	}
	if opt.Own == nil {
		opt.Own = func() []netip.AddrPort { return nil }
	}
	if opt.HostAddrs == nil {
		opt.HostAddrs = interfaceAddrs
	}
	if opt.Audit == nil {
		opt.Audit = func(api.NetworkEvent) {}
	}
	if opt.Limited == nil {
		opt.Limited = func(Identity, Hit) {}
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	e := &Engine{opt: opt, now: opt.Now, ipv6: opt.IPv6}
	if opt.Proxy != nil {
		e.proxy = opt.Proxy.ProxyFunc()
	}
	return e
}

// Identity says whose traffic it is.
type Identity struct {
	Sandbox   string
	Workspace string
}

// State is what a sandbox's egress remembers and its snapshots keep: programs
// inside hold addresses that were made up for names.
type State struct {
	Names []string `json:"names,omitempty"` // in the order of their addresses
	Bytes int64    `json:"bytes,omitempty"` // used of the budget; leave it out for a copy that has a budget of its own
}

// Sandbox is the Gate of one sandbox.
type Sandbox struct {
	engine    *Engine
	id        Identity
	policy    atomic.Pointer[Policy]
	addresses *addresses
	meter     *meter
	audit     *audit
	questions *rate.Limiter
	hits      hits

	mu     sync.Mutex
	closed bool
	live   map[*flow]struct{}
}

var _ Gate = (*Sandbox)(nil)

// How many DNS questions a sandbox may ask.
const (
	questionsPerSecond = 1000
	questionsAtOnce    = 4000
)

// Open makes the Gate of a sandbox. state is nil for a new one.
func (e *Engine) Open(id Identity, p *Policy, state *State) (*Sandbox, error) {
	if err := e.supports(p); err != nil {
		return nil, err
	}
	if state == nil {
		state = &State{}
	}
	s := &Sandbox{engine: e, id: id, addresses: newAddresses(state.Names), meter: newMeter(p, state.Bytes, e.now()), audit: newAudit(e.opt.Audit),
		questions: rate.NewLimiter(questionsPerSecond, questionsAtOnce), live: map[*flow]struct{}{}}
	s.policy.Store(p)
	return s, nil
}

func (e *Engine) supports(p *Policy) error {
	if p.inspects && e.opt.CA == nil {
		return fault.New(api.CodeUnsupported, "secrets, and rules with methods or paths, need a certificate authority, and this server has none")
	}
	for at, sec := range p.secrets {
		if sec.ref != "" && e.opt.Secret == nil {
			return fault.InvalidField("secrets."+at.host, "the secret for %s: this server keeps no secrets", at.host).WithHint("give its value instead of a ref")
		}
	}
	return nil
}

// SetPolicy changes the policy from now on. Connections that it would not have
// allowed in the same way are cut.
func (s *Sandbox) SetPolicy(p *Policy) error {
	if err := s.engine.supports(p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.policy.Store(p)
	s.meter.set(p, s.engine.now())
	for f := range s.live {
		if !f.holds(p) {
			f.cut("the policy was changed")
		}
	}
	return nil
}

// State gives what is to be kept with a snapshot.
func (s *Sandbox) State() State {
	return State{Names: s.addresses.list(), Bytes: s.meter.used.Load()}
}

// Usage is what a sandbox's network uses.
type Usage struct {
	Bytes int64 // since it was opened, with what State told, both directions
	Flows int   // open now
}

// Usage says what is used.
func (s *Sandbox) Usage() Usage {
	return Usage{Bytes: s.meter.used.Load(), Flows: int(s.meter.open.Load())}
}

// Reset cuts all connections; new ones are decided as before.
func (s *Sandbox) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.live {
		f.cut("the network was reset")
	}
}

// Close cuts all connections and admits no more.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	s.closed = true
	for f := range s.live {
		f.cut("the sandbox ended")
	}
	s.mu.Unlock()
	a := s.attempt("audit")
	a.event.Verdict, a.event.Reason = api.NetworkRefused, "refusals that came too fast to be written"
	s.audit.flush(a.event)
	return nil
}

// Refused implements Gate.
func (s *Sandbox) Refused(proto string, dst netip.AddrPort, why string) {
	a := s.attempt(proto)
	s.target(a, dst)
	switch {
	case why == TooMany || why == TooManyOfAll:
		s.limited(limitFlows, why)
	case why == "" && proto == "udp" && dst.Port() == 443:
		why = "QUIC is refused, so that clients fall back to TCP"
	}
	a.refuse(nil, orElse(why, "only TCP and DNS leave a sandbox"))
}

// enter decides a flow and counts it in, unless the sandbox is closed. It gives
// the policy that decided.
func (s *Sandbox) enter(f *flow) (*Policy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the sandbox ended")
	}
	p := s.policy.Load()
	f.decide(p)
	s.live[f] = struct{}{}
	return p, nil
}

func (s *Sandbox) leave(f *flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, f)
}

// interfaceAddrs gives the addresses of this machine.
func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("this machine's addresses: %w", err)
	}
	var out []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}
