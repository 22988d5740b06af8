package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// What carrying costs at most for one sandbox, whatever it does: this, what its
// stack buffers, and some 40 KB for each connection.
const (
	chunk      = 64 << 10 // bytes moved at once by a connection that has much to say
	smallChunk = 8 << 10  // by all others, and when there are maxLarge already
	maxLarge   = 256

	maxStreams = 100       // requests at once on one HTTP/2 connection of the sandbox
	maxHTTP2   = 128       // such connections at once; others speak HTTP/1.1
	frame      = 16 << 10  // bytes of HTTP/2 that are read at once
	upStream   = 128 << 10 // bytes of one request's body that the host has not taken
	upConn     = 512 << 10 // of all on a connection

	// Bytes that hosts have sent over HTTP/2 and the sandbox has not taken: of one
	// connection a part of what the sandbox has left, from window0 to window1.
	windows = 64 << 20
	window0 = 64 << 10
	window1 = 4<<20 - 1
)

var errBudget = errors.New("the budget of bytes is used up")

// meter holds the limits of one sandbox on what flows.
type meter struct {
	used   atomic.Int64 // bytes, both directions
	budget atomic.Int64 // 0: none
	bytes  *rate.Limiter
	starts *rate.Limiter // connections and requests
	open   atomic.Int64  // connections
	flows  atomic.Int64  // how many there may be

	// These are bounded by flows as well.
	requests atomic.Int64 // in progress
	more     atomic.Int64 // connections to hosts besides the first of each flow

	http2 atomic.Int64  // connections of the sandbox that speak it
	large chan struct{} // chunks that are lent
	mu    sync.Mutex
	left  int // of windows
}

func newMeter(p *Policy, used int64, now time.Time) *meter {
	m := &meter{bytes: rate.NewLimiter(rate.Inf, chunk), starts: rate.NewLimiter(rate.Limit(p.flowRate), 2*p.flowRate),
		large: make(chan struct{}, maxLarge), left: windows}
	m.used.Store(used)
	m.set(p, now)
	return m
}

// set takes the limits of a policy from now on.
func (m *meter) set(p *Policy, now time.Time) {
	m.budget.Store(p.bytes)
	m.flows.Store(int64(p.flows))
	m.starts.SetBurstAt(now, 2*p.flowRate)
	m.starts.SetLimitAt(now, rate.Limit(p.flowRate))
	m.bytes.SetBurst(int(max(p.rate, chunk)))
	if p.rate == 0 {
		m.bytes.SetLimit(rate.Inf)
	} else {
		m.bytes.SetLimit(rate.Limit(p.rate))
	}
}

func (m *meter) spent() bool {
	b := m.budget.Load()
	return b > 0 && m.used.Load() >= b
}

// take counts bytes and waits until the rate allows for them.
func (m *meter) take(ctx context.Context, n int) error {
	used := m.used.Add(int64(n))
	if b := m.budget.Load(); b > 0 && used > b {
		return errBudget
	}
	return m.bytes.WaitN(ctx, n)
}

// enter counts one more of what is bounded by the number of connections.
func (m *meter) enter(n *atomic.Int64) bool {
	if n.Add(1) > m.flows.Load() {
		n.Add(-1)
		return false
	}
	return true
}

// enterHTTP2 counts one more connection that speaks HTTP/2, if there may be one.
func (m *meter) enterHTTP2() bool {
	if m.http2.Add(1) > maxHTTP2 {
		m.http2.Add(-1)
		return false
	}
	return true
}

// window gives an HTTP/2 connection to a host its part of what may wait here.
func (m *meter) window() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(max(m.left/16, window0), window1)
	m.left -= n
	return n
}

func (m *meter) giveWindow(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left += n
}

var (
	smallChunks = sync.Pool{New: func() any { b := make([]byte, smallChunk); return &b }}
	chunks      = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}
)

var _ httputil.BufferPool = (*meter)(nil)

// Get implements httputil.BufferPool: a large chunk if one is left.
func (m *meter) Get() []byte {
	select {
	case m.large <- struct{}{}:
		return *chunks.Get().(*[]byte) //nolint:forcetypeassert // it holds nothing else
	default:
		return m.small()
	}
}

func (m *meter) small() []byte { return *smallChunks.Get().(*[]byte) } //nolint:forcetypeassert // it holds nothing else

// Put implements httputil.BufferPool.
func (m *meter) Put(b []byte) {
	if len(b) == smallChunk {
		smallChunks.Put(&b)
		return
	}
	chunks.Put(&b)
	<-m.large
}

// move copies until the end, which is no error. Who has little to say holds
// little: a sandbox may have a thousand connections that wait.
func (m *meter) move(to io.Writer, from io.Reader) error {
	b := m.small()
	defer func() { m.Put(b) }()
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case n == smallChunk && n == len(b):
			m.Put(b)
			b = m.Get()
		case n < smallChunk && len(b) > smallChunk:
			m.Put(b)
			b = m.small()
		}
	}
}

// metered is the sandbox's end of a connection, counted and held to its limits.
type metered struct {
	net.Conn
	ctx      context.Context //nolint:containedctx // the connection's own life
	meter    *meter
	spent    func() // called when the budget is used up
	out, in  *atomic.Int64
	onClosed func()
}

func (c *metered) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), chunk)])
	if n > 0 {
		c.out.Add(int64(n))
		if e := c.take(n); e != nil {
			return 0, e
		}
	}
	return n, err
}

func (c *metered) Write(b []byte) (done int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if err := c.take(len(part)); err != nil {
			return done, err
		}
		n, err := c.Conn.Write(part)
		c.in.Add(int64(n))
		done += n
		if err != nil {
			return done, err
		}
		b = b[n:]
	}
	return done, nil
}

func (c *metered) take(n int) error {
	err := c.meter.take(c.ctx, n)
	if errors.Is(err, errBudget) {
		c.spent()
	}
	return err
}

func (c *metered) Close() error {
	err := c.Conn.Close()
	if c.onClosed != nil {
		c.onClosed()
	}
	return err
}

// CloseWrite says that nothing more comes, if the connection can say that.
func (c *metered) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// abort ends a connection so that the peer takes it for broken, not for ended.
func abort(c net.Conn) {
	switch c := c.(type) {
	case interface{ Abort() }:
		c.Abort()
	case *net.TCPConn:
		_ = c.SetLinger(0) // it is closed either way
	}
	_ = c.Close()
}
