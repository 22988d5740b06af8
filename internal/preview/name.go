package preview

import (
	"net"
	"regexp"
	"strconv"
	"strings"
)

// Name is a port of a sandbox, as in the host 8000-sb-0123456789abcdef.localhost.
type Name struct {
	Port      int
	SandboxID string
}

var nameForm = regexp.MustCompile(`^([1-9][0-9]{0,4})-(sb-[0-9a-z]{1,40})$`)

// ParseHost reads the name of a port out of a Host header: below localhost, or
// below a domain of the server's own.
func ParseHost(hostport, domain string) (Name, bool) {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	label, rest, _ := strings.Cut(host, ".")
	if rest != "localhost" && (domain == "" || rest != strings.ToLower(domain)) {
		return Name{}, false
	}
	m := nameForm.FindStringSubmatch(label)
	if m == nil {
		return Name{}, false
	}
	port, err := strconv.Atoi(m[1])
	if err != nil || port > 65535 {
		return Name{}, false
	}
	return Name{port, m[2]}, true
}

// Host is the name below a domain, which may have a port.
func (n Name) Host(domain string) string {
	return strconv.Itoa(n.Port) + "-" + n.SandboxID + "." + domain
}
