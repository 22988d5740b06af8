package guestd

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
)

const (
	streamComes   = 2 * time.Second  // for the host's stream, where there was none yet
	streamReturns = 15 * time.Second // where there was one: a snapshot or a restart of the daemon broke it
	answerDirect  = 32 << 10         // bytes that a local socket takes when it is empty
	callHeadSize  = 8                // of a local request: its length and its caller's session
)

// calls passes what programs call outside of the sandbox on to the host. What a
// call means is for both of them: here it is bytes.
type calls struct {
	kernels *kernels.Manager
	log     *slog.Logger

	mu      sync.Mutex
	stream  *callStream   // nil while the host holds none
	had     bool          // there was one before
	changed chan struct{} // closed and replaced when stream changes
	pending map[*toolCall]struct{}
}

// callStream is the host's side: one request of HTTP/2.
type callStream struct {
	next  uint32
	calls map[uint32]*toolCall // under the lock of calls

	mu   sync.Mutex
	w    io.Writer // nil when it is closed
	ctrl *http.ResponseController
	done chan struct{} // closed when the host shall go
	once sync.Once
}

// toolCall is one call in flight.
type toolCall struct {
	session int
	request []byte
	conn    net.Conn
	done    chan struct{} // closed when it was answered

	// Under the lock of calls.
	key    string
	number uint32 // on the stream
	on     *callStream
	answer []byte
	sent   bool // whole, on this stream
	held   bool
	free   func() // the deadline of its cell
	over   bool
}

func newCalls(log *slog.Logger) *calls {
	return &calls{log: log, changed: make(chan struct{}), pending: map[*toolCall]struct{}{}}
}

// listen takes calls of programs until ctx ends.
func (c *calls) listen(ctx context.Context, address string) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				c.log.Warn("the socket of tools", "error", err)
				select { // out of descriptors, most likely
				case <-time.After(100 * time.Millisecond):
				case <-ctx.Done():
				}
				continue
			}
			go c.serve(conn)
		}
	}()
	return nil
}

// serve takes the calls of one connection, one after the other.
func (c *calls) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		var head [callHeadSize]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		t := &toolCall{session: int(binary.BigEndian.Uint32(head[4:])), conn: conn, done: make(chan struct{})}
		if n > guestapi.MaxCallRequest {
			if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil { // who is still writing reads no answer
				return
			}
			t.say(failedCall("too_large", "the arguments of a call may have 16 MiB in JSON; write larger things to a file or a place that both sides reach"))
			continue
		}
		t.request = make([]byte, n)
		if _, err := io.ReadFull(r, t.request); err != nil {
			return
		}
		c.begin(t)
		// The next thing to be read is another call, or the end, with which this one is cancelled.
		if _, err := r.Peek(1); err != nil {
			c.cancel(t)
			return
		}
		<-t.done
	}
}

// failedCall is the answer to a call that never came to the host, or never came
// back. Its form is that of the host's own.
func failedCall(kind, message string) []byte {
	b, _ := json.Marshal(map[string]any{"error": map[string]string{"kind": kind, "message": message}})
	return b
}

// begin sends a call to the host.
func (c *calls) begin(t *toolCall) {
	var key [16]byte
	_, _ = rand.Read(key[:])
	t.key = hex.EncodeToString(key[:])
	for {
		stream := c.waitStream()
		if stream == nil {
			c.end(t, failedCall("unavailable", "this sandbox has no tools, or the server that has them does not answer"))
			return
		}
		c.mu.Lock()
		switch {
		case len(c.pending) >= guestapi.MaxCallsAtOnce:
			c.mu.Unlock()
			c.end(t, failedCall("rate_limited", "256 calls of this sandbox are in progress, the most there may be at once"))
			return
		case c.stream == stream:
			c.pending[t] = struct{}{}
			stream.put(t)
			c.mu.Unlock()
			c.present(stream, t, false)
			return
		}
		c.mu.Unlock() // another stream has come meanwhile, or none is there
	}
}

