package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// rule is a rule that is well-formed.
type rule struct {
	text    string // as it was written
	field   string // where: "network.allow[3]"
	host    string // canonical; without the "*." when below
	below   bool   // every name below host; below "" is every name
	prefix  netip.Prefix
	ports   []uint16 // empty: all
	methods []string // empty: all
	paths   []string // empty: all
}

// inspects says whether requests must be seen to apply the rule.
func (r *rule) inspects() bool { return len(r.methods)+len(r.paths) > 0 }

// request says whether the rule is about a request.
func (r *rule) request(method, path string) bool {
	return (len(r.methods) == 0 || slices.Contains(r.methods, method)) &&
		(len(r.paths) == 0 || slices.ContainsFunc(r.paths, func(p string) bool { return under(path, p) }))
}

// under says whether a path has a prefix, by whole segments.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/' || strings.HasSuffix(prefix, "/"))
}

// parseRule checks a rule. The errors name it.
func parseRule(field string, in api.NetworkRule) (*rule, error) {
	r := &rule{text: in.String(), field: field}
	bad := func(format string, args ...any) *fault.Error {
		return fault.InvalidField(field, "rule %s: %s", r.text, fmt.Sprintf(format, args...))
	}
	if len(in.Unknown) > 0 {
		return nil, bad("there is no field %q", in.Unknown[0]).WithHint("a rule has host or cidr, and ports, methods, paths")
	}
	target := in.Host
	switch {
	case in.Text != "":
		if in.Host != "" || in.CIDR != "" || len(in.Ports)+len(in.Methods)+len(in.Paths) > 0 {
			return nil, bad("it is a string and has fields as well")
		}
		rest, port, err := splitPort(in.Text)
		if err != nil {
			return nil, bad("%v", err)
		}
		target = rest
		if port != 0 {
			r.ports = []uint16{port}
		}
	case in.Host != "" && in.CIDR != "":
		return nil, bad("it has both host and cidr").WithHint("write two rules")
	case in.Host == "" && in.CIDR == "":
		return nil, bad("it names neither host nor cidr")
	case in.CIDR != "":
		target = in.CIDR
	}
	if err := r.parseTarget(target); err != nil {
		return nil, bad("%v", err)
	}
	if in.Host != "" && r.prefix.IsValid() {
		return nil, bad("host is an address").WithHint("put it under cidr")
	}
	if in.CIDR != "" && !r.prefix.IsValid() {
		return nil, bad("cidr is not an address range").WithHint("write it as 10.1.0.0/16, or put a name under host")
	}
	for _, p := range in.Ports {
		if p < 1 || p > 65535 {
			return nil, bad("port %d is not from 1 to 65535", p)
		}
		r.ports = append(r.ports, uint16(p))
	}
	if err := r.parseRequests(in); err != nil {
		return nil, bad("%v", err)
	}
	slices.Sort(r.ports)
	r.ports = slices.Compact(r.ports)
	return r, nil
}

// splitPort takes the port off "host:443", "[2001:db8::1]:443", "10.0.0.0/8:443".
func splitPort(text string) (target string, port uint16, err error) {
	digits := ""
	switch i := strings.LastIndexByte(text, ':'); {
	case strings.HasPrefix(text, "["):
		inner, rest, ok := strings.Cut(text[1:], "]")
		if !ok || rest != "" && rest[0] != ':' {
			return "", 0, fmt.Errorf("what stands in [] must end, or be followed by a port")
		}
		if rest == "" {
			return inner, 0, nil
		}
		target, digits = inner, rest[1:]
	case i < 0 || strings.Contains(text, "://") || strings.IndexByte(text, ':') != i: // no port, a URL, or IPv6
		return text, 0, nil
	default:
		target, digits = text[:i], text[i+1:]
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("port %q is not from 1 to 65535", digits)
	}
	return target, uint16(n), nil
}

func (r *rule) parseTarget(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("it is empty")
	case strings.Contains(s, "://"):
		return fmt.Errorf("it is a URL: name its host, and put a path under paths")
	case s == "*":
		r.below = true
		return nil
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return fmt.Errorf("an address with a zone means nothing to others")
		}
		return r.setPrefix(netip.PrefixFrom(addr, addr.BitLen()), s)
	}
	if addr, bits, ok := strings.Cut(s, "/"); ok {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			if _, e := netip.ParseAddr(addr); e != nil {
				return fmt.Errorf("it has a path: put host and paths into an object")
			}
			return fmt.Errorf("/%s is not a prefix length of %s", bits, addr)
		}
		return r.setPrefix(p, s)
	}
	host, below := strings.CutPrefix(s, "*.")
	if strings.Contains(host, "*") {
		return fmt.Errorf("a wildcard stands for all that is before a name, as in *.example.com")
	}
	name, err := canonical(host)
	if err != nil {
		return err
	}
	r.host, r.below = name, below
	return nil
}

func (r *rule) setPrefix(p netip.Prefix, text string) error {
	switch {
	case p.Addr().Is4In6():
		return fmt.Errorf("write it as IPv4, without ::ffff:")
	case p.Masked() != p:
		return fmt.Errorf("%s has bits set after its prefix: write %s, or %s for the one address", text, p.Masked(), p.Addr())
	case madeUp.Overlaps(p) && p.Bits() >= madeUp.Bits():
		return fmt.Errorf("%s is used inside sandboxes, for names", madeUp)
	}
	r.prefix = p
	return nil
}

func (r *rule) parseRequests(in api.NetworkRule) error {
	for _, m := range in.Methods {
		switch {
		case m == "" || !token(m) || strings.ToUpper(m) != m:
			return fmt.Errorf("method %q must be a word in capitals, such as GET", m)
		case m == "CONNECT":
			return fmt.Errorf("CONNECT is never passed on")
		}
	}
	for _, p := range in.Paths {
		switch {
		case !strings.HasPrefix(p, "/"):
			return fmt.Errorf("path %q must begin with /", p)
		case strings.ContainsAny(p, "?#*%\\") || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c == 0x7f }):
			return fmt.Errorf("path %q must be plain: it is a prefix already, compared when %%-escapes are undone", p)
		case ambiguous(p):
			return fmt.Errorf("path %q must not hold . or .. or empty segments", p)
		}
	}
	r.methods, r.paths = in.Methods, in.Paths
	if !r.inspects() {
		return nil
	}
	if r.prefix.IsValid() {
		return fmt.Errorf("methods and paths need a host, not a cidr")
	}
	if len(r.ports) == 0 && len(in.Ports) == 0 {
		r.ports = []uint16{80, 443}
	}
	return nil
}

// covers says whether a deny rule leaves nothing of an allow rule for the same name or range.
func (r *rule) covers(allow *rule) bool {
	if len(r.ports) > 0 && (len(allow.ports) == 0 || slices.ContainsFunc(allow.ports, func(p uint16) bool { return !slices.Contains(r.ports, p) })) {
		return false
	}
	if len(r.methods) > 0 && (len(allow.methods) == 0 || slices.ContainsFunc(allow.methods, func(m string) bool { return !slices.Contains(r.methods, m) })) {
		return false
	}
	return len(r.paths) == 0 || len(allow.paths) > 0 && !slices.ContainsFunc(allow.paths, func(p string) bool {
		return !slices.ContainsFunc(r.paths, func(q string) bool { return under(p, q) })
	})
}
