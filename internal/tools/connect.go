package tools

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

// functions are those of a program: a call goes to the one that is connected.
func (s *Service) functions(list []api.ToolFunction) []Tool {
	var out []Tool
	for _, f := range list {
		out = append(out, Tool{
			Name: f.Name, Source: "function", Description: f.Description, Parameters: f.Parameters, Returns: f.Returns, Risky: f.Risky,
			Timeout: time.Duration(f.TimeoutSeconds * float64(time.Second)),
			Do: func(ctx context.Context, c Call) (json.RawMessage, error) {
				conn := s.firstConnection(ctx, c.SandboxID)
				if conn == nil {
					return nil, failed(KindUnavailable, "the program that has this function is not connected")
				}
				return conn.call(ctx, c)
			},
		})
	}
	return out
}

// firstConnection gives the program that is connected. One that has not been
// there yet is waited for, once: it connects when it has heard of its sandbox or run.
func (s *Service) firstConnection(ctx context.Context, sandbox string) *Connection {
	b := s.known(sandbox)
	if b == nil {
		return nil // it has ended
	}
	late := time.NewTimer(firstTime)
	defer late.Stop()
	for {
		s.mu.Lock()
		came := s.came
		s.mu.Unlock()
		conn := s.connection(store.Sandbox{ID: sandbox})
		b.mu.Lock()
		b.met = b.met || conn != nil
		met := b.met
		b.mu.Unlock()
		if conn != nil || met {
			return conn
		}
		select {
		case <-came:
		case <-late.C:
			b.mu.Lock()
			b.met = true // it was waited for, once
			b.mu.Unlock()
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

const firstTime = 10 * time.Second

// connection is the program that is connected for a sandbox, or for the run that
// it belongs to; nil when none is.
func (s *Service) connection(sb store.Sandbox) *Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[sb.ID]; c != nil {
		return c
	}
	if b := s.boxes[sb.ID]; b != nil {
		b.mu.Lock()
		run := b.run
		b.mu.Unlock()
		if run != "" {
			return s.conns[run]
		}
	}
	return nil
}

// Connection is a program that has functions of a sandbox or of an agent's run.
type Connection struct {
	s     *Service
	scope string
	send  func(api.ToolMessage) error

	mu    sync.Mutex
	waits map[string]chan api.ToolResult
	why   error
	done  chan struct{}
}

// Connect notes that a program is there. A newer one for the same scope, which
// is the id of a sandbox or of an agent's run, takes the place of an older. send
// must not wait for long.
func (s *Service) Connect(scope string, send func(api.ToolMessage) error) *Connection {
	c := &Connection{s: s, scope: scope, send: send, waits: map[string]chan api.ToolResult{}, done: make(chan struct{})}
	s.mu.Lock()
	old := s.conns[scope]
	s.conns[scope] = c
	close(s.came)
	s.came = make(chan struct{})
	s.mu.Unlock()
	if old != nil {
		old.end(errReplaced)
	}
	return c
}

var errReplaced = errors.New("another program connected in its place")

// Done is closed when the program is not wanted any more; Why says why.
func (c *Connection) Done() <-chan struct{} { return c.done }

// Why says why it ended.
func (c *Connection) Why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// Close says that the program is gone. Its calls in flight are interrupted, and
// never sent again.
func (c *Connection) Close() {
	c.s.mu.Lock()
	if c.s.conns[c.scope] == c {
		delete(c.s.conns, c.scope)
	}
	c.s.mu.Unlock()
	c.end(errors.New("the program left"))
}

func (c *Connection) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil {
		c.why = why
		close(c.done)
	}
}

// Hear takes an answer. One that nobody waits for is left out.
func (c *Connection) Hear(said api.ToolResult) {
	c.mu.Lock()
	wait := c.waits[said.CallID]
	delete(c.waits, said.CallID)
	c.mu.Unlock()
	if wait != nil {
		wait <- said
	}
}

func (c *Connection) call(ctx context.Context, call Call) (json.RawMessage, error) {
	wait := make(chan api.ToolResult, 1)
	c.mu.Lock()
	c.waits[call.ID] = wait
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waits, call.ID)
		c.mu.Unlock()
	}()
	err := c.send(api.ToolMessage{
		Type: "tool_call", CallID: call.ID, SandboxID: call.SandboxID, ContextID: call.ContextID, ExecutionID: call.ExecutionID,
		Tool: call.Tool, Arguments: call.Arguments,
	})
	if err != nil {
		return nil, failed(KindInterrupted, "the connection to the program that has this function broke; whether it was carried out is not known")
	}
	select {
	case said := <-wait:
		if said.Error != nil {
			e := Error(*said.Error)
			if e.Kind == "" {
				e.Kind = KindFailed
			}
			return nil, &e
		}
		return said.Result, nil
	case <-c.done:
		return nil, failed(KindInterrupted, "the connection to the program that has this function broke; whether it was carried out is not known")
	case <-ctx.Done():
		_ = c.send(api.ToolMessage{Type: "tool_cancel", CallID: call.ID}) // a connection that broke shows where it is read
		return nil, ctx.Err()
	}
}
