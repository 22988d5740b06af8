package pandastack

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Execution is the outcome of a cell.
type Execution struct{ api.Execution }

// Text is the representation of the last expression, "" without one.
func (e *Execution) Text() string { return e.first("text/plain") }

// HTML is the first result in HTML, "" without one.
func (e *Execution) HTML() string { return e.first("text/html") }

// PNG is the first picture, nil without one.
func (e *Execution) PNG() []byte {
	b, err := base64.StdEncoding.DecodeString(e.first("image/png"))
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

func (e *Execution) first(mime string) string {
	for _, r := range e.Results {
		if v, ok := r[mime]; ok {
			return v
		}
	}
	return ""
}

// Failed tells whether the cell did not end well; Error says why.
func (e *Execution) Failed() bool { return e.End != api.EndOK }

// CodeContext is a handle on one interpreter that keeps its state from cell to
// cell.
type CodeContext struct {
	ID   string
	Info api.Context

	client *Client
	path   string
}

func (s *Sandbox) context(info api.Context) *CodeContext {
	return &CodeContext{ID: info.ID, Info: info, client: s.client, path: s.path + "/repl/sessions/" + url.PathEscape(info.ID)}
}

// CreateContext makes a code context. The zero request is Python in
// /workspace.
func (s *Sandbox) CreateContext(ctx context.Context, req api.CreateContextRequest) (*CodeContext, error) {
	if req.Language == "" {
		req.Language = "python"
	}
	var info api.Context
	if err := s.client.call(ctx, http.MethodPost, s.path+"/repl/sessions", nil, req, &info); err != nil {
		return nil, err
	}
	return s.context(info), nil
}

// Contexts lists the code contexts.
func (s *Sandbox) Contexts(ctx context.Context) ([]api.Context, error) {
	var list []api.Context
	return list, s.client.call(ctx, http.MethodGet, s.path+"/repl/sessions", nil, nil, &list)
}

// Context gives a handle on a code context without asking whether it exists.
// "" is "default", which is made on first use.
func (s *Sandbox) Context(id string) *CodeContext {
	return s.context(api.Context{ID: first(id, api.DefaultContext)})
}

// RunCode runs Python in the context "default".
func (s *Sandbox) RunCode(ctx context.Context, code string, o ...RunOptions) (*Execution, error) {
	return s.Context("").Run(ctx, code, o...)
}

// RunOnce runs code in a language of Languages and keeps nothing: no variables
// of before, none for later. A timeout of 0 is 30 seconds.
func (s *Sandbox) RunOnce(ctx context.Context, language, code string, timeout time.Duration) (*Execution, error) {
	var res api.OneShotResult
	req := api.OneShotRequest{Language: language, Code: code, TimeoutMS: timeout.Milliseconds()}
	if err := s.client.call(ctx, http.MethodPost, s.path+"/repl", nil, req, &res); err != nil {
		return nil, err
	}
	return &Execution{res.Execution}, nil
}

// Languages lists what RunOnce knows.
func (s *Sandbox) Languages(ctx context.Context) ([]string, error) {
	var l api.Languages
	err := s.client.call(ctx, http.MethodGet, s.path+"/repl/languages", nil, nil, &l)
	return l.Languages, err
}

// RunOptions say how a cell runs. The zero value gives it 30 seconds.
type RunOptions struct {
	Timeout     time.Duration
	ExecutionID string // chosen at random when empty
	Detach      bool   // go on when nobody listens
}

func (o RunOptions) request(code string) api.RunRequest {
	return api.RunRequest{
		Code: code, TimeoutMS: o.Timeout.Milliseconds(), Detach: o.Detach, ExecutionID: first(o.ExecutionID, newID()),
	}
}

func one(o []RunOptions) RunOptions {
	if len(o) > 0 {
		return o[0]
	}
	return RunOptions{}
}

// Run runs a cell and waits for its end. When the connection breaks it attaches
// to the same execution again; the cell never runs twice.
func (c *CodeContext) Run(ctx context.Context, code string, o ...RunOptions) (*Execution, error) {
	req := one(o).request(code)
	ex := new(Execution)
	// The same id with the same code attaches: sending it again is safe.
	err := again(ctx, func() error { return c.client.call(ctx, http.MethodPost, c.path+"/run", nil, req, &ex.Execution) })
	if err != nil {
		return nil, err
	}
	return ex, nil
}

// Stream runs a cell and gives its events as they happen, the last of type
// "end". When the connection breaks it attaches again from the last number.
func (c *CodeContext) Stream(ctx context.Context, code string, o ...RunOptions) iter.Seq2[api.Event, error] {
	req := one(o).request(code)
	sent := false
	open := func(after int64) iter.Seq2[sseEvent, error] {
		if sent && after > 0 {
			return c.attach(ctx, req.ExecutionID, after)
		}
		sent = true
		return c.client.events(ctx, http.MethodPost, c.path+"/run/stream", nil, req)
	}
	return c.client.follow(ctx, 0, open)
}

// Attach gives the events of an execution with numbers above after.
func (c *CodeContext) Attach(ctx context.Context, executionID string, after int64) iter.Seq2[api.Event, error] {
	return c.client.follow(ctx, after, func(after int64) iter.Seq2[sseEvent, error] {
		return c.attach(ctx, executionID, after)
	})
}

func (c *CodeContext) attach(ctx context.Context, eid string, after int64) iter.Seq2[sseEvent, error] {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}}
	return c.client.events(ctx, http.MethodGet, c.path+"/executions/"+url.PathEscape(eid), q, nil)
}

