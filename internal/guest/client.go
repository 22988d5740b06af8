package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	callTime     = 15 * time.Second      // for a call that waits for nothing in the guest
	slowCallTime = 60 * time.Second      // for one that may start an interpreter
	warmTime     = 5 * time.Minute       // for the imports of a template
	maxCalls     = 256                   // in progress on one link
	maxError     = 64 << 10              // bytes of an error's body
	pingAfter    = 15 * time.Second      // of silence
	pingTime     = 15 * time.Second      // for the answer
	windowSize   = 512 << 10             // of a stream: what a guest can make us hold unread
	maxHeaders   = 16 << 10              // of an answer
	stallTime    = 60 * time.Second      // without progress of a body
	streamIdle   = 3 * 15 * time.Second  // without a line; the guest sends a blank one every 15 s
	cutGrace     = 50 * time.Millisecond // to see whether a cut stream means a cut link
)

// ErrLinkLost is in every error of a call whose connection broke. Whether the
// guest did what it was asked is unknown then.
var ErrLinkLost = errors.New("the link to the guest broke")

// Client speaks with the guest of one generation of a sandbox over one
// connection. When that breaks, calls fail with ErrLinkLost and the Listener
// has a new Client as soon as the guest has dialled again.
type Client struct {
	sandboxID  string
	generation int
	protocol   int
	conn       *watchedConn
	http       *http.ClientConn
	calls      chan struct{} // a place for each call in progress
	big        chan struct{} // a place for each big line being read
	flows      chan struct{} // a place for each connection to a port
}

// newClient speaks HTTP/2 with prior knowledge on conn, as the client.
func newClient(conn net.Conn, sandboxID string, generation, protocol int) (*Client, error) {
	w := &watchedConn{Conn: conn, done: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{
		DialContext:            func(context.Context, string, string) (net.Conn, error) { return w, nil },
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaders,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream:   windowSize,
			MaxReadFrameSize:            64 << 10,
			StrictMaxConcurrentRequests: true,
			SendPingTimeout:             pingAfter,
			PingTimeout:                 pingTime,
			WriteByteTimeout:            stallTime,
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	cc, err := tr.NewClientConn(ctx, "http", "guest:80")
	if err != nil {
		return nil, fmt.Errorf("speaking HTTP/2 with the guest: %w", err)
	}
	return &Client{
		sandboxID:  sandboxID,
		generation: generation,
		protocol:   protocol,
		conn:       w,
		http:       cc,
		calls:      make(chan struct{}, maxCalls),
		big:        make(chan struct{}, maxBigLines),
		flows:      make(chan struct{}, guestapi.MaxFlows),
	}, nil
}

// watchedConn tells when the other side is gone, also between calls.
type watchedConn struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (w *watchedConn) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.end()
	}
	return n, err
}

// hungUp asks the kernel whether the other side has closed, which who reads the
// connection may not have noticed yet.
func (w *watchedConn) hungUp() (gone bool) {
	c, ok := w.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true // it is closed
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, _ := unix.Poll(fds, 0) // interrupted, it has not hung up as far as we know
		gone = n == 1
	})
	return gone || err != nil
}

func (w *watchedConn) Close() error {
	w.end()
	return w.Conn.Close()
}

func (w *watchedConn) end() { w.once.Do(func() { close(w.done) }) }

// Generation is the one this link belongs to.
func (c *Client) Generation() int { return c.generation }

// Protocol is the version that both ends speak on this link.
func (c *Client) Protocol() int { return c.protocol }

// needs refuses a call that the guest does not know yet.
func (c *Client) needs(protocol int, what string) error {
	if c.protocol >= protocol {
		return nil
	}
	return fault.New(api.CodeUnsupported, "the agent in this sandbox is of an earlier version and cannot %s", what).
		WithHint("create a new sandbox, from a template that was built by this version")
}

// Done is closed when the link is broken.
func (c *Client) Done() <-chan struct{} { return c.conn.done }

