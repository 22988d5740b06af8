package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/tools"
)

// Tools are functions that programs in sandboxes call and that run outside.
type Tools interface {
	Connect(scope string, send func(api.ToolMessage) error) *tools.Connection
	Calls(sandbox string, n int) []api.ToolCall
	Approvals(ctx context.Context, owner, sandbox, agent, status string, limit int) ([]api.Approval, error)
	Approval(ctx context.Context, owner, id string) (api.Approval, error)
	Decide(ctx context.Context, owner, by, id string, d api.Decision) (api.Approval, error)
}

var _ Tools = (*tools.Service)(nil)

const (
	defaultCalls  = 100
	maxCalls      = 1000 // in one answer
	maxApprovals  = 1000 // in one answer
	maxToolResult = guestapi.MaxCallAnswer + 1<<20
)

func (s *Server) tools() (Tools, error) {
	if s.Tools == nil {
		return nil, fault.New(api.CodeUnsupported, "this server has no tools")
	}
	return s.Tools, nil
}

// checkTools refuses tools that a key may not have this machine call: addresses
// of its choice are an administrator's to name.
func (s *Server) checkTools(r *http.Request, t *api.Tools) error {
	if t == nil || stateOf(r.Context()).who.Scope.Covers(auth.Admin) {
		return nil
	}
	for name, h := range t.HTTP {
		for field, u := range map[string]string{"url": h.URL, "base_url": h.BaseURL} {
			if u != "" && !s.callable(u) {
				return errAddress("tools.http."+name+"."+field, u)
			}
		}
		if h.BaseURL == "" && (h.URL == "" || !s.callable(h.URL)) {
			return errAddress("tools.http."+name+".base_url", "")
		}
	}
	for name, m := range t.MCP {
		if !s.callable(m.URL) {
			return errAddress("tools.mcp."+name+".url", m.URL)
		}
	}
	return nil
}

func (s *Server) callable(u string) bool {
	plain, err := url.PathUnescape(u)
	if err != nil || strings.Contains(plain, "..") { // which leads above, however it is written
		return false
	}
	for _, prefix := range s.ToolURLs {
		if u == prefix || strings.HasPrefix(u, strings.TrimRight(prefix, "/")+"/") {
			return true
		}
	}
	return false
}

func errAddress(field, u string) error {
	e := fault.New(api.CodeDenied, "this key may not have the server call %.200q", api.ShownURL(u))
	if u == "" {
		e = fault.New(api.CodeDenied, "this key may not have the server call an address that the service's document names: give base_url")
	}
	e.Field = field
	return e.WithHint("use a key with the scope admin, or have the address put into the setting tool_urls, or the tool declared in the setting tools")
}

func (s *Server) listTools(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Sandboxes.Tools(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, list, err)
}

func (s *Server) putTools(w http.ResponseWriter, r *http.Request) error {
	var t api.Tools
	if err := decode(w, r, &t); err != nil {
		return err
	}
	if err := s.checkTools(r, &t); err != nil {
		return err
	}
	list, err := s.Sandboxes.SetTools(r.Context(), owner(r), r.PathValue("id"), t)
	return answer(w, list, err)
}

func (s *Server) toolCalls(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	limit, err := upTo(q, "limit", defaultCalls, maxCalls)
	if err != nil {
		return err
	}
	of, err := s.Sandboxes.EventsOf(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	t, err := s.tools()
	if err != nil {
		return err
	}
	return ok(w, api.ToolCalls{Calls: orEmpty(t.Calls(of.SandboxID, int(limit)))})
}

// connectTools is a program that has functions of a sandbox.
func (s *Server) connectTools(w http.ResponseWriter, r *http.Request) error {
	info, err := s.Sandboxes.Get(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.connect(w, r, info.ID)
}

// connectAgent is one that has functions of an agent's run.
func (s *Server) connectAgent(w http.ResponseWriter, r *http.Request) error {
	run, err := s.Agents.Get(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	if run.Status == api.AgentEnded {
		return fault.New(api.CodeConflict, "the run %s has ended", run.ID)
	}
	return s.connect(w, r, run.ID)
}

func (s *Server) connect(w http.ResponseWriter, r *http.Request, scope string) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	conn, err := upgrade(w, r)
	if conn == nil {
		return err
	}
	conn.SetReadLimit(maxToolResult)
	ctx, cancel := context.WithCancel(r.Context())
	c := t.Connect(scope, func(m api.ToolMessage) error { return say(ctx, conn, m) })
	var beside sync.WaitGroup
	beside.Go(func() { ping(ctx, conn) })
	if conn.Subprotocol() == pageProtocol { // a page's code does not hear of pings
		beside.Go(func() {
			every(ctx, wsPing, func() bool { return say(ctx, conn, api.ToolMessage{Type: "ping"}) == nil })
		})
	}
	beside.Go(func() {
		select {
		case <-c.Done():
			_ = conn.Close(websocket.StatusPolicyViolation, c.Why().Error()) // which ends the reading
		case <-ctx.Done():
		}
	})
	if err := say(ctx, conn, api.ToolMessage{Type: "connected"}); err == nil {
		stateOf(r.Context()).err = hearTools(ctx, conn, c)
	}
	c.Close()
	cancel()
	beside.Wait()
	goodbye(r, conn)
	return nil
}

// hearTools takes a program's answers until it leaves.
func hearTools(ctx context.Context, conn *websocket.Conn, c *tools.Connection) error {
	for {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != -1 || errors.Is(ctx.Err(), context.Canceled) {
				return nil
			}
			return err
		}
		var said api.ToolResult
		if err := json.Unmarshal(raw, &said); err != nil || said.Type != "tool_result" {
			// What is no JSON answers no call that could be named.
			_ = say(ctx, conn, map[string]string{"type": "error", "error": "that is no tool_result"})
			continue
		}
		c.Hear(said)
	}
}

var knownApproval = map[string]bool{
	"": true, api.ApprovalPending: true, api.ApprovalApproved: true, api.ApprovalDenied: true, api.ApprovalExpired: true, api.ApprovalCancelled: true,
}

func (s *Server) listApprovals(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if status := q.Get("status"); !knownApproval[status] {
		return fault.InvalidField("status", "there is no status %s", shown(status)).WithHint("pending, approved, denied, expired or cancelled")
	}
	limit, err := upTo(q, "limit", maxApprovals, maxApprovals)
	if err != nil {
		return err
	}
	t, err := s.tools()
	if err != nil {
		return err
	}
	list, err := t.Approvals(r.Context(), owner(r), q.Get("sandbox_id"), q.Get("agent_id"), q.Get("status"), int(limit))
	return answer(w, api.Approvals{Approvals: orEmpty(list)}, err)
}

func (s *Server) getApproval(w http.ResponseWriter, r *http.Request) error {
	t, err := s.tools()
	if err != nil {
		return err
	}
	a, err := t.Approval(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, a, err)
}

func (s *Server) decideApproval(w http.ResponseWriter, r *http.Request) error {
	var d struct {
		Approve *bool  `json:"approve"`
		Reason  string `json:"reason"`
	}
	if err := decode(w, r, &d); err != nil {
		return err
	}
	if d.Approve == nil {
		return fault.InvalidField("approve", "approve must be true or false")
	}
	if err := noNUL("reason", d.Reason); err != nil {
		return err
	}
	t, err := s.tools()
	if err != nil {
		return err
	}
	a, err := t.Decide(r.Context(), owner(r), stateOf(r.Context()).who.Prefix, r.PathValue("id"), api.Decision{Approve: *d.Approve, Reason: d.Reason})
	return answer(w, a, err)
}
