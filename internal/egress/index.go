package egress

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"
)

// index finds the rules about a name or an address without looking at the others.
type index struct {
	exact map[string]*byPort
	below map[string]*byPort // by the name that they are below; "" for *
	nets  bart.Table[*byPort]
}

type byPort struct {
	any  []*rule
	port map[uint16][]*rule
}

func newIndex(rules []*rule) *index {
	x := &index{exact: map[string]*byPort{}, below: map[string]*byPort{}}
	for _, r := range rules {
		x.entry(r).add(r)
	}
	return x
}

func (x *index) entry(r *rule) *byPort {
	if r.prefix.IsValid() {
		e, ok := x.nets.Get(r.prefix)
		if !ok {
			e = &byPort{}
			x.nets.Insert(r.prefix, e)
		}
		return e
	}
	m := x.exact
	if r.below {
		m = x.below
	}
	if m[r.host] == nil {
		m[r.host] = &byPort{}
	}
	return m[r.host]
}

func (e *byPort) add(r *rule) {
	if len(r.ports) == 0 {
		e.any = append(e.any, r)
		return
	}
	if e.port == nil {
		e.port = map[uint16][]*rule{}
	}
	for _, p := range r.ports {
		e.port[p] = append(e.port[p], r)
	}
}

// each calls yield with the rules about a port until it says false.
func (e *byPort) each(port uint16, yield func(*rule) bool) bool {
	if e == nil {
		return true
	}
	for _, list := range [2][]*rule{e.port[port], e.any} {
		for _, r := range list {
			if !yield(r) {
				return false
			}
		}
	}
	return true
}

// all calls yield with the rules about any port.
func (e *byPort) all(yield func(*rule) bool) bool {
	if e == nil {
		return true
	}
	for _, r := range e.any {
		if !yield(r) {
			return false
		}
	}
	for _, list := range e.port {
		for _, r := range list {
			if !yield(r) {
				return false
			}
		}
	}
	return true
}

// entries calls yield with what is known about a name, the narrowest first.
func (x *index) entries(name string, yield func(*byPort) bool) {
	if !yield(x.exact[name]) {
		return
	}
	for rest := name; ; {
		_, parent, more := strings.Cut(rest, ".")
		if !more {
			break
		}
		if !yield(x.below[parent]) {
			return
		}
		rest = parent
	}
	yield(x.below[""])
}

// around calls yield with the rules that are about all names or addresses that
// another rule is about.
func (x *index) around(a *rule, yield func(*rule) bool) {
	if a.prefix.IsValid() {
		for _, e := range x.nets.Supernets(a.prefix) {
			if !e.all(yield) {
				return
			}
		}
		return
	}
	if a.below && a.host == "" {
		x.below[""].all(yield)
		return
	}
	if a.below && !x.below[a.host].all(yield) {
		return
	}
	x.entries(a.host, func(e *byPort) bool {
		if a.below && e == x.exact[a.host] { // the name itself, which a is not about
			return true
		}
		return e.all(yield)
	})
}

// name calls yield with the rules about a name and port, the narrowest first.
func (x *index) name(name string, port uint16, yield func(*rule) bool) {
	x.entries(name, func(e *byPort) bool { return e.each(port, yield) })
}

// address calls yield with the rules about an address and port, the narrowest first.
func (x *index) address(addr netip.Addr, port uint16, yield func(*rule) bool) {
	for _, e := range x.nets.Supernets(netip.PrefixFrom(addr, addr.BitLen())) {
		if !e.each(port, yield) {
			return
		}
	}
}
