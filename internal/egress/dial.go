package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

const (
	dialTime     = 10 * time.Second // to look up and connect
	dialEach     = 4 * time.Second  // for one of several addresses
	maxAddresses = 8                // of one name that are tried
	hostAddrsAge = 5 * time.Second
)

// target is what a connection is to: a name, or an address that no name stands for.
type target struct {
	name string
	addr netip.Addr
	port uint16
}

func (t target) host() string {
	if t.name != "" {
		return t.name
	}
	return t.addr.String()
}

func (t target) at() hostPort { return hostPort{t.name, t.port} }

func (t target) hostPort() string {
	return net.JoinHostPort(t.host(), strconv.Itoa(int(t.port)))
}

func (t target) decide(p *Policy) decision {
	if t.name != "" {
		return p.name(t.name, t.port)
	}
	return p.address(t.addr, t.port)
}

// refusal is why something is not let out.
type refusal struct {
	rule   *rule
	reason string     // also told inside, so without addresses that names have
	addr   netip.Addr // that a name has, for the audit
	limit  string     // that was met; "" where there is none
}

func (r *refusal) Error() string { return r.reason }

// dial connects to a target whose connection the policy allows: to one of the
// addresses that its name has now and that are allowed themselves. The error is
// a *refusal where none is.
func (e *Engine) dial(ctx context.Context, p *Policy, t target) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	proxy, err := e.proxyFor("https", t)
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	addrs, err := e.lookup(ctx, p, t)
	if proxy != nil {
		// Where the owner's proxy is the way out, it may know names that this
		// host does not. What this host knows to be closed stays closed.
		if notFound := (*net.DNSError)(nil); err != nil && !errors.As(err, &notFound) {
			return nil, netip.AddrPort{}, err
		}
		conn, err := e.connectThrough(ctx, proxy, t.hostPort())
		return conn, netip.AddrPort{}, err
	}
	if err != nil {
		return nil, netip.AddrPort{}, err
	}
	var failures []error
	for i, addr := range addrs {
		at := netip.AddrPortFrom(addr, t.port)
		each, stop := ctx, context.CancelFunc(func() {})
		if i < len(addrs)-1 {
			each, stop = context.WithTimeout(ctx, dialEach)
		}
		conn, err := e.opt.Dial(each, "tcp", at.String())
		stop()
		if err == nil {
			return conn, at, nil
		}
		failures = append(failures, err)
	}
	return nil, netip.AddrPort{}, errors.Join(failures...)
}

// lookup gives the addresses of a target that may be dialled, at least one.
func (e *Engine) lookup(ctx context.Context, p *Policy, t target) ([]netip.Addr, error) {
	addrs := []netip.Addr{t.addr}
	if t.name != "" {
		var err error
		// The final dot keeps the host's search list out of it.
		if addrs, err = e.opt.Resolver.LookupNetIP(ctx, "ip", t.name+"."); err != nil {
			return nil, fmt.Errorf("looking up %s: %w", t.name, err)
		}
	}
	var out []netip.Addr
	no := &refusal{reason: t.name + " has no address"}
	for _, addr := range addrs {
		addr = addr.Unmap().WithZone("")
		if r := e.permits(p, t, netip.AddrPortFrom(addr, t.port)); r != nil {
			no = r
		} else if len(out) < maxAddresses {
			out = append(out, addr)
		}
	}
	if len(out) == 0 {
		return nil, no
	}
	return out, nil
}

// permits says whether an address may be dialled for a target; nil: it may.
func (e *Engine) permits(p *Policy, t target, at netip.AddrPort) *refusal {
	d := p.dial(at.Addr(), at.Port())
	operators := p.ofOperator(t, at.Addr())
	if !d.allowed && (d.rule != nil || !operators) {
		return &refusal{rule: d.rule, reason: d.reason, addr: at.Addr()}
	}
	ofHost, err := e.ofHost(at.Addr())
	if err != nil {
		return &refusal{reason: err.Error()}
	}
	for _, own := range e.opt.Own() {
		if addr := own.Addr().Unmap(); own.Port() == at.Port() && (addr == at.Addr() || addr.IsUnspecified() && (ofHost || at.Addr().IsLoopback())) {
			return &refusal{reason: "the sandboxes' own server is never reached from inside", addr: at.Addr()}
		}
	}
	if ofHost && !operators && !at.Addr().IsLoopback() && (d.rule == nil || !d.rule.prefix.IsSingleIP()) {
		return &refusal{reason: "it is an address of the machine that runs the sandboxes: closed unless a rule names just it", addr: at.Addr()}
	}
	return nil
}

// ofHost says whether an address is one of this machine.
func (e *Engine) ofHost(addr netip.Addr) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.now(); e.host == nil || now.Sub(e.hostAge) > hostAddrsAge {
		list, err := e.opt.HostAddrs()
		if err != nil {
			return false, err
		}
		e.host, e.hostAge = make(map[netip.Addr]bool, len(list)), now
		for _, a := range list {
			e.host[a.Unmap().WithZone("")] = true
		}
	}
	return e.host[addr], nil
}
