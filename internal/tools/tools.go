// Package tools lets Python in a sandbox call functions that run outside of it:
// of a program that is connected, of HTTP services, of MCP servers, of the
// daemon itself. It makes Python of their schemas, and carries out each call as
// policy, approval, rate and timeout have it. Package daemon makes the Service,
// package sandbox hands it the calls, package httpapi connects programs and the
// people who decide.
//
// Credentials are added here, on the server's side. It decides nothing about
// sandboxes and believes nothing of what they say of themselves.
package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// The kinds of failures, as Python sees them in ToolError.kind.
const (
	KindFailed      = "failed" // the tool raised, or answered with an error
	KindInvalid     = "invalid"
	KindDenied      = "denied"
	KindTimeout     = "timeout"
	KindRateLimited = "rate_limited"
	KindInterrupted = "interrupted" // whether it was carried out is not known
	KindUnavailable = "unavailable"
	KindNotFound    = "not_found"
	KindTooLarge    = "too_large"
	KindBadResult   = "bad_result" // it is no JSON
)

// Error is a call that did not work, in words for the program that made it.
type Error api.ToolFailure

func (e *Error) Error() string { return e.Kind + ": " + e.Message }

func failed(kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) hint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// Tool is one function.
type Tool struct {
	Name        string // NAMESPACE.FUNCTION or FUNCTION
	Source      string // "function", "http", "mcp"
	Description string
	Parameters  json.RawMessage // JSON schema of an object; nil: none
	Returns     json.RawMessage // JSON schema; nil: not known
	Risky       bool
	Host        string        // that it reaches, "" when that is not known
	Timeout     time.Duration // 0: the policy's
	// Do carries out a call. The arguments are a JSON object that fits Parameters.
	// What it gives is JSON. An error that is no *Error is told as KindFailed.
	Do func(ctx context.Context, c Call) (json.RawMessage, error)

	stub    stub
	remote  string             // its name at an MCP server
	wrapped bool               // its value is in an object around it
	schema  *jsonschema.Schema // of Parameters; nil: not checked
}

// Call is one call of a tool.
type Call struct {
	ID          string
	Owner       string
	SandboxID   string
	ContextID   string
	ExecutionID string
	Tool        string
	Arguments   json.RawMessage
}

// Limits of what one sandbox can be given.
const (
	maxFunctions = 1000
	maxTools     = 5000 // in all of its sources
	maxSources   = 32
	maxRules     = 200
	maxHeaders   = 32
	maxSpec      = 8 << 20 // bytes of the whole, in JSON

	defaultTimeout = 60 * time.Second
	maxTimeout     = time.Hour
	defaultExpiry  = 10 * time.Minute
	maxExpiry      = 24 * time.Hour
)

