package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// Tools lists the functions outside that Python in the sandbox can call. They
// are given at create, in CreateOptions.Tools.
func (s *Sandbox) Tools(ctx context.Context) (api.ToolList, error) {
	var l api.ToolList
	return l, s.client.call(ctx, http.MethodGet, s.path+"/tools", nil, nil, &l)
}

// SetTools gives the sandbox other tools, also while it runs: t, and functions of
// this program, which are called as those of Create are. Calls in progress go on as
// they began.
func (s *Sandbox) SetTools(ctx context.Context, t api.Tools, functions ...Function) (api.ToolList, error) {
	var l api.ToolList
	if err := s.client.call(ctx, http.MethodPut, s.path+"/tools", nil, with(&t, functions), &l); err != nil {
		return l, err
	}
	return l, s.connect(ctx, functions)
}

// ToolCalls gives the last calls, the newest last; limit 0: a hundred of them.
func (s *Sandbox) ToolCalls(ctx context.Context, limit int) ([]api.ToolCall, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var l api.ToolCalls
	return l.Calls, s.client.call(ctx, http.MethodGet, s.path+"/tools/calls", q, nil, &l)
}

// ApprovalFilter says which approvals are meant; empty fields are any.
type ApprovalFilter struct {
	SandboxID string
	AgentID   string
	Status    string // such as api.ApprovalPending
}

// Approvals lists calls of tools that wait for a decision, or had one, the
// oldest first.
func (c *Client) Approvals(ctx context.Context, f ApprovalFilter) ([]api.Approval, error) {
	q := url.Values{}
	for name, v := range map[string]string{"sandbox_id": f.SandboxID, "agent_id": f.AgentID, "status": f.Status} {
		if v != "" {
			q.Set(name, v)
		}
	}
	var l api.Approvals
	return l.Approvals, c.call(ctx, http.MethodGet, "/approvals", q, nil, &l)
}

// Approval gives one.
func (c *Client) Approval(ctx context.Context, id string) (api.Approval, error) {
	var a api.Approval
	return a, c.call(ctx, http.MethodGet, "/approvals/"+url.PathEscape(id), nil, nil, &a)
}

// Decide lets a call that waits go on, or denies it. Of two decisions the first
// counts; the error of the other one is a conflict.
func (c *Client) Decide(ctx context.Context, id string, d api.Decision) (api.Approval, error) {
	var a api.Approval
	return a, c.call(ctx, http.MethodPost, "/approvals/"+url.PathEscape(id), nil, d, &a)
}

// ToolFunc carries out a call: see [Function].
type ToolFunc func(ctx context.Context, call api.ToolMessage) (any, error)

// ToolError is a failure with a kind, as Python in the sandbox sees it.
type ToolError api.ToolFailure

func (e *ToolError) Error() string { return e.Message }

// ServeTools has functions of this program called by a sandbox that has their names
// among its tools, as one that an earlier process of this program made, until the
// context ends, the sandbox does, or another program serves it. A connection that
// breaks is made again; calls that were in flight then have failed for the sandbox,
// and are not carried out again. ready, unless it is nil, is called when calls are
// taken for the first time.
func (s *Sandbox) ServeTools(ctx context.Context, functions []Function, ready func()) error {
	return s.client.serveTools(ctx, s.path+"/tools/connect", functions, ready)
}

// ServeAgentTools is the same for an agent's run that goes on.
func (c *Client) ServeAgentTools(ctx context.Context, run string, functions []Function, ready func()) error {
	return c.serveTools(ctx, "/agents/"+url.PathEscape(run)+"/connect", functions, ready)
}

const (
	toolsFirstWait   = 100 * time.Millisecond // before it connects again
	toolsLongestWait = 5 * time.Second
	toolsPing        = 20 * time.Second // how often the server must show that it is there
	toolsResult      = 64 << 20         // bytes; the server takes no longer message
)