// put gives a call its number. The lock of calls is held.
func (s *callStream) put(t *toolCall) {
	s.next++
	t.number, t.on, t.sent, t.held, t.answer = s.next, s, false, false, nil
	s.calls[t.number] = t
}

// waitStream gives the host's stream, nil when none comes.
func (c *calls) waitStream() *callStream {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		stream, changed, had := c.stream, c.changed, c.had
		c.mu.Unlock()
		if stream != nil {
			return stream
		}
		if late == nil {
			late = time.After(map[bool]time.Duration{false: streamComes, true: streamReturns}[had])
		}
		select {
		case <-changed:
		case <-late:
			return nil
		}
	}
}

// present sends a call over the stream that it was put on.
func (c *calls) present(s *callStream, t *toolCall, again bool) {
	cid, eid := c.kernels.Caller(t.session)
	head, err := json.Marshal(guestapi.CallHead{Key: t.key, Context: cid, ExecutionID: eid, Again: again})
	if err != nil {
		c.end(t, failedCall("failed", err.Error()))
		return
	}
	c.mu.Lock()
	number, gone := t.number, t.on != s
	c.mu.Unlock()
	if gone { // the stream broke
		return
	}
	begun := false
	err = guestapi.WriteCall(func(frames ...guestapi.CallFrame) error {
		c.mu.Lock()
		over := t.over
		c.mu.Unlock()
		if over {
			return errOver
		}
		begun = true
		return s.write(frames...)
	}, number, append(append(head, '\n'), t.request...))
	c.mu.Lock()
	over := t.over
	if t.on == s {
		t.sent = true
	}
	c.mu.Unlock()
	switch {
	case errors.Is(err, errOver) && !begun:
		return
	case errors.Is(err, errOver):
		err = s.write(guestapi.CallFrame{Kind: guestapi.CallCancel, Call: number}, guestapi.CallFrame{Kind: guestapi.CallEnd, Call: number})
	case err == nil && over:
		err = s.write(guestapi.CallFrame{Kind: guestapi.CallCancel, Call: number})
	}
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		s.end() // and with it its calls
	}
}

// errOver says that a call was cancelled before it was sent whole.
var errOver = errors.New("the call is over")

// cancel gives up a call whose program is gone or was interrupted. Where it is
// still being sent, who sends it tells the host.
func (c *calls) cancel(t *toolCall) {
	c.mu.Lock()
	s, number, sent := t.on, t.number, t.sent
	first := c.settle(t)
	c.mu.Unlock()
	if !first {
		return
	}
	t.finish(failedCall("interrupted", "the cell was interrupted"))
	if s == nil || !sent {
		return
	}
	if err := s.write(guestapi.CallFrame{Kind: guestapi.CallCancel, Call: number}); err == nil {
		_ = s.flush() // a stream that broke has no call any more
	}
}

// interrupted cancels all calls of a session.
func (c *calls) interrupted(session int) {
	c.mu.Lock()
	var list []*toolCall
	for t := range c.pending {
		if t.session == session {
			list = append(list, t)
		}
	}
	c.mu.Unlock()
	for _, t := range list {
		c.cancel(t)
	}
}

// end takes a call off its stream and answers it, once.
func (c *calls) end(t *toolCall, answer []byte) {
	c.mu.Lock()
	first := c.settle(t)
	c.mu.Unlock()
	if first {
		t.finish(answer)
	}
}

// settle takes a call off its stream. It is true for the one who is to answer
// it. The lock is held.
func (c *calls) settle(t *toolCall) bool {
	if t.over {
		return false
	}
	t.over = true
	delete(c.pending, t)
	if t.on != nil {
		delete(t.on.calls, t.number)
	}
	t.release()
	return true
}

// release lets the deadline of the call's cell run again. The lock is held.
func (t *toolCall) release() {
	t.held = false
	if t.free != nil {
		t.free()
		t.free = nil
	}
}

