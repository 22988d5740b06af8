package jupyter

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	maxRead    = 32 << 20 // bytes of one message
	writeTime  = 60 * time.Second
	pingEvery  = 20 * time.Second
	infoTime   = 2 * time.Second // for a kernel to tell its version, while a cell may run
	actionTime = 30 * time.Second
)

// client is a front end, connected or away for a while.
type client struct {
	room     *room
	session  string
	requests chan *Message // of the shell channel, answered in order
	control  chan *Message // what does not wait for cells, in order, too
	ctx      context.Context
	leave    context.CancelFunc

	// The room's lock guards these.
	here     bool
	cut      context.CancelFunc // of its connection
	arrivals int
	away     *time.Timer
	since    time.Time // when it left

	unanswered atomic.Int32 // of its requests

	writing sync.Mutex // held by the connection that writes

	mu      sync.Mutex
	pending []*Message
	bytes   int
	more    chan struct{} // has a token when there is something new
	lost    bool          // too much was waiting
	asking  string        // the execution that waits for input
}

// put queues a message for the front end.
func (c *client) put(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost || c.ctx.Err() != nil {
		return
	}
	if n := m.size(); c.bytes+n > keepPending || !c.room.held.take(n) {
		c.room.held.give(c.bytes)
		c.lost, c.pending, c.bytes = true, nil, 0
	} else {
		c.pending = append(c.pending, m)
		c.bytes += n
	}
	c.wake()
}

func (c *client) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// take gives what is queued, and whether some of it was lost.
func (c *client) take() ([]*Message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, lost := c.pending, c.lost
	c.room.held.give(c.bytes)
	c.pending, c.bytes, c.lost = nil, 0, false
	return list, lost
}

// end forgets what waits for a front end that does not come back.
func (c *client) end() {
	c.leave()
	c.take()
}

// Serve speaks with a front end until its connection ends. Whoever connects with
// the session of one that was there goes on where that one stopped.
func (s *Server) Serve(ctx context.Context, owner, sid, cid, session string, conn *websocket.Conn) error {
	if session == "" {
		session = newID()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, arrival, err := s.enter(owner, sid, cid, session, cancel)
	if err != nil {
		return errors.Join(err, conn.Close(websocket.StatusTryAgainLater, err.Error()))
	}
	defer c.room.left(c, arrival)
	defer context.AfterFunc(s.life, cancel)()
	conn.SetReadLimit(maxRead)
	var writing sync.WaitGroup
	writing.Go(func() {
		defer cancel()
		c.write(ctx, conn)
	})
	defer writing.Wait()
	defer cancel()
	c.put(answer(nil, iopub, "status", c.room.session, state{c.room.now()}))
	for {
		kind, raw, err := conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) != -1 || ctx.Err() != nil {
				return nil
			}
			return err
		}
		m, err := decode(conn.Subprotocol(), kind == websocket.MessageBinary, raw)
		if err != nil {
			return errors.Join(err, conn.Close(websocket.StatusInvalidFramePayloadData, err.Error()))
		}
		if err := c.receive(m); err != nil {
			return errors.Join(err, conn.Close(websocket.StatusPolicyViolation, err.Error()))
		}
	}
}

// write sends what is queued, and finds out about a front end that is gone.
func (c *client) write(ctx context.Context, conn *websocket.Conn) {
	c.writing.Lock()
	defer c.writing.Unlock()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	c.wake() // there may be something from before
	for {
		select {
		case <-ctx.Done():
			c.wake() // for the next connection
			return
		case <-ping.C:
			pong, cancel := context.WithTimeout(ctx, pingEvery)
			err := conn.Ping(pong)
			cancel()
			if err != nil {
				return
			}
			continue
		case <-c.more:
		}
		list, lost := c.take()
		if lost {
			_ = conn.Close(websocket.StatusPolicyViolation, "the output came faster than it was read")
			return
		}
		for i, m := range list {
			isBinary, b, err := encode(conn.Subprotocol(), m)
			if err != nil { // it would fail in the next connection, too
				c.room.server.log.Warn("a message for a front end cannot be written", "sandbox", c.room.sid, "context", c.room.cid, "type", m.Header.MsgType, "error", err)
				continue
			}
			kind := websocket.MessageText
			if isBinary {
				kind = websocket.MessageBinary
			}
			limited, cancel := context.WithTimeout(ctx, writeTime)
			err = conn.Write(limited, kind, b)
			cancel()
			if err != nil {
				c.putBack(list[i:])
				return
			}
		}
	}
}

