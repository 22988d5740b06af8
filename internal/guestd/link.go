package guestd

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	dialAtFirst   = 5 * time.Millisecond
	dialAtMost    = time.Second
	handshakeTime = 10 * time.Second
)

// serveLink dials the host again and again, and serves it whenever that
// worked. A snapshot breaks the connection, in the sandbox that goes on as in
// every copy, and both are back at once.
func (a *Agent) serveLink(ctx context.Context) error {
	conns := newConnListener()
	server := &http.Server{
		Handler:   a.routes(),
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          1024,
			MaxReadFrameSize:              256 << 10,
			MaxReceiveBufferPerStream:     2 << 20,
			MaxReceiveBufferPerConnection: 4<<20 - 1, // the most there may be
		},
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(conns) }()
	defer server.Close()

	wait := time.Duration(0)
	for ctx.Err() == nil {
		if wait > 0 {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(wait):
			}
		}
		conn, err := a.dial(ctx)
		if err != nil {
			if wait = min(max(2*wait, dialAtFirst), dialAtMost); wait == dialAtMost {
				a.log.Debug("the host does not answer", "error", err)
			}
			continue
		}
		wait = 0
		select {
		case conns.accept <- conn:
		case <-ctx.Done():
			return conn.Close()
		}
		select {
		case <-conn.closed:
		case <-ctx.Done():
			return conn.Close()
		}
	}
	return nil
}

func (a *Agent) dial(ctx context.Context) (*linkConn, error) {
	d := net.Dialer{Timeout: handshakeTime}
	conn, err := d.DialContext(ctx, "unix", a.cfg.Link)
	if err != nil {
		return nil, err
	}
	r, err := a.shakeHands(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	link := &linkConn{Conn: conn, r: r, closed: make(chan struct{})}
	go link.watch()
	return link, nil
}

func (a *Agent) shakeHands(conn net.Conn) (io.Reader, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	offer := cmp.Or(a.offer, a.newest())
	a.offer = 0
	hello, err := json.Marshal(guestapi.Hello{
		Protocol:   offer,
		Oldest:     guestapi.OldestProtocol,
		Generation: int(a.generation.Load()),
		BootID:     a.bootID,
	})
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(append(hello, '\n')); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, guestapi.MaxHandshake)
	welcome, err := readWelcome(r)
	if err != nil {
		// A host of the release before asks for exactly its version.
		if v, ok := guestapi.Agree(welcome.Protocol, welcome.Protocol); ok && welcome.Error != "" && v < offer {
			a.offer = v
		}
		return nil, err
	}
	if welcome.Protocol > offer {
		return nil, fmt.Errorf("the host wants to speak protocol %d and was offered %d", welcome.Protocol, offer)
	}
	a.log.Debug("linked to the host", "generation", welcome.Generation, "protocol", welcome.Protocol)
	return r, conn.SetDeadline(time.Time{})
}

// readWelcome reads the host's line. What follows it is HTTP/2 already.
func readWelcome(r *bufio.Reader) (guestapi.Welcome, error) {
	var w guestapi.Welcome
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return w, fmt.Errorf("the host's handshake is longer than %d bytes", guestapi.MaxHandshake)
	}
	if err != nil {
		return w, err
	}
	if err := json.Unmarshal(line, &w); err != nil {
		return w, fmt.Errorf("the host's handshake: %w", err)
	}
	if w.Error != "" {
		return w, fmt.Errorf("the host refuses the link: %s", w.Error)
	}
	if v, ok := guestapi.Agree(w.Protocol, w.Protocol); !ok || v != w.Protocol {
		return w, fmt.Errorf("the host speaks protocol %d, this agent %d to %d", w.Protocol, guestapi.OldestProtocol, guestapi.Protocol)
	}
	return w, nil
}

// linkConn is a connection past its handshake, of which r may hold the first
// bytes of HTTP/2.
type linkConn struct {
	net.Conn
	r      io.Reader
	once   sync.Once
	closed chan struct{}

	mu      sync.Mutex
	pending []byte // written, and on its way
	failed  error  // of an earlier write
}

// pendingMost is how many bytes are gathered before they are sent at once.
const pendingMost = 16 << 10

func (c *linkConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// Write gathers what is written before the agent has nothing else to do: HTTP/2
// writes the head of an answer and its body apart, and each write costs a
// system call here and wakes the host.
func (c *linkConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	soon := len(c.pending) == 0
	if soon && len(b) >= pendingMost {
		n, err := c.Conn.Write(b)
		c.failed = err
		return n, err
	}
	c.pending = append(c.pending, b...)
	switch {
	case len(c.pending) >= pendingMost:
		return len(b), c.send()
	case soon:
		go c.flush()
	}
	return len(b), nil
}

// flush sends what has gathered when all that could run has run.
func (c *linkConn) flush() {
	runtime.Gosched()
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.send() // the next write tells
}

// send writes what is pending. The lock is held.
func (c *linkConn) send() error {
	if len(c.pending) > 0 && c.failed == nil {
		_, c.failed = c.Conn.Write(c.pending)
		c.pending = c.pending[:0]
	}
	return c.failed
}

func (c *linkConn) Close() error {
	c.hangUp()
	err := c.Conn.Close()
	c.once.Do(func() { close(c.closed) })
	return err
}

// connListener hands dialled connections to an http.Server.
type connListener struct {
	accept chan *linkConn
	once   sync.Once
	done   chan struct{}
}

var _ net.Listener = (*connListener)(nil)

func newConnListener() *connListener {
	return &connListener{accept: make(chan *linkConn), done: make(chan struct{})}
}

func (l *connListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *connListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *connListener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "link"} }
