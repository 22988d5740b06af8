package api

import (
	"encoding/json"
	"maps"
	"net/url"
	"strings"
	"time"
)

// Tools are functions that run outside of a sandbox and that Python inside calls
// as `from tools import …`. A name is that of a function, or NAMESPACE.FUNCTION.
type Tools struct {
	Functions []ToolFunction      `json:"functions,omitempty"` // of the program that is connected, at …/tools/connect
	HTTP      map[string]ToolHTTP `json:"http,omitempty"`      // services with an OpenAPI document, by namespace
	MCP       map[string]ToolMCP  `json:"mcp,omitempty"`       // servers of the Model Context Protocol, by namespace
	Use       []string            `json:"use,omitempty"`       // namespaces that the server's own settings declare
	Policy    ToolPolicy          `json:"policy,omitzero"`
}

// Shown gives tools as they may be shown: without the values of headers, and of
// queries and passwords in addresses. What it is called on stays as it is.
func (t *Tools) Shown() *Tools {
	if t == nil {
		return nil
	}
	out := *t
	out.HTTP, out.MCP = maps.Clone(t.HTTP), maps.Clone(t.MCP)
	for name, h := range out.HTTP {
		h.URL, h.BaseURL, h.Headers = ShownURL(h.URL), ShownURL(h.BaseURL), shownHeaders(h.Headers)
		out.HTTP[name] = h
	}
	for name, m := range out.MCP {
		m.URL, m.Headers = ShownURL(m.URL), shownHeaders(m.Headers)
		out.MCP[name] = m
	}
	return &out
}

const redacted = "[redacted]"

func shownHeaders(headers map[string]ToolHeader) map[string]ToolHeader {
	out := maps.Clone(headers)
	for name, h := range out {
		if h.Value != "" {
			h.Value = redacted
			out[name] = h
		}
	}
	return out
}

// ShownURL gives an address as it may be shown: tokens stand in queries, and
// passwords before hosts.
func ShownURL(address string) string {
	u, err := url.Parse(address)
	if err != nil { // nothing is known of its parts
		return redacted
	}
	where := *u
	where.User, where.RawQuery, where.ForceQuery, where.Fragment, where.RawFragment = nil, "", false, "", ""
	shown := where.String()
	if u.User != nil {
		shown = strings.Replace(shown, "//", "//"+redacted+"@", 1)
	}
	if u.RawQuery == "" {
		return shown
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, part := range parts {
		parts[i] = redacted
		if name, _, named := strings.Cut(part, "="); named {
			parts[i] = name + "=" + redacted
		}
	}
	return shown + "?" + strings.Join(parts, "&")
}

// ToolFunction is a function of a program.
type ToolFunction struct {
	Name           string          `json:"name"` // an identifier, or NAMESPACE.IDENTIFIER
	Description    string          `json:"description,omitempty"`
	Parameters     json.RawMessage `json:"parameters,omitempty"` // JSON schema of an object; default: none
	Returns        json.RawMessage `json:"returns,omitempty"`    // JSON schema; default: not known
	Risky          bool            `json:"risky,omitempty"`      // it changes what cannot be changed back: asked for where the policy asks for risky calls
	TimeoutSeconds float64         `json:"timeout_seconds,omitempty"`
}

// ToolHTTP is a service with an OpenAPI 3 document, whose operations are functions.
type ToolHTTP struct {
	OpenAPI json.RawMessage       `json:"openapi,omitempty"`  // the document; or url
	URL     string                `json:"url,omitempty"`      // where it is
	BaseURL string                `json:"base_url,omitempty"` // of the service; default: the document's first server
	Headers map[string]ToolHeader `json:"headers,omitempty"`  // added on the server
	Include []string              `json:"include,omitempty"`  // operations, with * for any letters; default: all
}

// ToolMCP is a server of the Model Context Protocol, reached over streamable HTTP.
type ToolMCP struct {
	URL     string                `json:"url,omitempty"`
	Headers map[string]ToolHeader `json:"headers,omitempty"`
	Include []string              `json:"include,omitempty"`
	// Command starts a server that speaks over its standard streams. Only the
	// server's own settings may name one.
	Command []string          `json:"command,omitempty"`
	Envs    map[string]string `json:"envs,omitempty"`
}

// ToolHeader is the value of a header: plain, or prefix and a secret of the workspace.
type ToolHeader struct {
	Value  string `json:"value,omitempty"`
	Ref    string `json:"ref,omitempty"`    // name of a secret, of which nothing enters the sandbox
	Prefix string `json:"prefix,omitempty"` // in front of it, as "Bearer "
}

// What a ToolPolicy asks somebody about.
const (
	ApproveNever  = "never"  // nothing, but for rules that ask; the default
	ApproveRisky  = "risky"  // functions that are risky: HTTP other than GET, MCP tools that do not say they only read, functions that say so
	ApproveAlways = "always" // every call
)

// What a ToolRule does.
const (
	RuleAllow = "allow"
	RuleAsk   = "ask"
	RuleDeny  = "deny"
)

// ToolPolicy says which calls are carried out. It looks at facts (the tool, its
// arguments, the host that it reaches, what reading the cell says), never at
// what a model says of itself.
type ToolPolicy struct {
	Approve        string     `json:"approve,omitempty"`         // "never", "risky" or "always"
	Rules          []ToolRule `json:"rules,omitempty"`           // the first that fits decides, before Approve
	TimeoutSeconds float64    `json:"timeout_seconds,omitempty"` // of a call; default 60
	Rate           float64    `json:"rate,omitempty"`            // calls a second, in the long run; default: any number
	MaxCalls       int        `json:"max_calls,omitempty"`       // of the sandbox, since the server was started; default: any number
	ExpireSeconds  float64    `json:"expire_seconds,omitempty"`  // after which a call that nobody decided is denied; default 600
}

// ToolRule is a rule of a policy. All that it names must fit; * stands for any letters.
type ToolRule struct {
	Tool      string            `json:"tool,omitempty"`      // as "crm.delete_*"
	Arguments map[string]string `json:"arguments,omitempty"` // patterns for the JSON of arguments, strings without their quotes
	Host      string            `json:"host,omitempty"`      // that the tool reaches, as "*.example.com"
	Advice    string            `json:"advice,omitempty"`    // what reading the cell noticed, as "network"; in runs of agents
	Action    string            `json:"action"`              // "allow", "ask" or "deny"
}

// ToolInfo describes a function.
type ToolInfo struct {
	Name        string          `json:"name"`
	Source      string          `json:"source"` // "function", "http", "mcp", or "server": the daemon's own
	Description string          `json:"description"`
	Signature   string          `json:"signature"` // of Python
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Risky       bool            `json:"risky"`
	Connected   bool            `json:"connected"` // it can be reached now, as far as is known
}

// ToolList is the answer of GET /v1/sandboxes/{id}/tools.
type ToolList struct {
	Tools  []ToolInfo `json:"tools"`
	Policy ToolPolicy `json:"policy"`
}

// ToolCall is a line of the log of calls. Arguments and results are not in it.
type ToolCall struct {
	ID          string    `json:"id"`
	SandboxID   string    `json:"sandbox_id"`
	ContextID   string    `json:"context_id,omitempty"`   // as the sandbox says
	ExecutionID string    `json:"execution_id,omitempty"` // as the sandbox says
	Tool        string    `json:"tool"`
	Time        time.Time `json:"time"`
	DurationMS  float64   `json:"duration_ms"`
	Bytes       int       `json:"bytes"`         // of the result
	Kind        string    `json:"kind"`          // "ok", or how it failed
	By          string    `json:"by,omitempty"`  // who approved or denied it
	Rule        string    `json:"rule"`          // what decided: "approve never", "rule 2", …
	Why         string    `json:"why,omitempty"` // words for a failure
}

// ToolCalls is the answer of GET /v1/sandboxes/{id}/tools/calls, the newest last.
type ToolCalls struct {
	Calls []ToolCall `json:"calls"`
}

// The statuses of an Approval.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalDenied    = "denied"
	ApprovalExpired   = "expired"   // nobody decided
	ApprovalCancelled = "cancelled" // nobody waits for it any more
)

