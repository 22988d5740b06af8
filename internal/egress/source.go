package egress

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"slices"
)

// Source is a host that the operator of this machine has its own programs use,
// such as the index that pip is set to, and that a policy opened by a word
// ("pypi"). Its name may stand for a private address, since that is where such
// hosts often are; what the policy says of the name holds as for any other.
type Source struct {
	Host string // as in a rule
	Port uint16
	// Open says that its TLS is opened, so that the certificate is verified here,
	// where its authority is known, and not in the sandbox.
	Open bool
	// Roots are what its certificate is verified with; nil: as for all others.
	Roots *x509.CertPool
	// Below is the path of what is meant there, such as "/npm/": one host may
	// serve several things, with a password for each. Empty: everything.
	Below string
	// Authorization gives the value of that header for requests that only read
	// (GET, HEAD); nil: none is added. It is asked for every request.
	Authorization func(ctx context.Context) (string, error)
}

// AddSources says which of the hosts that a policy allows are the operator's. It
// is called before the policy is used. Where the sandbox's owner has given a
// secret for such a host, that one is used alone.
func (p *Policy) AddSources(list []Source) error {
	for _, s := range list {
		host, err := canonical(s.Host)
		if err != nil {
			return err
		}
		at := hostPort{host, s.Port}
		if p.sources == nil {
			p.sources = map[hostPort][]Source{}
		}
		p.sources[at] = append(p.sources[at], s)
		p.inspects = p.inspects || s.Open
	}
	return nil
}

// AllowsName says whether a connection to a host is allowed by its name.
func (p *Policy) AllowsName(host string, port uint16) bool {
	name, err := canonical(host)
	return err == nil && p.name(name, port).allowed
}

// opens says whether TLS to a host is opened whatever is asked of it.
func (p *Policy) opens(at hostPort) bool {
	_, secret := p.secrets[at]
	return secret || slices.ContainsFunc(p.sources[at], func(s Source) bool { return s.Open })
}

// secret gives what is added to a request; its header is empty for nothing.
func (p *Policy) secret(at hostPort, method, path string) (out secret) {
	if own, is := p.secrets[at]; is || method != http.MethodGet && method != http.MethodHead {
		return own
	}
	longest := -1
	for _, s := range p.sources[at] {
		if s.Authorization != nil && len(s.Below) > longest && under(path, s.Below) {
			longest, out = len(s.Below), secret{header: "Authorization", lookup: s.Authorization}
		}
	}
	return out
}

// roots are what the certificate of a host is verified with, where a source says so.
func (p *Policy) roots(at hostPort) *x509.CertPool {
	for _, s := range p.sources[at] {
		if s.Roots != nil {
			return s.Roots
		}
	}
	return nil
}

// ofOperator says whether a target is one of the operator's own at an address
// where those may be.
func (p *Policy) ofOperator(t target, addr netip.Addr) bool {
	if len(p.sources[t.at()]) == 0 {
		return false
	}
	where, isClosed := closed(addr)
	return !isClosed || slices.Contains([]string{"private", "loopback", "reserved"}, where.what)
}
