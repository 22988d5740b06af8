package egress

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const chunk = 64 << 10 // bytes moved at once

var errBudget = errors.New("the budget of bytes is used up")

// meter holds the limits of one sandbox on what flows.
type meter struct {
	used   atomic.Int64 // bytes, both directions
	budget atomic.Int64 // 0: none
	bytes  *rate.Limiter
	starts *rate.Limiter // connections and requests
	open   atomic.Int64  // connections
	flows  atomic.Int64  // how many there may be
}

func newMeter(p *Policy, used int64, now time.Time) *meter {
	m := &meter{bytes: rate.NewLimiter(rate.Inf, chunk), starts: rate.NewLimiter(rate.Limit(p.flowRate), 2*p.flowRate)}
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
