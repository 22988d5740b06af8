package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Caller answers what programs in a sandbox call. What goes wrong is an answer,
// too.
type Caller interface {
	// Call answers one call: the request is the program's own words, and so is the
	// answer. The context ends when nobody waits for it any more. held says that
	// the call waits for a decision and has not begun, and that it does so no longer.
	Call(ctx context.Context, head guestapi.CallHead, request []byte, held func(bool)) []byte
}

// ErrCancelled is the cause of the end of a call's context when nobody in the
// sandbox waits for its answer any more; without it the link broke.
var ErrCancelled = errors.New("the call was cancelled in the sandbox")

// ServeCalls answers what programs in the sandbox call, many at once, until the
// link breaks or the context ends.
func (c *Client) ServeCalls(ctx context.Context, to Caller) error {
	if err := c.needs(7, "call tools"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, up := io.Pipe()
	defer up.CloseWithError(net.ErrClosed)
	resp, done, err := c.send(ctx, call{method: http.MethodPost, path: "/calls", body: body})
	if err != nil {
		return err
	}
	defer done()
	s := &callServer{to: to, up: up, ctx: ctx, calls: map[uint32]*inCall{}}
	defer s.work.Wait()
	defer cancel()
	in := bufio.NewReaderSize(resp.Body, guestapi.CallPiece)
	for {
		f, err := guestapi.ReadCallFrame(in)
		if err == nil {
			err = s.hear(f)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return c.broken(ctx, err)
		}
	}
}

// callServer is the host's side of a stream of calls.
type callServer struct {
	to   Caller
	ctx  context.Context //nolint:containedctx // it is the stream's own
	work sync.WaitGroup

	mu    sync.Mutex // of what follows
	calls map[uint32]*inCall
	bytes int // of the requests in it

	writing sync.Mutex
	up      *io.PipeWriter
}

// inCall is a call that comes in, is worked on, or whose answer goes out.
type inCall struct {
	request   []byte
	size      int
	refused   []byte // what is answered where there was no room for it
	begun     bool
	cancelled bool // nobody waits for the answer
	cancel    context.CancelFunc
}

// A guest has MaxCallsAtOnce calls that it waits for. Beside these are those that
// it has cancelled and that have not come to their end, and answers that it has
// not read: calls beyond mostCalls are refused, and who makes more than it reads
// refusals is no agent of ours.
const (
	mostCalls   = 2 * guestapi.MaxCallsAtOnce
	mostRefused = 4 * guestapi.MaxCallsAtOnce
)

func (s *callServer) write(frames ...guestapi.CallFrame) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return guestapi.WriteCallFrames(s.up, frames...)
}

// hear takes a frame of the guest's. An error means that it is no agent of ours.
func (s *callServer) hear(f guestapi.CallFrame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[f.Call]
	if c == nil {
		switch {
		case f.Kind == guestapi.CallCancel:
			return nil // it was answered
		case len(s.calls) >= mostRefused:
			return nonsense("more than %d calls at once", guestapi.MaxCallsAtOnce)
		}
		c = &inCall{cancel: func() {}}
		if len(s.calls) >= mostCalls {
			c.refused = tooMany
		}
		s.calls[f.Call] = c
	}
	switch {
	case f.Kind == guestapi.CallCancel && c.begun: // it counts until it has ended
		c.cancelled = true
		c.cancel()
	case f.Kind == guestapi.CallCancel: // the rest of it may be on its way
		c.cancelled = true
		c.drop(s)
	case f.Kind == guestapi.CallEnd && c.cancelled && !c.begun:
		s.forget(f.Call)
	case f.Kind == guestapi.CallData && c.cancelled && !c.begun:
	case c.begun:
		return nonsense("a call that goes on after its end")
	case f.Kind == guestapi.CallData:
		if len(c.request)+len(f.Data) > guestapi.MaxCallRequest+guestapi.MaxHandshake {
			return nonsense("a call of more than %d bytes", guestapi.MaxCallRequest)
		}
		if c.refused == nil && s.bytes+len(f.Data) > maxCallBytes {
			c.refused = noRoom
		}
		if c.refused != nil {
			c.drop(s)
			return nil
		}
		c.request = append(c.request, f.Data...)
		c.size += len(f.Data)
		s.bytes += len(f.Data)
	case f.Kind == guestapi.CallEnd && c.refused != nil:
		c.begun = true
		s.work.Go(func() { s.end(f.Call, c.refused) })
	case f.Kind == guestapi.CallEnd:
		line, request, _ := bytes.Cut(c.request, []byte{'\n'})
		var head guestapi.CallHead
		if err := json.Unmarshal(line, &head); err != nil {
			return nonsense("the head of a call: %v", err)
		}
		for _, name := range []string{head.Key, head.Context, head.ExecutionID} {
			if len(name) > maxName {
				return nonsense("the head of a call has a name of %d bytes", len(name))
			}
		}
		c.begun, c.request = true, nil
		ctx, cancel := context.WithCancelCause(s.ctx)
		c.cancel = func() { cancel(ErrCancelled) }
		s.work.Go(func() {
			defer cancel(nil)
			s.answer(ctx, f.Call, head, request)
		})
	default:
		return nonsense("a frame of kind %d from the guest", f.Kind)
	}
	return nil
}