// Approval is a call that waits for somebody's decision, or had one.
type Approval struct {
	ID          string          `json:"id"`
	SandboxID   string          `json:"sandbox_id"`
	AgentID     string          `json:"agent_id,omitempty"` // whose run it is
	ContextID   string          `json:"context_id,omitempty"`
	ExecutionID string          `json:"execution_id,omitempty"`
	Tool        string          `json:"tool"`
	Arguments   json.RawMessage `json:"arguments"`
	Host        string          `json:"host,omitempty"`   // that the tool reaches
	Advice      []AgentAdvice   `json:"advice,omitempty"` // what reading the cell noticed
	Rule        string          `json:"rule"`             // why it is asked
	Status      string          `json:"status"`
	Reason      string          `json:"reason,omitempty"` // that the decision gave
	By          string          `json:"by,omitempty"`     // the key that decided
	CreatedAt   time.Time       `json:"created_at"`
	ExpiresAt   time.Time       `json:"expires_at"`
	DecidedAt   *time.Time      `json:"decided_at,omitempty"`
}

// Approvals is the answer of GET /v1/approvals, the oldest first.
type Approvals struct {
	Approvals []Approval `json:"approvals"`
}

// Decision is the body of POST /v1/approvals/{id}.
type Decision struct {
	Approve bool   `json:"approve"`
	Reason  string `json:"reason,omitempty"` // told to the program that called
}

// ToolMessage is what a program that is connected hears, over its WebSocket.
type ToolMessage struct {
	Type        string          `json:"type"` // "connected", "tool_call", "tool_cancel": nobody waits for the result any more, or, for pages alone, "ping"
	CallID      string          `json:"call_id"`
	SandboxID   string          `json:"sandbox_id,omitempty"`
	ContextID   string          `json:"context_id,omitempty"`   // as the sandbox says
	ExecutionID string          `json:"execution_id,omitempty"` // as the sandbox says
	Tool        string          `json:"tool,omitempty"`
	Arguments   json.RawMessage `json:"arguments,omitempty"` // a JSON object
}

// ToolResult is what it answers.
type ToolResult struct {
	Type   string          `json:"type"` // "tool_result"
	CallID string          `json:"call_id"`
	Result json.RawMessage `json:"result,omitempty"` // any JSON, at most 64 MiB
	Error  *ToolFailure    `json:"error,omitempty"`  // instead of a result
}

// ToolFailure is what Python in the sandbox raises as a ToolError.
type ToolFailure struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}
