package egress

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// MaxRules is how many rules a policy may have, named policies included.
const MaxRules = 10_000

// MaxFlows is how many connections a sandbox may have at once, whatever its
// policy says: so many the stack carries.
const MaxFlows = 1024

// The limits of a policy that names none.
const (
	DefaultFlows    = MaxFlows
	DefaultFlowRate = 1000
)

// Policy is a network policy that was checked, with the secrets that go with
// it. It does not change, and may be used by any number of goroutines.
type Policy struct {
	mode        api.NetworkMode
	allow, deny *index
	denyNames   bool // some deny rule names a host
	secrets     map[hostPort]secret
	sources     map[hostPort][]Source
	inspects    bool // some traffic has to be opened

	rate, bytes     int64 // 0: no limit
	flows, flowRate int
}

type hostPort struct {
	host string
	port uint16
}

// Compile checks a policy and its secrets. named are the server's own policies.
// Errors are of kind invalid and name the rule at fault.
func Compile(p api.NetworkPolicy, secrets api.Secrets, named map[string]api.NetworkPolicy) (*Policy, error) {
	c := &compiler{}
	out := &Policy{}
	if err := c.take("network", p, out); err != nil {
		return nil, err
	}
	if p.Policy != "" {
		base, ok := named[p.Policy]
		if !ok {
			return nil, fault.InvalidField("network.policy", "there is no network policy %q", p.Policy).WithHint("the server has %s", listed(slices.Sorted(maps.Keys(named))))
		}
		if base.Policy != "" {
			return nil, fault.InvalidField("network.policy", "the network policy %q names another one", p.Policy)
		}
		if err := c.take("policy "+p.Policy, base, out); err != nil {
			return nil, err
		}
	}
	if len(c.allow)+len(c.deny) > MaxRules {
		return nil, fault.InvalidField("network.allow", "%d rules are more than the %d that a policy may have", len(c.allow)+len(c.deny), MaxRules)
	}
	if out.mode == "" {
		out.mode = api.NetworkDeny
		if len(c.allow) > 0 {
			out.mode = api.NetworkAllowList
		}
	}
	if out.flows > MaxFlows {
		return nil, fault.InvalidField("network.flows", "network.flows is %d, and at most %d connections are carried at once", out.flows, MaxFlows)
	}
	if out.flows == 0 {
		out.flows = DefaultFlows
	}
	if out.flowRate == 0 {
		out.flowRate = DefaultFlowRate
	}
	out.allow, out.deny = newIndex(c.allow), newIndex(c.deny)
	if err := c.contradictions(out); err != nil {
		return nil, err
	}
	if err := c.metadata(out); err != nil {
		return nil, err
	}
	for _, r := range c.deny {
		out.denyNames = out.denyNames || !r.prefix.IsValid()
	}
	if err := out.takeSecrets(secrets); err != nil {
		return nil, err
	}
	inspected := func(r *rule) bool { return r.inspects() }
	out.inspects = len(secrets) > 0 || slices.ContainsFunc(c.allow, inspected) || slices.ContainsFunc(c.deny, inspected)
	return out, nil
}

// Inspects says whether the policy opens TLS to some host, so that the sandbox
// must trust the engine's CA.
func (p *Policy) Inspects() bool { return p.inspects }

// Mode says what is done with what no rule names.
func (p *Policy) Mode() api.NetworkMode { return p.mode }

type compiler struct {
	allow, deny []*rule
}

// take adds what a policy holds to out, where nothing is set yet.
func (c *compiler) take(where string, p api.NetworkPolicy, out *Policy) error {
	if len(p.Unknown) > 0 {
		return fault.InvalidField(where+"."+p.Unknown[0], "%s: there is no field %q", where, p.Unknown[0]).
			WithHint("a policy has mode, allow, deny, policy, rate, flow_rate, flows, bytes")
	}
	switch p.Mode {
	case "", api.NetworkDeny, api.NetworkAllowList, api.NetworkOpen:
	default:
		return fault.InvalidField(where+".mode", "%s.mode is %q", where, p.Mode).WithHint("it is deny, allow-list or open")
	}
	for name, n := range map[string]int64{"rate": p.Rate, "bytes": p.Bytes, "flows": int64(p.Flows), "flow_rate": int64(p.FlowRate)} {
		if n < 0 {
			return fault.InvalidField(where+"."+name, "%s.%s is %d, and must not be negative", where, name, n)
		}
	}
	if len(p.Allow)+len(p.Deny) > MaxRules {
		return fault.InvalidField(where+".allow", "%d rules are more than the %d that a policy may have", len(p.Allow)+len(p.Deny), MaxRules)
	}
	for _, part := range []struct {
		name string
		in   []api.NetworkRule
		to   *[]*rule
	}{{"allow", p.Allow, &c.allow}, {"deny", p.Deny, &c.deny}} {
		for i, in := range part.in {
			r, err := parseRule(fmt.Sprintf("%s.%s[%d]", where, part.name, i), in)
			if err != nil {
				return err
			}
			*part.to = append(*part.to, r)
		}
	}
	out.mode = orElse(out.mode, p.Mode)
	out.rate = orElse(out.rate, p.Rate)
	out.bytes = orElse(out.bytes, p.Bytes)
	out.flows = orElse(out.flows, p.Flows)
	out.flowRate = orElse(out.flowRate, p.FlowRate)
	return nil
}

