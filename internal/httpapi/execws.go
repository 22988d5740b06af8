package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const wsCommands = 32 // that run on one connection at once

// wsRequest is what a client says: run this under an id of its choice, or
// cancel what runs under it.
type wsRequest struct {
	ID     string      `json:"id"`
	Cancel bool        `json:"cancel,omitempty"`
	Cmd    api.Command `json:"cmd,omitempty"` // absent when it cancels
	api.ExecRequest
}

// The messages to the client.
type (
	wsOutput struct {
		ID      string `json:"id"`
		Stream  string `json:"stream"`
		Data    string `json:"data"`
		Dropped int64  `json:"dropped,omitempty"` // bytes that are missing here
	}
	wsEnd struct {
		ID string `json:"id"`
		// A pointer keeps an exit of 0 and leaves out that of an error.
		Exit *int `json:"exit,omitempty"`
		// Of an error.
		Error string   `json:"error,omitempty"`
		Code  api.Code `json:"code,omitempty"`
		Hint  string   `json:"hint,omitempty"`
		Field string   `json:"field,omitempty"`
	}
)

// execWS runs commands over one WebSocket, several at once. They end with the
// connection.
func (s *Server) execWS(w http.ResponseWriter, r *http.Request) error {
	if err := s.reachable(r); err != nil {
		return err
	}
	conn, err := upgrade(w, r)
	if conn == nil {
		return err
	}
	conn.SetReadLimit(maxBody)
	ctx, cancel := context.WithCancel(r.Context())
	m := &wsMux{server: s, request: r, conn: conn, running: map[string]context.CancelCauseFunc{}}
	var pings sync.WaitGroup
	pings.Go(func() { ping(ctx, conn) })
	stateOf(r.Context()).err = m.read(ctx)
	cancel()
	m.commands.Wait()
	pings.Wait()
	goodbye(r, conn)
	return nil
}

// reachable asks for the guest first, so that a sandbox that is not there is an
// ordinary 404 of a request for a WebSocket.
func (s *Server) reachable(r *http.Request) error {
	_, done, err := s.Sandboxes.Guest(r.Context(), owner(r), r.PathValue("id"))
	if err == nil {
		done()
	}
	return err
}

// wsMux is the commands of one connection.
type wsMux struct {
	server   *Server
	request  *http.Request
	conn     *websocket.Conn
	commands sync.WaitGroup

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc
}

// errCancelled is the end of a command that its client has cancelled.
var errCancelled = fault.New(api.CodeConflict, "cancelled: the command was killed, with all that it had started")

// read takes requests until the connection ends.
func (m *wsMux) read(ctx context.Context) error {
	for {
		_, raw, err := m.conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != -1 {
				return nil // the client said goodbye
			}
			return err
		}
		var req wsRequest
		if err := json.Unmarshal(raw, &req); err != nil {
			m.fail(ctx, req.ID, explain(err))
			continue
		}
		if err := m.take(ctx, req); err != nil {
			m.fail(ctx, req.ID, err)
		}
	}
}

func (m *wsMux) take(ctx context.Context, req wsRequest) error {
	if err := clientName("id", req.ID); err != nil {
		return err
	}
	if req.ID == "" {
		return fault.InvalidField("id", "id is missing")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stop := m.running[req.ID]
	if req.Cancel {
		if stop != nil {
			stop(errCancelled)
		}
		return nil // what has ended needs no cancelling
	}
	if stop != nil {
		return fault.New(api.CodeConflict, "a command with the id %s runs already", shown(req.ID))
	}
	if len(m.running) >= wsCommands {
		return fault.New(api.CodeRateLimited, "%d commands run on this connection, the most there may be", wsCommands)
	}
	req.ExecRequest.Cmd = req.Cmd
	if err := checkExec(req.ExecRequest); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	m.running[req.ID] = cancel
	m.commands.Go(func() {
		defer cancel(nil)
		code, err := m.run(ctx, req)
		if errors.Is(context.Cause(ctx), errCancelled) {
			err = errCancelled
		}
		m.mu.Lock()
		delete(m.running, req.ID) // before the last word, after which the id may be used again
		m.mu.Unlock()
		if err != nil {
			m.fail(m.request.Context(), req.ID, err)
			return
		}
		_ = m.send(m.request.Context(), wsEnd{ID: req.ID, Exit: &code}) // whoever is gone reads nothing
	})
	return nil
}

// run passes a command's output on and returns its exit code.
func (m *wsMux) run(ctx context.Context, req wsRequest) (code int, err error) {
	r := m.request
	for e, err := range m.server.Commands.ExecStream(ctx, owner(r), r.PathValue("id"), req.ExecRequest) {
		if err != nil {
			return 0, err
		}
		switch e.Type {
		case api.EventStdout, api.EventStderr:
			err = m.send(ctx, wsOutput{ID: req.ID, Stream: e.Type, Data: textOf(e)})
		case api.EventGap:
			err = m.send(ctx, wsOutput{ID: req.ID, Stream: e.Stream, Dropped: e.Dropped})
		case api.EventExit:
			if e.Exit.Reason == api.ReasonTimeout {
				return 0, errDeadline
			}
			return e.Exit.Code, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errNoExit
}

func (m *wsMux) fail(ctx context.Context, id string, err error) {
	body, _ := m.server.failure(m.request, err)
	_ = m.send(ctx, wsEnd{ID: id, Error: body.Message, Code: body.Code, Hint: body.Hint, Field: body.Field})
}

func (m *wsMux) send(ctx context.Context, message any) error { return say(ctx, m.conn, message) }
