package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// maxTyped is how much input may wait for a program to read it.
const maxTyped = 1 << 20

// The messages of a terminal that are text. Bytes of output and of input travel
// as binary messages.
type (
	// ptySaid is what a client says.
	ptySaid struct {
		Stdin  *string  `json:"stdin,omitempty"`
		Resize *api.PTY `json:"resize,omitempty"`
	}
	// ptyNumber comes before a binary message whose number is not that of the
	// event before plus one.
	ptyNumber struct {
		Seq int64 `json:"seq"`
	}
	// ptyGap says that output is missing here.
	ptyGap struct {
		Seq     int64 `json:"seq"`
		Dropped int64 `json:"dropped"`
	}
	// ptyExit is the last message.
	ptyExit struct {
		Exit   int    `json:"exit"`
		Reason string `json:"reason,omitempty"`
		Signal string `json:"signal,omitempty"`
	}
	// ptyError says what went wrong, with the input or, as the last message, at all.
	ptyError struct {
		Error string   `json:"error"`
		Code  api.Code `json:"code"`
		Hint  string   `json:"hint,omitempty"`
		Field string   `json:"field,omitempty"`
	}
)

func (s *Server) resizeProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	var req api.PTY
	if err := decode(w, r, &req); err != nil {
		return err
	}
	size, err := guestapi.CheckPTY(req)
	if err != nil {
		return err
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.ResizeProcess(ctx, pid, size))
	})
}

// execPTY starts a shell, or ?cmd=, on a terminal and is at it. The process
// ends with the connection.
func (s *Server) execPTY(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	start, err := ptyOf(q)
	if err != nil {
		return err
	}
	if err := s.reachable(r); err != nil {
		return err
	}
	if r.Header.Get("Upgrade") == "" { // nothing is started for nobody
		_, err := upgrade(w, r)
		return err
	}
	var p api.Process
	err = s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) (err error) {
		p, err = g.StartProcess(ctx, start)
		return err
	})
	if err != nil {
		return err
	}
	t := &terminal{server: s, request: r, pid: p.PID}
	conn, err := upgrade(w, r)
	if conn == nil {
		t.kill()
		return err
	}
	t.conn = conn
	if ended := t.serve(0); !ended && !errors.Is(context.Cause(r.Context()), ErrStopping) {
		t.kill() // that a daemon ends is nobody's leaving
	}
	return nil
}

// ptyOf reads what is to be started from a query.
func ptyOf(q url.Values) (start guestapi.StartProcess, err error) {
	rows, err := natural(q, "rows", 0)
	if err != nil {
		return start, err
	}
	cols, err := natural(q, "cols", 0)
	if err != nil {
		return start, err
	}
	size, err := guestapi.CheckPTY(api.PTY{Rows: int(rows), Cols: int(cols)})
	if err != nil {
		return start, err
	}
	cmd := api.Command{Argv: []string{"/bin/bash", "-l"}}
	if line := q.Get("cmd"); line != "" {
		cmd = api.Command{Shell: line}
	}
	start = guestapi.StartProcess{Argv: cmd.Args(), Command: cmd, CWD: guestapi.Workspace, User: q.Get("user"), PTY: &size}
	if cwd := q.Get("cwd"); cwd != "" {
		start.CWD = cwd
	}
	return start, checkCommand(cmd, start.CWD, nil, start.User)
}

// attachProcess is at the terminal of a process that runs or has ended, from an
// event on. The process does not end with the connection.
func (s *Server) attachProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	after, err := attachAfter(r)
	if err != nil {
		return err
	}
	var p api.Process
	err = s.withGuest(r, func(ctx context.Context, g *guest.Client) (err error) {
		p, err = g.Process(ctx, pid)
		return err
	})
	switch {
	case err != nil:
		return err
	case p.PTY == nil:
		return fault.New(api.CodeConflict, "process %d has no terminal", pid).WithHint("follow it with GET …/processes/%d/stream", pid)
	case after > p.LastEvent || after == p.LastEvent && !p.Running:
		return fault.InvalidField("after", "there is no event after number %d: the last one is %d", after, p.LastEvent)
	}
	conn, err := upgrade(w, r)
	if conn == nil {
		return err
	}
	(&terminal{server: s, request: r, conn: conn, pid: pid, numbered: true}).serve(after)
	return nil
}

// terminal is one WebSocket at a terminal.
type terminal struct {
	server   *Server
	request  *http.Request
	conn     *websocket.Conn
	pid      int
	numbered bool // the client wants to come back to where it was

	mu     sync.Mutex
	typed  []byte        // and not read yet
	typing chan struct{} // has one when there is something in typed
}