// putBack queues again what a broken connection did not take.
func (c *client) putBack(list []*Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, m := range list {
		n += m.size()
	}
	switch {
	case c.lost || c.ctx.Err() != nil:
	case !c.room.held.take(n):
		c.room.held.give(c.bytes)
		c.lost, c.pending, c.bytes = true, nil, 0
	default:
		c.bytes += n
		c.pending = append(append([]*Message{}, list...), c.pending...)
	}
	c.wake()
}

var errTooMany = errors.New("too many requests wait")

// receive takes a message of the front end.
func (c *client) receive(m *Message) error {
	kind, queue := m.Header.MsgType, c.requests
	switch { // some clients do not say on which channel
	case kind == "input_reply", m.Channel == control, kind == "interrupt_request", kind == "shutdown_request":
		queue = c.control
	case m.Channel == stdin:
		return nil
	}
	if !c.room.held.take(m.size()) {
		return errTooMany
	}
	c.unanswered.Add(1)
	select {
	case queue <- m:
		return nil
	default:
		c.over(m)
		return errTooMany
	}
}

// over makes room of a request that is answered, or given up.
func (c *client) over(m *Message) {
	c.unanswered.Add(-1)
	c.room.held.give(m.size())
}

// steer does what does not wait for cells.
func (c *client) steer() {
	for {
		select {
		case <-c.ctx.Done():
			c.giveBack(c.control)
			return
		case m := <-c.control:
			if m.Header.MsgType == "input_reply" {
				c.reply(m)
			} else {
				c.direct(m)
			}
			c.over(m)
		}
	}
}

// reply passes on what was typed.
func (c *client) reply(m *Message) {
	c.mu.Lock()
	eid := c.asking
	c.asking = ""
	c.mu.Unlock()
	var content struct {
		Value string `json:"value"`
	}
	if eid == "" || json.Unmarshal(m.Content, &content) != nil {
		return // nobody asked
	}
	ctx, cancel := context.WithTimeout(c.ctx, actionTime)
	defer cancel()
	if err := c.room.server.kernels.Input(ctx, c.room.owner, c.room.sid, c.room.cid, eid, content.Value); err != nil {
		c.room.server.log.Debug("an answer to input() was not taken", "sandbox", c.room.sid, "context", c.room.cid, "error", err)
	}
}

// direct answers a request of the control channel.
func (c *client) direct(m *Message) {
	r, k := c.room, c.room.server.kernels
	ctx, cancel := context.WithTimeout(c.ctx, actionTime)
	defer cancel()
	var err error
	content := map[string]any{"status": "ok"}
	switch m.Header.MsgType {
	case "interrupt_request":
		err = k.Interrupt(ctx, r.owner, r.sid, r.cid)
	case "shutdown_request":
		var want struct {
			Restart bool `json:"restart"`
		}
		_ = json.Unmarshal(m.Content, &want) // anything else is no restart
		content["restart"] = want.Restart
		if want.Restart {
			err = c.room.server.Restart(ctx, r.owner, r.sid, r.cid)
		} else {
			err = errors.New("a kernel is shut down by DELETE …/api/kernels/{id}")
		}
	case "kernel_info_request":
		c.answer(m, r.info(c.ctx))
		return
	default:
		err = errors.New("this kernel does not answer " + m.Header.MsgType)
	}
	if err != nil {
		content = failure("Error", err.Error())
	}
	r.begin(m)
	c.answer(m, content)
	r.done(m)
}

