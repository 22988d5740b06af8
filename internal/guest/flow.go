package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// ErrNotListening is in the error of a connection to a port on which nothing
// listens, or that takes no connections.
var ErrNotListening = errors.New("nothing listens on the port")

// Listeners gives what programs in the sandbox listen on.
func (c *Client) Listeners(ctx context.Context) ([]guestapi.Listener, error) {
	if err := c.needs(3, "tell what it listens on"); err != nil {
		return nil, err
	}
	var list []guestapi.Listener
	if err := c.do(ctx, call{method: http.MethodGet, path: "/ports"}, &list); err != nil {
		return nil, err
	}
	if len(list) > guestapi.MaxListeners {
		return nil, nonsense("%d ports", len(list))
	}
	for _, l := range list {
		if _, err := netip.ParseAddr(l.Address); err != nil || l.Port < 1 || l.Port > 65535 {
			return nil, nonsense("a program that listens on %q, port %d", cut(l.Address, maxName), l.Port)
		}
	}
	return list, nil
}

// Dial connects to a port of the sandbox. The context is for the dial alone;
// the connection lasts until it is closed, or until the link breaks, which a
// snapshot does.
func (c *Client) Dial(ctx context.Context, port int) (*Flow, error) {
	if err := c.needs(3, "take connections to its ports"); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	giveUp := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	late := time.AfterFunc(callTime, func() {
		cancel(fault.New(api.CodeTimeout, "port %d of the sandbox has not taken a connection for %s", port, callTime))
	})
	body, up := io.Pipe()
	resp, done, err := c.send(life, call{
		method: http.MethodPost, path: "/flows", query: url.Values{"port": {strconv.Itoa(port)}}, body: body, flow: true,
	})
	if err == nil && (!giveUp() || !late.Stop()) {
		done()
		err = context.Cause(life)
	}
	if err != nil {
		giveUp()
		late.Stop()
		cancel(nil)
		up.CloseWithError(net.ErrClosed)
		if errors.Is(err, fault.Conflict) && !errors.Is(err, ErrLinkLost) {
			err = fmt.Errorf("%w: %w", ErrNotListening, err)
		}
		return nil, err
	}
	f := &Flow{client: c, ctx: life, cancel: cancel, done: done, resp: resp.Body, up: up, credit: guestapi.FlowWindow, port: port}
	f.more = sync.NewCond(&f.mu)
	return f, nil
}

// Flow is a connection to a port of a sandbox. As long as nobody reads it,
// writing stops after a while, too: read and write it at the same time.
type Flow struct {
	client *Client
	ctx    context.Context //nolint:containedctx // it is the connection's own
	cancel context.CancelCauseFunc
	done   func()
	port   int
	once   sync.Once

	// Of the reader.
	resp io.ReadCloser
	left int // of a frame of data
	err  error

	up *io.PipeWriter

	mu     sync.Mutex
	more   *sync.Cond
	credit int // bytes that may be sent
	failed error
}

var _ net.Conn = (*Flow)(nil)

// Read gives what the program has said.
func (f *Flow) Read(p []byte) (int, error) {
	for f.err == nil && f.left == 0 {
		kind, length, err := guestapi.ReadFlowHeader(f.resp)
		switch {
		case err != nil:
			f.fail(err)
		case kind == guestapi.FlowData:
			f.left = length
		case kind == guestapi.FlowEOF:
			f.err = io.EOF
			go f.drain()
		case !f.taken(length):
			f.fail(nonsense("the program has taken bytes that were never sent"))
		}
	}
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.resp.Read(p[:min(len(p), f.left)])
	f.left -= n
	if n == 0 && err != nil {
		f.fail(err)
		return 0, f.err
	}
	return n, nil
}

// drain goes on taking note of what the program reads, when it says no more.
func (f *Flow) drain() {
	for {
		kind, length, err := guestapi.ReadFlowHeader(f.resp)
		if err == nil && (kind != guestapi.FlowTaken || !f.taken(length)) {
			err = nonsense("a frame of kind %d after the end", kind)
		}
		if err != nil {
			f.stopWriting(err)
			return
		}
	}
}

// fail ends the reading. A stream that stops before its end was cut.
func (f *Flow) fail(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.ErrUnexpectedEOF
	}
	f.err = f.client.broken(f.ctx, err)
	f.stopWriting(f.err)
}

func (f *Flow) stopWriting(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
	f.more.Broadcast()
	f.up.CloseWithError(net.ErrClosed)
}

// taken notes that the guest has room for so many bytes more; false when it lies.
func (f *Flow) taken(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > guestapi.FlowWindow-f.credit {
		return false
	}
	f.credit += n
	f.more.Broadcast()
	return true
}

// Write says something to the program, no faster than it listens.
func (f *Flow) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := f.allowed(len(p) - sent)
		if err != nil {
			return sent, err
		}
		n, err = f.up.Write(p[sent : sent+n])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// allowed waits until some of n bytes may be sent.
func (f *Flow) allowed(n int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.credit == 0 && f.failed == nil {
		f.more.Wait()
	}
	if f.failed != nil {
		return 0, f.failed
	}
	n = min(n, f.credit)
	f.credit -= n
	return n, nil
}

// CloseWrite says that nothing more comes. What the program says can still be read.
func (f *Flow) CloseWrite() error { return f.up.Close() }

// Close ends the connection.
func (f *Flow) Close() error {
	f.once.Do(func() {
		f.cancel(net.ErrClosed)
		f.stopWriting(net.ErrClosed)
		f.done()
	})
	return nil
}

// Done is closed when the connection is closed on this side.
func (f *Flow) Done() <-chan struct{} { return f.ctx.Done() }

// LocalAddr implements net.Conn.
func (f *Flow) LocalAddr() net.Addr { return flowAddr(0) }

// RemoteAddr implements net.Conn.
func (f *Flow) RemoteAddr() net.Addr { return flowAddr(f.port) }

// SetDeadline implements net.Conn: there are none.
func (f *Flow) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn: there are none.
func (f *Flow) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn: there are none.
func (f *Flow) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// flowAddr is a port of a sandbox, 0 for the host's end.
type flowAddr int

func (a flowAddr) Network() string { return "sandbox" }
func (a flowAddr) String() string  { return "sandbox:" + strconv.Itoa(int(a)) }

// Trust adds a certificate authority, in PEM, to those that programs trust.
func (c *Client) Trust(ctx context.Context, pem []byte) error {
	if err := c.needs(6, "take a certificate for its network"); err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: "/trust", json: guestapi.TrustRequest{PEM: pem}, time: slowCallTime}, nil)
}

// SetPackages says where package managers get packages from. Guests of before
// that could be said leave them to themselves.
func (c *Client) SetPackages(ctx context.Context, p guestapi.Packages) error {
	if c.protocol < 8 {
		return nil
	}
	return c.do(ctx, call{method: http.MethodPost, path: "/packages", json: p}, nil)
}
