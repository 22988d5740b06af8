package egress

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// secret is a header that is set on requests to one host and port.
type secret struct {
	header string
	value  string // empty: ref is looked up for every request
	ref    string
	lookup func(context.Context) (string, error) // instead of both
}

// ofConnection are headers that are about one connection, or say whom it is to:
// no secret can be one.
var ofConnection = []string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (p *Policy) takeSecrets(in api.Secrets) error {
	p.secrets = map[hostPort]secret{}
	for _, key := range slices.Sorted(maps.Keys(in)) {
		use := in[key]
		field := "secrets." + key
		bad := func(format string, args ...any) *fault.Error {
			return fault.InvalidField(field, "the secret for %s: %s", key, fmt.Sprintf(format, args...))
		}
		text, port, err := splitPort(key)
		if err != nil {
			return bad("%v", err)
		}
		port = orElse(port, 443)
		host, err := canonical(text)
		if err != nil {
			return bad("%v", err).WithHint("a secret is for one host name, such as api.example.com")
		}
		at := hostPort{host, port}
		header := http.CanonicalHeaderKey(use.Header)
		switch _, twice := p.secrets[at]; {
		case twice:
			return bad("there is another one for the same host and port")
		case len(use.Unknown) > 0:
			return bad("there is no field %q", use.Unknown[0]).WithHint("a secret has header, and value or ref")
		case !token(use.Header):
			return bad("header %q is not the name of a header", use.Header).WithHint("such as Authorization")
		case slices.Contains(ofConnection, header):
			return bad("the header %s belongs to the connection", header)
		case (use.Value == "") == (use.Ref == ""):
			return bad("it needs either value or ref")
		case !httpguts.ValidHeaderFieldValue(use.Value) || strings.TrimSpace(use.Value) != use.Value:
			return bad("its value cannot be the value of a header: it has line ends, control characters, or spaces around it")
		}
		if d := p.name(host, port); !d.allowed {
			why := "the policy does not allow that host and port"
			if d.rule != nil {
				why = fmt.Sprintf("the rule %s (%s) denies that host", d.rule.text, d.rule.field)
			}
			return bad("it would never be used: %s", why).WithHint("add %q under network.allow, or take the secret out", key)
		}
		p.secrets[at] = secret{header: header, value: use.Value, ref: use.Ref}
	}
	return nil
}

// token says whether s is a token of HTTP.
func token(s string) bool {
	for i := range len(s) {
		if !httpguts.IsTokenRune(rune(s[i])) {
			return false
		}
	}
	return s != ""
}