var (
	identifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,63}$`)
	header     = regexp.MustCompile(`^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$`)
)

// check refuses what no sandbox can be given.
func check(t *api.Tools, settings bool) error {
	if raw, err := json.Marshal(t); err != nil || len(raw) > maxSpec {
		return fault.InvalidField("tools", "tools has more than %d MiB", maxSpec>>20)
	}
	if n := len(t.Functions); n > maxFunctions {
		return fault.InvalidField("tools.functions", "there are %d functions; at most %d are taken", n, maxFunctions)
	}
	if n := len(t.HTTP) + len(t.MCP) + len(t.Use); n > maxSources {
		return fault.InvalidField("tools", "there are %d services and servers; at most %d are taken", n, maxSources)
	}
	seen := map[string]bool{}
	for i, f := range t.Functions {
		field := fmt.Sprintf("tools.functions[%d]", i)
		if err := checkName(field+".name", f.Name); err != nil {
			return err
		}
		if seen[f.Name] {
			return fault.InvalidField(field+".name", "there are two functions %s", f.Name)
		}
		seen[f.Name] = true
		if f.TimeoutSeconds < 0 || f.TimeoutSeconds > maxTimeout.Seconds() {
			return fault.InvalidField(field+".timeout_seconds", "timeout_seconds must be between 0 and %v", maxTimeout.Seconds())
		}
		for name, schema := range map[string]json.RawMessage{"parameters": f.Parameters, "returns": f.Returns} {
			if len(schema) > 0 && !isObject(schema) {
				return fault.InvalidField(field+"."+name, "%s of %s must be a JSON schema", name, f.Name)
			}
		}
	}
	for name, h := range t.HTTP {
		field := "tools.http." + name
		if err := checkSpace(field, name); err != nil {
			return err
		}
		if (len(h.OpenAPI) > 0) == (h.URL != "") {
			return fault.InvalidField(field, "the service %s needs openapi, its document, or url, where that is", name)
		}
		if err := checkHeaders(field, h.Headers); err != nil {
			return err
		}
	}
	for name, m := range t.MCP {
		field := "tools.mcp." + name
		if err := checkSpace(field, name); err != nil {
			return err
		}
		switch {
		case len(m.Command) > 0 && !settings, len(m.Envs) > 0 && !settings:
			return fault.InvalidField(field+".command", "only the server's settings may start a program").
				WithHint("have the operator declare it in the setting tools, and name it in tools.use")
		case (len(m.Command) > 0) == (m.URL != ""):
			return fault.InvalidField(field+".url", "the MCP server %s needs a url", name)
		}
		if err := checkHeaders(field, m.Headers); err != nil {
			return err
		}
		if _, twice := t.HTTP[name]; twice {
			return fault.InvalidField(field, "%s is the name of a service and of an MCP server", name)
		}
	}
	return checkPolicy(t.Policy)
}

func isObject(raw json.RawMessage) bool {
	var m map[string]json.RawMessage
	return json.Unmarshal(raw, &m) == nil && m != nil
}

func checkName(field, name string) error {
	parts := strings.Split(name, ".")
	for _, p := range parts {
		if len(parts) > 2 || !identifier.MatchString(p) || keywords[p] {
			return fault.InvalidField(field, "%.80q cannot be the name of a function", name).WithHint("an identifier, or NAMESPACE.IDENTIFIER, of at most 64 ASCII letters, digits and _ each")
		}
	}
	return reserved(field, parts[0])
}

func checkSpace(field, name string) error {
	if !identifier.MatchString(name) || keywords[name] {
		return fault.InvalidField(field, "%.80q cannot be a namespace", name).WithHint("an identifier of at most 64 ASCII letters, digits and _")
	}
	return reserved(field, name)
}

// reserved are the names that the module tools has itself.
func reserved(field, name string) error {
	switch name {
	case "search", "aio", "ToolError", "ToolDenied", "ToolTimeout":
		return fault.InvalidField(field, "the module tools has a name %s of its own", name).WithHint("choose another one")
	}
	return nil
}

func checkHeaders(field string, headers map[string]api.ToolHeader) error {
	if len(headers) > maxHeaders {
		return fault.InvalidField(field+".headers", "there are %d headers; at most %d are taken", len(headers), maxHeaders)
	}
	for name, h := range headers {
		f := field + ".headers." + name
		switch {
		case !header.MatchString(name) || strings.EqualFold(name, "host"):
			return fault.InvalidField(f, "%.80q cannot be a header", name)
		case (h.Value != "") == (h.Ref != ""):
			return fault.InvalidField(f, "the header %s needs a value, or ref, the name of a secret", name)
		case strings.ContainsAny(h.Value+h.Prefix, "\r\n\x00"):
			return fault.InvalidField(f, "the header %s has a line end in it", name)
		}
	}
	return nil
}

func checkPolicy(p api.ToolPolicy) error {
	switch p.Approve {
	case "", api.ApproveNever, api.ApproveRisky, api.ApproveAlways:
	default:
		return fault.InvalidField("tools.policy.approve", "approve must be never, risky or always, not %.40q", p.Approve)
	}
	if n := len(p.Rules); n > maxRules {
		return fault.InvalidField("tools.policy.rules", "there are %d rules; at most %d are taken", n, maxRules)
	}
	for i, r := range p.Rules {
		field := fmt.Sprintf("tools.policy.rules[%d]", i)
		switch r.Action {
		case api.RuleAllow, api.RuleAsk, api.RuleDeny:
		default:
			return fault.InvalidField(field+".action", "action must be allow, ask or deny, not %.40q", r.Action)
		}
		if r.Tool == "" && len(r.Arguments) == 0 && r.Host == "" && r.Advice == "" {
			return fault.InvalidField(field, "rule %d names nothing that it is about", i+1).WithHint(`"tool": "*" is about all`)
		}
	}
	for name, v := range map[string]struct{ is, most float64 }{
		"timeout_seconds": {p.TimeoutSeconds, maxTimeout.Seconds()}, "expire_seconds": {p.ExpireSeconds, maxExpiry.Seconds()},
		"rate": {p.Rate, 1e6}, "max_calls": {float64(p.MaxCalls), 1e9},
	} {
		if v.is < 0 || v.is > v.most {
			return fault.InvalidField("tools.policy."+name, "%s must be between 0 and %v, but is %v", name, v.most, v.is)
		}
	}
	return nil
}

// asError is what a program is told of an error.
func asError(err error) *Error {
	var e *Error
	var f *fault.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &f):
		return &Error{Kind: KindFailed, Message: f.Message, Hint: f.Hint}
	default:
		return &Error{Kind: KindFailed, Message: err.Error()}
	}
}

// headersOf gives headers with their secrets in place, and these secrets: they
// must not come back in an answer.
func headersOf(ctx context.Context, secrets Secrets, owner string, headers map[string]api.ToolHeader) (out http.Header, hidden []string, err error) {
	out = http.Header{}
	for name, h := range headers {
		v := h.Value
		if h.Ref != "" {
			if secrets == nil {
				return nil, nil, failed(KindUnavailable, "this server keeps no secrets")
			}
			secret, err := secrets.Value(ctx, owner, h.Ref)
			if errors.Is(err, fault.NotFound) {
				return nil, nil, failed(KindUnavailable, "the secret %.80q that this tool needs is not there", h.Ref)
			}
			if err != nil {
				return nil, nil, err
			}
			v = h.Prefix + secret
			hidden = append(hidden, secret)
		}
		out.Set(name, v)
	}
	return out, hidden, nil
}

// secretsIn are the parts of an address that may be secret: the values of its query,
// as they are and as they are written there, and the password. They are for errors;
// in answers they may be words like others.
func secretsIn(address string) (out []string) {
	u, err := url.Parse(address)
	if err != nil {
		return []string{address}
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, named := strings.Cut(part, "=")
		if !named {
			value = part
		}
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			out = append(out, plain)
		}
		out = append(out, value)
	}
	if password, has := u.User.Password(); has {
		out = append(out, password)
	}
	return out
}

// without takes secrets out of what goes into a sandbox. Services repeat what
// they are sent, in errors for one.
func without(raw []byte, hidden []string) []byte {
	for _, secret := range hidden {
		if len(secret) < 4 {
			continue // it would take out words of the answer
		}
		quoted, err := json.Marshal(secret)
		if err != nil {
			continue
		}
		raw = bytes.ReplaceAll(raw, []byte(secret), []byte("[secret]"))
		raw = bytes.ReplaceAll(raw, quoted[1:len(quoted)-1], []byte("[secret]"))
	}
	return raw
}