// serve passes output and input on until the process has ended or the client
// is gone.
func (t *terminal) serve(after int64) (ended bool) {
	t.typing = make(chan struct{}, 1)
	t.conn.SetReadLimit(maxTyped)
	r := t.request
	ctx, cancel := context.WithCancel(r.Context())
	var beside sync.WaitGroup
	beside.Go(func() { ping(ctx, t.conn) })
	beside.Go(func() { t.typeIn(ctx) })
	var failure error
	beside.Go(func() {
		ended, failure = t.output(ctx, after)
		if failure != nil && ctx.Err() == nil {
			t.tell(failure)
		}
		goodbye(r, t.conn) // which ends the reading
	})
	err := t.read(ctx)
	cancel()
	beside.Wait()
	if failure == nil && !ended {
		failure = err
	}
	stateOf(r.Context()).err = failure
	return ended
}

// output sends what the process writes, across links that break.
func (t *terminal) output(ctx context.Context, after int64) (ended bool, err error) {
	last := after
	link := func(ctx context.Context) (*guest.Client, func(), error) {
		return t.server.Sandboxes.Guest(ctx, owner(t.request), t.request.PathValue("id"))
	}
	open := func(ctx context.Context, g *guest.Client, after int64) (*guest.Events, error) {
		return g.ProcessEvents(ctx, t.pid, after, true)
	}
	for e, err := range guest.Follow(ctx, after, link, open) {
		if err != nil {
			return false, err
		}
		switch e.Type {
		case api.EventStdout:
			if t.numbered && e.Seq != last+1 {
				err = say(ctx, t.conn, ptyNumber{e.Seq})
			}
			if err == nil {
				err = write(ctx, t.conn, websocket.MessageBinary, bytesOf(e))
			}
			last = e.Seq
		case api.EventGap:
			if t.numbered {
				err = say(ctx, t.conn, ptyGap{e.Seq, e.Dropped})
			}
			last = e.Seq
		case api.EventExit:
			return true, say(ctx, t.conn, ptyExit{e.Exit.Code, e.Exit.Reason, e.Exit.Signal})
		}
		if err != nil {
			return false, err
		}
	}
	return false, errNoExit
}

func bytesOf(e api.Event) []byte {
	if e.Raw != nil {
		return e.Raw
	}
	return []byte(e.Text)
}

// read takes what the client says until it leaves.
func (t *terminal) read(ctx context.Context) error {
	for {
		kind, raw, err := t.conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != -1 {
				return nil // it said goodbye
			}
			return err
		}
		if kind == websocket.MessageText {
			raw, err = t.hear(ctx, raw)
		}
		if err == nil {
			err = t.take(raw)
		}
		if err != nil {
			t.tell(err)
		}
	}
}

// hear reads a message of text and gives the input in it.
func (t *terminal) hear(ctx context.Context, raw []byte) ([]byte, error) {
	var said ptySaid
	if err := json.Unmarshal(raw, &said); err != nil {
		return nil, explain(err)
	}
	if said.Resize != nil {
		size, err := guestapi.CheckPTY(*said.Resize)
		if err != nil {
			return nil, err
		}
		err = t.server.withGuest(t.request, func(ctx context.Context, g *guest.Client) error {
			return g.ResizeProcess(ctx, t.pid, size)
		})
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
	}
	if said.Stdin != nil {
		return []byte(*said.Stdin), nil
	}
	return nil, nil
}

// take keeps input for the program, which may take its time to read it; the
// client's next message is not waited with for that.
func (t *terminal) take(input []byte) error {
	if len(input) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.typed)+len(input) > maxTyped {
		return fault.New(api.CodeRateLimited, "%d bytes of input wait for process %d to read them, the most there may be: the rest is left out", len(t.typed), t.pid)
	}
	t.typed = append(t.typed, input...)
	select {
	case t.typing <- struct{}{}:
	default:
	}
	return nil
}

// typeIn passes input on as fast as the program reads it.
func (t *terminal) typeIn(ctx context.Context) {
	for {
		select {
		case <-t.typing:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		input := t.typed
		t.typed = nil
		t.mu.Unlock()
		g, done, err := t.server.Sandboxes.Guest(guest.Unrepeatable(ctx), owner(t.request), t.request.PathValue("id"))
		if err == nil {
			err = g.WriteStdin(ctx, t.pid, bytes.NewReader(input))
			done()
		}
		ended := errors.Is(err, fault.Conflict) && !errors.Is(err, guest.ErrLinkLost) // which is told as such
		if err != nil && ctx.Err() == nil && !ended {
			t.tell(err)
		}
	}
}

// tell says what went wrong.
func (t *terminal) tell(err error) {
	body, _ := t.server.failure(t.request, err)
	_ = say(t.request.Context(), t.conn, ptyError{body.Message, body.Code, body.Hint, body.Field}) // whoever is gone reads nothing
}

// kill ends the process of a client that is gone.
func (t *terminal) kill() {
	ctx, cancel := context.WithTimeout(guest.WithoutWaking(context.WithoutCancel(t.request.Context())), bodyTime)
	defer cancel()
	g, done, err := t.server.Sandboxes.Guest(ctx, owner(t.request), t.request.PathValue("id"))
	if err == nil {
		err = g.KillProcess(ctx, t.pid)
		done()
	}
	if err != nil && !errors.Is(err, fault.NotFound) {
		stateOf(t.request.Context()).err = err
	}
}
