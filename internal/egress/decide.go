package egress

import (
	"net/netip"
	"strings"

	"github.com/pandastack/pandastack/api"
)

// decision is what a policy says of a connection.
type decision struct {
	allowed bool
	rule    *rule  // that decided; nil: none named it
	reason  string // why not, where no rule says so

	// When inspect is set, each request is decided by these.
	inspect bool
	whole   bool // what no deny rule is about is allowed
	allows  []*rule
	denies  []*rule
}

func (d decision) text() string {
	if d.rule == nil {
		return ""
	}
	return d.rule.text
}

const noRule = "no rule allows it"

// name decides a connection to a host by its name.
func (p *Policy) name(name string, port uint16) decision {
	d := decision{reason: noRule}
	denied := false
	p.deny.name(name, port, func(r *rule) bool {
		if r.inspects() {
			d.denies = append(d.denies, r)
			return true
		}
		d.rule, d.reason, denied = r, "a rule denies it", true
		return false
	})
	if denied {
		return decision{rule: d.rule, reason: d.reason}
	}
	if p.mode == api.NetworkOpen {
		d.allowed, d.whole = true, true
	}
	p.allow.name(name, port, func(r *rule) bool {
		d.allowed = true
		if r.inspects() {
			d.allows = append(d.allows, r)
			return true
		}
		d.rule, d.whole = r, true
		return false
	})
	if d.whole {
		d.allows = nil
	}
	d.inspect = d.allowed && (len(d.denies) > 0 || !d.whole)
	if d.allowed {
		d.reason = ""
	}
	return d
}

// request decides an HTTP request on a connection that was allowed.
func (d decision) request(method, path string) decision {
	for _, r := range d.denies {
		if r.request(method, path) {
			return decision{rule: r, reason: "a rule denies " + method + " " + path}
		}
	}
	if d.whole {
		return decision{allowed: true, rule: d.rule}
	}
	for _, r := range d.allows {
		if r.request(method, path) {
			return decision{allowed: true, rule: r}
		}
	}
	return decision{reason: "no rule allows " + method + " " + path}
}

// resolves says whether a name is answered: whether some port of it may be open.
func (p *Policy) resolves(name string) decision {
	var denied *rule
	p.deny.entries(name, func(e *byPort) bool {
		return e.all(func(r *rule) bool {
			if len(r.ports) == 0 && !r.inspects() {
				denied = r
			}
			return denied == nil
		})
	})
	if denied != nil {
		return decision{rule: denied, reason: "a rule denies it"}
	}
	d := decision{allowed: p.mode == api.NetworkOpen, reason: noRule}
	p.allow.entries(name, func(e *byPort) bool {
		return e.all(func(r *rule) bool {
			d.allowed, d.rule, d.reason = true, r, ""
			return false
		})
	})
	return d
}

// address decides a connection to an address that no name stands for.
func (p *Policy) address(addr netip.Addr, port uint16) decision {
	d := p.dial(addr, port)
	if !d.allowed || d.rule != nil {
		return d
	}
	switch {
	case p.mode != api.NetworkOpen:
		return decision{reason: "no rule allows it: an address needs a CIDR rule"}
	case p.denyNames:
		return decision{reason: "no rule allows it: while names are denied, an address needs a CIDR rule"}
	}
	return d
}

// dial decides an address that a name, whose connection is allowed, stands for.
func (p *Policy) dial(addr netip.Addr, port uint16) decision {
	var deny, allow *rule
	p.deny.address(addr, port, func(r *rule) bool { deny = r; return false })
	if deny != nil {
		return decision{rule: deny, reason: "a rule denies its address"}
	}
	where, isClosed := closed(addr)
	p.allow.address(addr, port, func(r *rule) bool {
		if !isClosed || where.contains(r.prefix) {
			allow = r
		}
		return allow == nil
	})
	switch {
	case addr.IsUnspecified():
		return decision{reason: "the unspecified address is never reached"}
	case isClosed && allow == nil:
		return decision{reason: where.what + " addresses are closed unless a rule names them by CIDR"}
	}
	return decision{allowed: true, rule: allow}
}

func (c closedRange) contains(p netip.Prefix) bool {
	return p.Bits() >= c.prefix.Bits() && c.prefix.Contains(p.Addr())
}

// ambiguous says whether servers differ in what they make of a path, after
// %-escapes were undone, so that rules about paths cannot be relied on.
func ambiguous(path string) bool {
	return strings.Contains(path, "//") || strings.ContainsAny(path, "\\\x00;") ||
		strings.HasSuffix(path, "/.") || strings.HasSuffix(path, "/..") || strings.Contains(path, "/./") || strings.Contains(path, "/../")
}
