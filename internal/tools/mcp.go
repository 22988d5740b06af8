package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// addMCP adds the tools of an MCP server. Each sandbox speaks with it in a
// session of its own, begun at its first call.
func (s *Service) addMCP(ctx context.Context, owner, sandbox, space string, m api.ToolMCP, to *set, add func(string, []Tool) error) error {
	field := "tools.mcp." + space
	listed, err := s.load(ctx, owner, "mcp", space, m, func(ctx context.Context) ([]Tool, error) {
		session, err := s.dialMCP(ctx, owner, m)
		if err != nil {
			return nil, err
		}
		defer session.Close()
		return listMCP(ctx, space, m, session)
	})
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fault.InvalidField(field, "the MCP server %s cannot be used: %s", space, asError(err).Message)
	}
	own := &mcpSession{service: s, owner: owner, spec: m}
	to.close = append(to.close, own.end)
	tools := slices.Clone(listed)
	for i := range tools {
		name := tools[i].remote
		wrapped := tools[i].wrapped
		tools[i].Do = func(ctx context.Context, c Call) (json.RawMessage, error) {
			return own.call(ctx, name, wrapped, c.Arguments)
		}
	}
	return add(field, tools)
}

// dialMCP begins a session.
func (s *Service) dialMCP(ctx context.Context, owner string, m api.ToolMCP) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "pandastack", Version: "1"}, nil)
	var transport mcp.Transport
	if len(m.Command) > 0 {
		cmd := exec.Command(m.Command[0], m.Command[1:]...) //nolint:gosec // of the operator's settings
		cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8"}
		for k, v := range m.Envs {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		transport = &mcp.CommandTransport{Command: cmd}
	} else {
		transport = &mcp.StreamableClientTransport{Endpoint: m.URL, HTTPClient: &http.Client{
			Transport: &withHeaders{s.o.Client, s.o.Secrets, owner, m.Headers}, CheckRedirect: sameHost,
		}}
	}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, failed(KindUnavailable, "%s", without([]byte(withoutURL(err).Error()), secretsIn(m.URL)))
	}
	return session, nil
}

// withHeaders adds headers, with the secrets as they are at the time.
type withHeaders struct {
	next    http.RoundTripper
	secrets Secrets
	owner   string
	headers map[string]api.ToolHeader
}

// RoundTrip implements http.RoundTripper.
func (w *withHeaders) RoundTrip(req *http.Request) (*http.Response, error) {
	headers, _, err := headersOf(req.Context(), w.secrets, w.owner, w.headers)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	for name := range headers {
		req.Header.Set(name, headers.Get(name))
	}
	return w.next.RoundTrip(req)
}

// listMCP makes tools of what a server lists.
func listMCP(ctx context.Context, space string, m api.ToolMCP, session *mcp.ClientSession) ([]Tool, error) {
	var tools []Tool
	taken := map[string]bool{}
	host := ""
	if u, err := http.NewRequest(http.MethodGet, m.URL, nil); err == nil && m.URL != "" {
		host = u.URL.Hostname()
	}
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, failed(KindUnavailable, "it does not list its tools: %s", without([]byte(err.Error()), secretsIn(m.URL)))
		}
		name := pyName(t.Name)
		if !anyGlob(m.Include, t.Name) && !anyGlob(m.Include, name) {
			continue
		}
		for base, n := name, 2; taken[name]; n++ {
			name = fmt.Sprint(base, n)
		}
		taken[name] = true
		parameters, err := json.Marshal(t.InputSchema)
		if err != nil || !isObject(parameters) {
			parameters = json.RawMessage(`{"type":"object"}`)
		}
		var returns json.RawMessage
		wrapped := false
		if t.OutputSchema != nil {
			if returns, err = json.Marshal(t.OutputSchema); err != nil {
				returns = nil
			}
			returns, wrapped = unwrapped(returns)
		}
		risky := true // unless it says that it only reads, which is all that is known of it
		if a := t.Annotations; a != nil {
			risky = !a.ReadOnlyHint
		}
		text := t.Description
		if text == "" {
			text = t.Title
		}
		tools = append(tools, Tool{
			Name: space + "." + name, Source: "mcp", Description: text, Parameters: parameters, Returns: returns, Risky: risky, Host: host,
			remote: t.Name, wrapped: wrapped,
		})
		if len(tools) > maxTools {
			return nil, failed(KindTooLarge, "it has more than %d tools: name those that are needed in include", maxTools)
		}
	}
	if len(tools) == 0 {
		return nil, failed(KindInvalid, "it has no tool that is in include")
	}
	return tools, nil
}