func (c *Client) serveTools(ctx context.Context, path string, functions []Function, ready func()) error {
	byName := map[string]ToolFunc{}
	for _, f := range functions {
		byName[f.Name] = f.Do
	}
	var work sync.WaitGroup // a function that does not heed its context holds up the end, and no other connection
	defer work.Wait()
	pause, connected := toolsFirstWait, false
	for {
		err := c.connectTools(ctx, path, byName, &work, func() {
			if !connected && ready != nil {
				ready()
			}
			pause, connected = toolsFirstWait, true
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !connected || notWanted(err):
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, toolsLongestWait)
	}
}

// notWanted tells whether the server will not take this program's functions any
// more, whatever it tries.
func notWanted(err error) bool {
	var refused *Error
	if errors.As(err, &refused) {
		return slices.Contains([]int{401, 403, 404, 409, 410, 501}, refused.StatusCode)
	}
	return websocket.CloseStatus(err) == websocket.StatusPolicyViolation
}

// connectTools serves one connection.
func (c *Client) connectTools(ctx context.Context, path string, functions map[string]ToolFunc, work *sync.WaitGroup, ready func()) error {
	conn, res, err := websocket.Dial(ctx, c.base+path, &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: c.headers()})
	if err != nil {
		if res != nil && res.StatusCode >= 300 {
			return readError(res)
		}
		return connectionError(ctx, c.root, err)
	}
	defer conn.CloseNow()
	conn.SetReadLimit(32 << 20)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &toolServer{conn: conn, functions: functions, work: work, running: map[string]context.CancelFunc{}}
	t.work.Go(func() { t.ping(ctx) })
	for {
		_, raw, err := conn.Read(ctx)
		if err != nil {
			if ctx.Err() != nil {
				_ = conn.Close(websocket.StatusNormalClosure, "")
				return context.Cause(ctx)
			}
			return fmt.Errorf("pandastack: the connection for tools: %w", err)
		}
		var m api.ToolMessage
		if err := json.Unmarshal(raw, &m); err != nil {
			return fmt.Errorf("pandastack: a message that is none: %w", err)
		}
		if m.Type == "connected" {
			ready()
		}
		t.hear(ctx, m)
	}
}

type toolServer struct {
	conn      *websocket.Conn
	functions map[string]ToolFunc
	work      *sync.WaitGroup

	mu      sync.Mutex
	running map[string]context.CancelFunc
}

// ping finds out about a server that is gone without a word.
func (t *toolServer) ping(ctx context.Context) {
	for {
		select {
		case <-time.After(toolsPing):
		case <-ctx.Done():
			return
		}
		pong, cancel := context.WithTimeout(ctx, toolsPing)
		err := t.conn.Ping(pong)
		cancel()
		if err != nil {
			_ = t.conn.CloseNow() // which ends the reading
			return
		}
	}
}

func (t *toolServer) hear(ctx context.Context, m api.ToolMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m.Type {
	case "tool_cancel":
		if cancel := t.running[m.CallID]; cancel != nil {
			cancel()
		}
	case "tool_call":
		ctx, cancel := context.WithCancel(ctx)
		t.running[m.CallID] = cancel
		t.work.Go(func() {
			defer cancel()
			t.answer(ctx, m)
			t.mu.Lock()
			delete(t.running, m.CallID)
			t.mu.Unlock()
		})
	}
}

func (t *toolServer) answer(ctx context.Context, m api.ToolMessage) {
	out := api.ToolResult{Type: "tool_result", CallID: m.CallID}
	var value any
	err := error(&ToolError{Kind: "not_found", Message: "this program has no function " + m.Tool})
	if f := t.functions[m.Tool]; f != nil {
		value, err = f(ctx, m)
	}
	if err == nil {
		if out.Result, err = json.Marshal(value); err != nil {
			err = &ToolError{Kind: "bad_result", Message: "what it gave cannot be JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
		} else if len(out.Result) > toolsResult {
			err = &ToolError{Kind: "too_large", Message: "its result has more than 64 MiB of JSON", Hint: "give less, or in parts"}
		}
	}
	if err != nil {
		f := api.ToolFailure{Kind: "failed", Message: err.Error()}
		var e *ToolError
		if errors.As(err, &e) {
			f = api.ToolFailure(*e)
		}
		out.Result, out.Error = nil, &f
	}
	raw, err := json.Marshal(out)
	if err == nil && ctx.Err() == nil {
		_ = t.conn.Write(ctx, websocket.MessageText, raw) // a connection that broke shows where it is read
	}
}