func orElse[T comparable](a, b T) T {
	var zero T
	if a != zero {
		return a
	}
	return b
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return fmt.Sprintf("%q", names)
}

// contradictions refuses rules that can never hold beside others or the mode.
func (c *compiler) contradictions(p *Policy) error {
	bad := func(r *rule, format string, args ...any) *fault.Error {
		return fault.InvalidField(r.field, "rule %s: %s", r.text, fmt.Sprintf(format, args...))
	}
	switch {
	case p.mode == api.NetworkDeny && len(c.allow) > 0:
		return bad(c.allow[0], "mode deny allows nothing").WithHint("set mode to allow-list, or leave it out")
	case p.mode == api.NetworkDeny && len(c.deny) > 0:
		return bad(c.deny[0], "mode deny closes everything already").WithHint("set mode to open or allow-list, or leave the rule out")
	}
	for _, r := range c.deny {
		if p.mode == api.NetworkOpen && r.below && r.host == "" && len(r.ports) == 0 && !r.inspects() {
			return bad(r, "it leaves nothing of mode open").WithHint("set mode to deny")
		}
	}
	for _, a := range c.allow {
		if p.mode == api.NetworkOpen && a.inspects() {
			return bad(a, "its methods and paths would not hold: mode open allows the host anyway").WithHint("deny what is to be closed, or set mode to allow-list")
		}
		if w := p.wider(a); w != nil {
			return bad(a, "its methods and paths would not hold: the rule %s (%s) allows the host anyway", w.text, w.field).WithHint("make that rule narrower, or deny what is to be closed")
		}
		if d := p.denied(a); d != nil {
			return bad(a, "it contradicts the deny rule %s (%s), which wins and leaves nothing of it", d.text, d.field).WithHint("take one of them out, or make the deny rule narrower")
		}
	}
	return nil
}

// denied gives a deny rule that leaves nothing of an allow rule.
func (p *Policy) denied(a *rule) (found *rule) {
	p.deny.around(a, func(r *rule) bool {
		if r.covers(a) {
			found = r
		}
		return found == nil
	})
	return found
}

// wider gives an allow rule that lets everything through at a port of one that
// names methods or paths.
func (p *Policy) wider(a *rule) (found *rule) {
	if !a.inspects() {
		return nil
	}
	p.allow.around(a, func(r *rule) bool {
		if !r.inspects() && (len(r.ports) == 0 || slices.ContainsFunc(a.ports, func(p uint16) bool { return slices.Contains(r.ports, p) })) {
			found = r
		}
		return found == nil
	})
	return found
}

// metadata refuses rules that would open a metadata service by its name.
func (c *compiler) metadata(p *Policy) error {
	for _, name := range slices.Sorted(maps.Keys(metadataNames)) {
		addr := netip.MustParseAddr(metadataNames[name])
		var opened *rule
		p.allow.entries(name, func(e *byPort) bool {
			return e.all(func(r *rule) bool {
				if r.host != "" {
					opened = r
				}
				return opened == nil
			})
		})
		if opened == nil {
			continue
		}
		if _, byAddress := p.allow.nets.Get(netip.PrefixFrom(addr, addr.BitLen())); !byAddress {
			return fault.InvalidField(opened.field, "rule %s: it would open the metadata service of the host's cloud (%s), which hands out credentials", opened.text, name).
				WithHint("name narrower hosts; if you mean it, allow %s as well", addr)
		}
	}
	return nil
}