// unwrapped takes the schema of a value out of that of an object around it: an
// MCP result must be an object, so libraries put what is none under "result".
func unwrapped(schema json.RawMessage) (json.RawMessage, bool) {
	p := parse(schema)
	members := ordered(p.Properties)
	if len(members) != 1 || members[0].name != "result" || !slices.Contains(p.Required, "result") {
		return schema, false
	}
	inner := map[string]json.RawMessage{}
	if json.Unmarshal(members[0].schema, &inner) != nil {
		return schema, false
	}
	if defs := (member{schema: schema}).at("$defs"); defs != nil {
		inner["$defs"] = defs
	}
	out, err := json.Marshal(inner)
	if err != nil {
		return schema, false
	}
	return out, true
}

func sameJSON(text string, value any) bool {
	var v any
	return json.Unmarshal([]byte(text), &v) == nil && reflect.DeepEqual(v, value)
}

// mcpSession is that of one sandbox with one server.
type mcpSession struct {
	service *Service
	owner   string
	spec    api.ToolMCP

	mu      sync.Mutex
	session *mcp.ClientSession
	ended   bool
}

func (m *mcpSession) get(ctx context.Context) (*mcp.ClientSession, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, failed(KindUnavailable, "the sandbox has ended")
	}
	if m.session != nil {
		return m.session, nil
	}
	// The session lives longer than the call that begins it.
	dial, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTime)
	defer cancel()
	session, err := m.service.dialMCP(dial, m.owner, m.spec)
	if err != nil {
		return nil, err
	}
	m.session = session
	return session, nil
}

// drop forgets a session that broke; the next call begins another.
func (m *mcpSession) drop(session *mcp.ClientSession) {
	m.mu.Lock()
	if m.session == session {
		m.session = nil
	}
	m.mu.Unlock()
	go session.Close() // which waits for a program to end
}

func (m *mcpSession) end() {
	m.mu.Lock()
	session := m.session
	m.session, m.ended = nil, true
	m.mu.Unlock()
	if session != nil {
		go session.Close()
	}
}

func (m *mcpSession) call(ctx context.Context, name string, wrapped bool, args json.RawMessage) (json.RawMessage, error) {
	session, err := m.get(ctx)
	if err != nil {
		return nil, err
	}
	_, hidden, err := headersOf(ctx, m.service.o.Secrets, m.owner, m.spec.Headers)
	if err != nil {
		return nil, err
	}
	for _, v := range m.spec.Envs {
		hidden = append(hidden, v)
	}
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, mcp.ErrConnectionClosed) {
			m.drop(session)
			return nil, failed(KindInterrupted, "the connection to the MCP server broke; whether the call was carried out is not known")
		}
		return nil, failed(KindFailed, "%s", without([]byte(err.Error()), append(hidden, secretsIn(m.spec.URL)...)))
	}
	value, err := resultOf(res, wrapped)
	if err != nil {
		return nil, err
	}
	value = without(value, hidden)
	if res.IsError {
		return nil, failed(KindFailed, "%s", cut(plainText(value), 4000))
	}
	return value, nil
}

// resultOf gives the value of a result: what it has as structure, or else its
// text, which is parsed when it is a JSON object or list.
func resultOf(res *mcp.CallToolResult, wrapped bool) (json.RawMessage, error) {
	if res.StructuredContent != nil && !res.IsError {
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			return nil, failed(KindBadResult, "its result is no JSON: %v", err)
		}
		// The same stands beside it as text, in which large numbers are whole and
		// fields in their order.
		if len(res.Content) == 1 {
			if t, ok := res.Content[0].(*mcp.TextContent); ok && sameJSON(t.Text, res.StructuredContent) {
				raw = []byte(t.Text)
			}
		}
		if wrapped {
			if inner := (member{schema: raw}).at("result"); inner != nil {
				return inner, nil
			}
		}
		return raw, nil
	}
	var texts []string
	var parts []json.RawMessage
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
		}
		raw, err := json.Marshal(c)
		if err != nil {
			return nil, failed(KindBadResult, "its result is no JSON: %v", err)
		}
		parts = append(parts, raw)
	}
	switch {
	case len(parts) == 0:
		return json.RawMessage("null"), nil
	case len(texts) < len(parts):
		return json.Marshal(parts)
	}
	text := strings.Join(texts, "\n")
	if trimmed := strings.TrimSpace(text); !res.IsError && len(texts) == 1 && trimmed != "" && (trimmed[0] == '{' || trimmed[0] == '[') && json.Valid([]byte(trimmed)) {
		return json.RawMessage(trimmed), nil
	}
	return json.Marshal(text)
}