// Restart gives a context a new interpreter and tells the front ends, as a kernel
// that is told to: the state "restarting" is for one that died, and front ends
// then say so.
func (s *Server) Restart(ctx context.Context, owner, sid, cid string) error {
	_, err := s.kernels.Restart(ctx, owner, sid, cid)
	s.mu.Lock()
	r := s.rooms[sid+"/"+cid]
	s.mu.Unlock()
	if err == nil && r != nil {
		r.publish(nil, "shutdown_reply", map[string]any{"status": "ok", "restart": true})
		r.publish(nil, "status", state{r.now()})
	}
	return err
}

func failure(name, words string) map[string]any {
	return map[string]any{"status": "error", "ename": name, "evalue": words, "traceback": []string{}}
}

// answer replies to a request on its channel.
func (c *client) answer(m *Message, content any) {
	kind := m.Header.MsgType
	if n := len(kind) - len("_request"); n > 0 && kind[n:] == "_request" {
		kind = kind[:n] + "_reply"
	}
	c.put(answer(m, m.Channel, kind, c.room.session, content))
}

// work answers requests, one after the other.
func (c *client) work() {
	for {
		select {
		case <-c.ctx.Done():
			c.giveBack(c.requests)
			return
		case m := <-c.requests:
			c.do(m)
			c.over(m)
		}
	}
}

// giveBack makes room of what nobody does any more.
func (c *client) giveBack(queue chan *Message) {
	for n := len(queue); n > 0; n-- {
		c.over(<-queue)
	}
}

func (c *client) do(m *Message) {
	r := c.room
	r.begin(m)
	defer r.done(m)
	switch kind := m.Header.MsgType; kind {
	case "execute_request":
		if stop := c.execute(m); stop {
			c.abort()
		}
	case "kernel_info_request":
		c.answer(m, r.info(c.ctx))
	case "comm_open", "comm_msg", "comm_close":
		reply, err := c.ask(m)
		if err != nil {
			r.publish(m, "stream", stream{"stderr", err.Error() + "\n"})
		}
		_ = reply // it has none
	default:
		reply, err := c.ask(m)
		if err != nil {
			c.answer(m, failure("Error", err.Error()))
			return
		}
		c.answer(m, reply)
	}
}

// abort answers the cells that wait after one that failed.
func (c *client) abort() {
	for n := len(c.requests); n > 0; n-- {
		m := <-c.requests
		c.over(m)
		if m.Header.MsgType != "execute_request" {
			c.do(m)
			continue
		}
		c.room.begin(m)
		c.answer(m, map[string]any{"status": "aborted"})
		c.room.done(m)
	}
}

// info is what front ends learn of the kernel first. A kernel that is busy
// with somebody's cell is described without its version.
func (r *room) info(ctx context.Context) any {
	r.mu.Lock()
	python := r.version
	r.mu.Unlock()
	if python == "" {
		limited, cancel := context.WithTimeout(ctx, infoTime)
		defer cancel()
		for e, err := range r.server.kernels.Notebook(limited, r.owner, r.sid, r.cid, guestapi.RunRequest{Ask: &guestapi.Ask{Type: "kernel_info_request", Content: none}}) {
			if err != nil {
				break
			}
			var said struct {
				Version string `json:"version"`
			}
			if e.Type == api.EventEnd && json.Unmarshal(e.Reply, &said) == nil {
				python = said.Version
			}
		}
		r.mu.Lock()
		r.version = python
		r.mu.Unlock()
	}
	if python == "" {
		python = "3"
	}
	return map[string]any{
		"status": "ok", "protocol_version": version, "implementation": "pandastack", "implementation_version": "1",
		"language_info": map[string]any{
			"name": "python", "version": python, "mimetype": "text/x-python", "file_extension": ".py",
			"pygments_lexer": "ipython3", "nbconvert_exporter": "python", "codemirror_mode": map[string]any{"name": "ipython", "version": 3},
		},
		"banner":     "Python " + python + " in the sandbox " + r.sid + ", context " + r.cid,
		"help_links": []any{}, "debugger": false, "supported_features": []string{},
	}
}
