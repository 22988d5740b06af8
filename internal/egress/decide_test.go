package egress

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// tenThousand is a policy of as many rules as there may be, of every kind.
func tenThousand(t testing.TB) *Policy {
	t.Helper()
	p := api.NetworkPolicy{Mode: api.NetworkAllowList}
	for i := range MaxRules / 5 {
		p.Allow = append(p.Allow,
			api.Rule(fmt.Sprintf("host%d.example", i)),
			api.Rule(fmt.Sprintf("*.zone%d.example:443", i)),
			api.Rule(fmt.Sprintf("20.%d.%d.0/24", i/256, i%256)),
			api.NetworkRule{Host: fmt.Sprintf("api%d.example", i), Methods: []string{"GET"}, Paths: []string{"/v1", "/v2"}})
		p.Deny = append(p.Deny, api.Rule(fmt.Sprintf("closed.zone%d.example", i)))
	}
	c, err := Compile(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTenThousandRules(t *testing.T) {
	p := tenThousand(t)
	for _, c := range []struct {
		name    string
		port    uint16
		allowed bool
		rule    string
	}{
		{"host1999.example", 22, true, "host1999.example"},
		{"sub.host1999.example", 22, false, ""},
		{"a.b.zone7.example", 443, true, "*.zone7.example:443"},
		{"a.b.zone7.example", 80, false, ""},
		{"zone7.example", 443, false, ""},
		{"closed.zone7.example", 443, false, "closed.zone7.example"},
		{"open.closed.zone7.example", 443, true, "*.zone7.example:443"},
		{"host2000.example", 22, false, ""},
	} {
		if d := p.name(c.name, c.port); d.allowed != c.allowed || d.text() != c.rule {
			t.Errorf("%s:%d: allowed %v by %q, want %v by %q", c.name, c.port, d.allowed, d.text(), c.allowed, c.rule)
		}
	}
	d := p.name("api1.example", 443)
	if !d.allowed || !d.inspect || !d.request("GET", "/v2/x").allowed || d.request("GET", "/v3").allowed || d.request("PUT", "/v1").allowed {
		t.Errorf("api1.example is decided as %+v", d)
	}
	if d := p.address(netip.MustParseAddr("20.7.207.9"), 443); !d.allowed {
		t.Errorf("20.7.207.9 is not allowed: %s", d.reason)
	}
	if d := p.address(netip.MustParseAddr("20.7.208.9"), 443); d.allowed {
		t.Errorf("20.7.208.9 is allowed by %q", d.text())
	}
}

// At most 20 µs each, on any machine that is fit for a sandbox.
func BenchmarkDecide(b *testing.B) {
	p := tenThousand(b)
	addr := netip.MustParseAddr("20.7.207.9")
	for name, decide := range map[string]func() bool{
		"name":     func() bool { return p.name("host1999.example", 443).allowed },
		"wildcard": func() bool { return p.name("a.b.c.d.e.f.g.h.zone1999.example", 443).allowed },
		"none":     func() bool { return !p.name("a.b.c.d.e.f.g.h.elsewhere.example", 443).allowed },
		"address":  func() bool { return p.address(addr, 443).allowed },
		"request":  func() bool { return p.name("api1999.example", 443).request("GET", "/v2/x").allowed },
		"dns":      func() bool { return p.resolves("a.zone1999.example").allowed },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !decide() {
					b.Fatal("decided wrongly")
				}
			}
		})
	}
}
