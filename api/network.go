package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// NetworkMode says what a sandbox may reach that no rule names.
type NetworkMode string

// The modes of a network policy. In each of them the ranges that are not the
// public internet (private, loopback, link-local, metadata, multicast) stay
// closed unless an allow rule names them by CIDR.
const (
	NetworkDeny      NetworkMode = "deny"       // nothing; the default
	NetworkAllowList NetworkMode = "allow-list" // what an allow rule names and no deny rule does
	NetworkOpen      NetworkMode = "open"       // the public internet, but for what a deny rule names
)

// NetworkPolicy says what a sandbox may reach. Its zero value is "deny".
type NetworkPolicy struct {
	Mode     NetworkMode   `json:"mode,omitempty"`      // default "deny", or "allow-list" when there are allow rules
	Allow    []NetworkRule `json:"allow,omitempty"`     // at most 10 000 rules, with those under deny
	Deny     []NetworkRule `json:"deny,omitempty"`      // deny wins over allow
	Policy   string        `json:"policy,omitempty"`    // a named policy of the server that this one adds to
	Rate     int64         `json:"rate,omitempty"`      // bytes a second, both directions together; 0: not limited
	FlowRate int           `json:"flow_rate,omitempty"` // new connections and requests a second; default 1000
	Flows    int           `json:"flows,omitempty"`     // connections at once; default and at most 1024
	Bytes    int64         `json:"bytes,omitempty"`     // budget, both directions together, after which the network closes; 0: none

	// Unknown are the fields of the JSON object that no policy has. The server
	// refuses a policy that has any: a misspelt rule must not be a missing one.
	Unknown []string `json:"-"`
}

// UnmarshalJSON keeps the names of fields that no policy has in Unknown.
func (p *NetworkPolicy) UnmarshalJSON(b []byte) error {
	type plain NetworkPolicy
	var out plain
	if err := json.Unmarshal(b, &out); err != nil {
		return err
	}
	*p = NetworkPolicy(out)
	p.Unknown = unknownFields(b, "mode", "allow", "deny", "policy", "rate", "flow_rate", "flows", "bytes")
	return nil
}

// NetworkRule names what may or may not be reached. In JSON it is a string
// ("example.com", "*.example.com", "example.com:443", "10.1.0.0/16",
// "203.0.113.7", "[2001:db8::7]:443") or an object with the fields below.
// "*.example.com" is every name below example.com and not example.com itself. The
// strings "pypi" and "npm", in allow, are what these package managers are set to
// on the server's machine.
type NetworkRule struct {
	Text    string   `json:"-"` // the string form; the other fields are empty then
	Host    string   `json:"host,omitempty"`
	CIDR    string   `json:"cidr,omitempty"`    // instead of Host
	Ports   []int    `json:"ports,omitempty"`   // default: every port; with methods or paths 80 and 443
	Methods []string `json:"methods,omitempty"` // of HTTP, in capitals; default: all
	Paths   []string `json:"paths,omitempty"`   // prefixes of HTTP paths, by whole segments; default: all

	Unknown []string `json:"-"` // as in NetworkPolicy
}

// Rule makes a NetworkRule of its string form.
func Rule(text string) NetworkRule { return NetworkRule{Text: text} }

// MarshalJSON gives the string form where there is one.
func (r NetworkRule) MarshalJSON() ([]byte, error) {
	if r.Text != "" {
		return json.Marshal(r.Text)
	}
	type plain NetworkRule
	return json.Marshal(plain(r))
}

// UnmarshalJSON takes both forms.
func (r *NetworkRule) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	switch {
	case len(b) > 0 && b[0] == '"':
		*r = NetworkRule{}
		return json.Unmarshal(b, &r.Text)
	case len(b) > 0 && b[0] == '{':
		type plain NetworkRule
		var out plain
		if err := json.Unmarshal(b, &out); err != nil {
			return err
		}
		*r = NetworkRule(out)
		r.Unknown = unknownFields(b, "host", "cidr", "ports", "methods", "paths")
		return nil
	}
	return errors.New(`network rule must be a string such as "example.com" or an object with host or cidr`)
}

// String gives the rule as it is shown in the audit.
func (r NetworkRule) String() string {
	if r.Text != "" {
		return r.Text
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Sprintf("%s%s", r.Host, r.CIDR)
	}
	return string(b)
}

// Secrets are what is added to requests on their way out, by the host that they
// go to: "api.example.com", or "api.example.com:8443" for another port than 443.
type Secrets map[string]SecretUse

// SecretUse is a header that is set on every request to one host, over verified
// TLS only. What the program in the sandbox has put into that header is replaced.
type SecretUse struct {
	Header string `json:"header"`          // its name, such as "Authorization"
	Value  string `json:"value,omitempty"` // the whole value, such as "Bearer …"; never sent back
	Ref    string `json:"ref,omitempty"`   // instead of Value: the name of a secret that the server keeps

	Unknown []string `json:"-"` // as in NetworkPolicy
}

// UnmarshalJSON keeps the names of fields that no secret has in Unknown.
func (s *SecretUse) UnmarshalJSON(b []byte) error {
	type plain SecretUse
	var out plain
	if err := json.Unmarshal(b, &out); err != nil {
		return err
	}
	*s = SecretUse(out)
	s.Unknown = unknownFields(b, "header", "value", "ref")
	return nil
}

// NetworkVerdict says what became of what a sandbox tried.
type NetworkVerdict string

// The verdicts of a NetworkEvent.
const (
	NetworkAllowed NetworkVerdict = "allowed"
	NetworkRefused NetworkVerdict = "refused" // by the policy, a limit, or because it was malformed
	NetworkFailed  NetworkVerdict = "failed"  // allowed, but the host could not be reached
)

// NetworkEvent is one decision about what a sandbox tried to reach: a line of the audit.
type NetworkEvent struct {
	Time       time.Time      `json:"time"` // of the attempt
	SandboxID  string         `json:"sandbox_id"`
	Workspace  string         `json:"workspace"`
	Protocol   string         `json:"protocol"`          // "dns", "tcp", "tls", "http", "https" (opened), or what the stack refused: "udp", "icmp", …
	Name       string         `json:"name,omitempty"`    // the host, where it was reached by name
	Address    string         `json:"address,omitempty"` // the real one that was dialled, or was asked for
	Port       int            `json:"port,omitempty"`
	Method     string         `json:"method,omitempty"` // of HTTP where it can be seen; of DNS the type that was asked for
	Path       string         `json:"path,omitempty"`   // without the query
	Status     int            `json:"status,omitempty"` // of the HTTP answer
	Verdict    NetworkVerdict `json:"verdict"`
	Rule       string         `json:"rule,omitempty"`       // that decided; empty: none named it
	Reason     string         `json:"reason,omitempty"`     // why it was refused, or failed
	Secret     string         `json:"secret,omitempty"`     // the header that was added
	ECH        bool           `json:"ech,omitempty"`        // the client offered an encrypted name, or pretended to
	BytesOut   int64          `json:"bytes_out,omitempty"`  // that the sandbox sent
	BytesIn    int64          `json:"bytes_in,omitempty"`   // that it got
	DurationMS float64        `json:"duration_ms"`          // of the connection, or the request
	Suppressed int64          `json:"suppressed,omitempty"` // refusals before this one that came too fast to be written
}

// unknownFields gives the keys of an object that are not among the known ones, sorted.
func unknownFields(b []byte, known ...string) []string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(b, &fields) != nil {
		return nil // not an object: decoding it has failed already
	}
	var out []string
	for name := range fields {
		if !slices.Contains(known, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