func (c *Client) alive() bool {
	select {
	case <-c.conn.done:
		return false
	default:
		return c.http.Err() == nil
	}
}

// Close breaks the link. The guest will dial again.
func (c *Client) Close() error {
	err := c.http.Close()
	return errors.Join(err, ignoreClosed(c.conn.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// call is a request to the guest.
type call struct {
	method string
	path   string
	query  url.Values
	header http.Header
	json   any       // body, or
	body   io.Reader // body as it is
	time   time.Duration
	flow   bool // it is a connection to a port, of which there may be so many besides
}

// send does a call and gives the answer when it is a success. The caller must
// call done when it has read the body.
func (c *Client) send(ctx context.Context, in call) (resp *http.Response, done func(), err error) {
	places, what := c.calls, "calls to this sandbox are in progress"
	if in.flow {
		places, what = c.flows, "connections to ports of this sandbox are open"
	}
	select {
	case places <- struct{}{}:
	default:
		return nil, nil, fault.New(api.CodeRateLimited, "%d %s", cap(places), what).
			WithHint("wait for some of them to end")
	}
	free := func() { <-places }
	body := in.body
	if in.json != nil {
		b, err := json.Marshal(in.json)
		if err != nil {
			free()
			return nil, nil, fmt.Errorf("encoding a call to the guest: %w", err)
		}
		if len(b) > guestapi.MaxJSONBody {
			free()
			return nil, nil, fault.New(api.CodeTooLarge, "the request is larger than %d MiB", guestapi.MaxJSONBody>>20)
		}
		body = bytes.NewReader(b)
	}
	u := url.URL{Scheme: "http", Host: "guest", Path: in.path, RawQuery: in.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, in.method, u.String(), body)
	if err != nil {
		free()
		return nil, nil, fmt.Errorf("a call to the guest: %w", err)
	}
	for k, v := range in.header {
		req.Header[k] = v
	}
	if id := caller.From(ctx).RequestID; id != "" {
		req.Header.Set(caller.Header, id)
	}
	if in.json != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err = c.http.RoundTrip(req)
	if err != nil {
		free()
		if ctx.Err() == nil && !ofSource(err) && !ofStream(err) {
			// Such a connection takes no more calls, but may stay open: a guest
			// that said goodbye, for one. Closed, it is dialled anew.
			c.Close()
		}
		return nil, nil, c.broken(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		defer free()
		defer resp.Body.Close()
		return nil, nil, c.refusal(resp)
	}
	return resp, func() { resp.Body.Close(); free() }, nil
}

// do makes a call that is answered at once, and decodes the answer into out.
func (c *Client) do(ctx context.Context, in call, out any) error {
	if in.time == 0 {
		in.time = callTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, in.time, fault.New(api.CodeTimeout, "the sandbox did not answer within %s", in.time).
		WithHint("it may be out of memory or overloaded; a new sandbox will do"))
	defer cancel()
	resp, done, err := c.send(ctx, in)
	if err != nil {
		return err
	}
	defer done()
	if out == nil {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, guestapi.MaxJSONBody+1))
	if err != nil {
		return c.broken(ctx, err)
	}
	if len(b) > guestapi.MaxJSONBody {
		return nonsense("an answer of more than %d bytes", guestapi.MaxJSONBody)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return nonsense("%v", err)
	}
	return nil
}

// ofStream reports whether an error is one of a single stream. The type that
// says so cannot be reached from outside of net/http.
func ofStream(err error) bool { return strings.Contains(err.Error(), "stream error: ") }

// broken says what a failure of the connection means to the caller.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var f *fault.Error
	if errors.As(err, &f) || ofSource(err) {
		return err
	}
	select {
	case <-c.conn.done:
	case <-time.After(cutGrace):
		// The connection holds, so it is this one stream that the guest cut.
		if c.alive() {
			return nonsense("%v", err)
		}
	}
	lost := fault.Wrap(fmt.Errorf("%w: %w", ErrLinkLost, err), api.CodeConflict, "the connection to the sandbox broke during the call")
	return lost.WithHint("see whether the sandbox still runs, then try again")
}

// nonsense is the error for an answer that no agent of ours gives.
func nonsense(format string, args ...any) error {
	return &fault.Error{
		Code:    api.CodeInternal,
		Message: "the agent in the sandbox gave an answer that makes no sense",
		Err:     fmt.Errorf(format, args...),
	}
}

// refusal reads the error that the guest answered with. Its code is one that
// a guest may use, whatever it says.
func (c *Client) refusal(resp *http.Response) error {
	var body api.Error
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil || json.Unmarshal(b, &body) != nil || body.Message == "" {
		return nonsense("status %d without an error", resp.StatusCode)
	}
	e := &fault.Error{
		Code:    body.Code,
		Message: plain(body.Message, maxMessage),
		Hint:    plain(body.Hint, maxMessage),
		Field:   plain(body.Field, maxName),
	}
	switch body.Code {
	case api.CodeInvalid, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeTooLarge, api.CodeRateLimited,
		api.CodeUnsupported, api.CodeNoCapacity, api.CodeTimeout, api.CodeNoSpace:
	default:
		// What went wrong inside is for the log; the user gets its number.
		e.Code, e.Err, e.Message = api.CodeInternal, errors.New(e.Message), "the agent in the sandbox failed"
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return rangeError(e, resp.Header.Get("Content-Range"))
	}
	return e
}

// Health asks how the guest is. It never trusts what it hears with more than
// the question whether an agent answers.
func (c *Client) Health(ctx context.Context) (guestapi.Health, error) {
	var h guestapi.Health
	err := c.do(ctx, call{method: http.MethodGet, path: "/health"}, &h)
	h.Detail, h.MemoryHits, h.MemoryBytes = nil, atLeast0(h.MemoryHits), atLeast0(h.MemoryBytes)
	return h, err
}

// Assign makes a restored copy into its sandbox and reports each step.
func (c *Client) Assign(ctx context.Context, req guestapi.AssignRequest) (guestapi.AssignResponse, error) {
	var out guestapi.AssignResponse
	if err := c.do(ctx, call{method: http.MethodPost, path: "/assign", json: req}, &out); err != nil {
		return out, err
	}
	if len(out.Steps) > maxSteps {
		return guestapi.AssignResponse{}, nonsense("%d steps of assign", len(out.Steps))
	}
	for i, s := range out.Steps {
		out.Steps[i] = guestapi.Step{Name: plain(s.Name, maxName), OK: s.OK, Detail: plain(s.Detail, maxMessage), MS: atLeast0(s.MS)}
	}
	return out, nil
}

// Warm starts the interpreter that contexts are forked from. Template builds
// alone call it.
func (c *Client) Warm(ctx context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error) {
	var out guestapi.WarmResponse
	err := c.do(ctx, call{method: http.MethodPost, path: "/warm", json: req, time: warmTime}, &out)
	if err != nil {
		return out, err
	}
	if len(out.Imports) > maxImports || len(out.Failed) > maxImports {
		return guestapi.WarmResponse{}, nonsense("%d imports", len(out.Imports)+len(out.Failed))
	}
	out.Version = plain(out.Version, maxName)
	for k, v := range out.Failed {
		out.Failed[k] = plain(v, maxMessage)
	}
	return out, nil
}

// EndedError is in the error of a call to a sandbox that is no more.
type EndedError struct{ Reason string } // "killed", "ttl", "oom", "crashed", …

func (e *EndedError) Error() string { return "the sandbox has ended: " + e.Reason }

// BeforeSnapshot lets programs inside get ready for an image.
func (c *Client) BeforeSnapshot(ctx context.Context) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/hooks/snapshot"}, nil)
}