// Wait waits for an execution and gives it whole.
func (c *CodeContext) Wait(ctx context.Context, executionID string) (*Execution, error) {
	ex := new(Execution)
	if err := c.client.call(ctx, http.MethodGet, c.path+"/executions/"+url.PathEscape(executionID), nil, nil, &ex.Execution); err != nil {
		return nil, err
	}
	return ex, nil
}

// Refresh brings Info up to date.
func (c *CodeContext) Refresh(ctx context.Context) error {
	var info api.Context
	if err := c.client.call(ctx, http.MethodGet, c.path, nil, nil, &info); err != nil {
		return err
	}
	c.Info = info
	return nil
}

// Interrupt stops the running cell, if any.
func (c *CodeContext) Interrupt(ctx context.Context) error {
	return c.client.call(ctx, http.MethodPost, c.path+"/interrupt", nil, nil, nil)
}

// Restart gives the context a new interpreter. Its variables are gone.
func (c *CodeContext) Restart(ctx context.Context) error {
	return c.client.call(ctx, http.MethodPost, c.path+"/restart", nil, nil, &c.Info)
}

// Fork makes count copies of the context, 1 to 32, each with all its variables;
// memory is shared until one of them writes. It waits up to 10 s for running
// cells. The warnings name what the copies lack or share with the original:
// threads, open files, connections.
func (c *CodeContext) Fork(ctx context.Context, count int) (copies []*CodeContext, warnings []string, err error) {
	var out api.ForkContextResponse
	if err := c.client.call(ctx, http.MethodPost, c.path+"/fork", nil, api.ForkContextRequest{Count: count}, &out); err != nil {
		return nil, nil, err
	}
	sessions := c.path[:strings.LastIndexByte(c.path, '/')+1]
	for _, info := range out.Children {
		copies = append(copies, &CodeContext{ID: info.ID, Info: info, client: c.client, path: sessions + url.PathEscape(info.ID)})
	}
	return copies, out.Warnings, nil
}

// Close ends the context. Closing it twice is no error.
func (c *CodeContext) Close(ctx context.Context) error {
	err := c.client.call(ctx, http.MethodDelete, c.path, nil, nil, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// newID makes a random UUID.
func newID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