// finish writes the answer. A program that is slow to read it holds up nobody else.
func (t *toolCall) finish(answer []byte) {
	write := func() {
		t.say(answer)
		close(t.done)
	}
	if len(answer) < answerDirect {
		write()
		return
	}
	go write()
}

func (t *toolCall) say(answer []byte) {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(answer)), uint32(len(answer)))
	_, _ = t.conn.Write(append(b, answer...)) // whoever is gone reads nothing
}

func (s *callStream) write(frames ...guestapi.CallFrame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return net.ErrClosed
	}
	return guestapi.WriteCallFrames(s.w, frames...)
}

func (s *callStream) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return net.ErrClosed
	}
	return s.ctrl.Flush()
}

// close is for the end of the request, after which its answer must not be written to.
func (s *callStream) close() {
	s.mu.Lock()
	s.w = nil
	s.mu.Unlock()
}

func (s *callStream) end() { s.once.Do(func() { close(s.done) }) }

// postCalls is the host's stream. A newer one takes the place of an older, whose
// connection the host has given up.
func (a *Agent) postCalls(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	s := &callStream{w: w, ctrl: http.NewResponseController(w), calls: map[uint32]*toolCall{}, done: make(chan struct{})}
	defer s.close()
	if err := s.flush(); err != nil {
		return nil // the host is gone
	}
	a.calls.attach(s)
	defer a.calls.detach(s)
	go func() {
		defer s.end()
		in := bufio.NewReaderSize(r.Body, guestapi.CallPiece)
		for {
			f, err := guestapi.ReadCallFrame(in)
			if err != nil {
				return
			}
			a.calls.hear(s, f)
		}
	}()
	select {
	case <-s.done:
	case <-r.Context().Done():
	}
	r.Body.Close()
	return nil
}

// attach makes a stream the one, and presents what was held on the last.
func (c *calls) attach(s *callStream) {
	c.mu.Lock()
	old := c.stream
	c.stream, c.had = s, true
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if old != nil {
		old.end()
		c.drop(old)
	}
	c.mu.Lock()
	var held []*toolCall
	for t := range c.pending {
		if t.on == nil && c.stream == s { // else the next one has them
			s.put(t)
			held = append(held, t)
		}
	}
	c.mu.Unlock()
	for _, t := range held {
		c.present(s, t, true)
	}
}

func (c *calls) detach(s *callStream) {
	c.mu.Lock()
	if c.stream == s {
		c.stream = nil
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()
	c.drop(s)
}

// drop ends the calls of a stream that broke. What was held has not begun, and
// waits for the next; the deadline of its cell runs meanwhile.
func (c *calls) drop(s *callStream) {
	c.mu.Lock()
	var lost []*toolCall
	for _, t := range s.calls {
		if !t.held {
			lost = append(lost, t)
			continue
		}
		t.release()
		t.on = nil
	}
	s.calls = map[uint32]*toolCall{}
	c.mu.Unlock()
	for _, t := range lost {
		c.end(t, failedCall("interrupted", "the connection to the server broke during the call; whether it was carried out is not known"))
	}
}

// hear takes a frame of the host's.
func (c *calls) hear(s *callStream, f guestapi.CallFrame) {
	c.mu.Lock()
	t := s.calls[f.Call]
	if t == nil || t.over {
		c.mu.Unlock()
		return // it was cancelled
	}
	var answer []byte
	ended := f.Kind == guestapi.CallEnd
	switch f.Kind {
	case guestapi.CallData:
		if t.answer = append(t.answer, f.Data...); len(t.answer) > guestapi.MaxCallAnswer {
			answer, ended = failedCall("too_large", "the answer has more than 64 MiB"), true
		}
	case guestapi.CallEnd:
		answer = t.answer
	case guestapi.CallHeld:
		if !t.held {
			t.held, t.free = true, c.kernels.Hold(t.session)
		}
	case guestapi.CallFree:
		t.release()
	}
	c.mu.Unlock()
	if ended {
		c.end(t, answer)
	}
}