// drop lets go of the request. The lock is held.
func (c *inCall) drop(s *callServer) {
	s.bytes -= c.size
	c.request, c.size = nil, 0
}

// forget takes a call off the list. The lock is held.
func (s *callServer) forget(number uint32) {
	if c := s.calls[number]; c != nil {
		s.bytes -= c.size
		delete(s.calls, number)
	}
}

// maxCallBytes is what the requests of a sandbox's calls may hold at once.
const maxCallBytes = 64 << 20

var (
	noRoom  = []byte(`{"error":{"kind":"rate_limited","message":"the arguments of the calls in progress have 64 MiB together, the most there may be"}}`)
	tooMany = []byte(`{"error":{"kind":"rate_limited","message":"calls that were cancelled have not come to their end, and there are too many of them"}}`)
)

func (s *callServer) answer(ctx context.Context, number uint32, head guestapi.CallHead, request []byte) {
	held := func(is bool) {
		kind := guestapi.CallFree
		if is {
			kind = guestapi.CallHeld
		}
		_ = s.write(guestapi.CallFrame{Kind: kind, Call: number}) // a stream that broke shows where it is read
	}
	s.end(number, s.to.Call(ctx, head, request, held))
}

// end writes the answer to a call, if somebody waits for it, which counts until then.
func (s *callServer) end(number uint32, answer []byte) {
	s.mu.Lock()
	c := s.calls[number]
	s.bytes -= c.size
	c.size = 0
	wanted := !c.cancelled
	s.mu.Unlock()
	if wanted {
		_ = guestapi.WriteCall(s.write, number, answer)
	}
	s.mu.Lock()
	s.forget(number)
	s.mu.Unlock()
}

// Between a stream of calls that made no sense and the next.
const (
	callPause    = time.Second / 2
	maxCallPause = time.Minute
)

// Serve answers the calls of the guest over this link and every one that
// follows, until the Listener is closed. To serve another Caller is to replace it.
func (l *Listener) Serve(to Caller) {
	l.mu.Lock()
	begun := l.caller != nil
	l.caller = to
	l.mu.Unlock()
	if begun {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-l.done; cancel() }()
	go func() {
		pause := callPause
		for {
			client, err := l.Client(ctx)
			if err != nil {
				return // it is closed, or speaks what we do not
			}
			began := time.Now()
			if err := client.ServeCalls(ctx, l); err != nil && ctx.Err() == nil && !errors.Is(err, ErrLinkLost) {
				l.log.Warn("the sandbox's calls of tools", "error", err)
				var again <-chan time.Time
				if !errors.Is(err, fault.Unsupported) { // it does not behave, which may have been once
					if time.Since(began) > maxCallPause {
						pause = callPause
					}
					again = time.After(pause)
					pause = min(2*pause, maxCallPause)
				}
				select {
				case <-again:
				case <-client.Done():
				case <-ctx.Done():
				}
			}
		}
	}()
}

// Call implements Caller by that which is served.
func (l *Listener) Call(ctx context.Context, head guestapi.CallHead, request []byte, held func(bool)) []byte {
	l.mu.Lock()
	to := l.caller
	l.mu.Unlock()
	return to.Call(ctx, head, request, held)
}
