package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	handshakeTime = 5 * time.Second
	handshakesMax = 16                    // at once, silent or not
	refusalPause  = 20 * time.Millisecond // before the next connection is taken, so that a flood costs little
	probeTime     = 2 * time.Second       // for a live link to prove that it is alive when another one knocks
)

// ErrProtocol is in the error of a wait for a guest that dials, but speaks only
// versions of the protocol that this host does not know.
var ErrProtocol = errors.New("the guest speaks another version of the protocol")

// Options say whose guest a Listener waits for.
type Options struct {
	Dir        string // host folder that the sandbox sees as guestapi.LinkDir; made when missing
	SandboxID  string
	Generation int // what the guest is told; the host alone counts it
	Logger     *slog.Logger
	Watcher    Watcher // may be nil
}

// Watcher is told what becomes of a link. Its methods are called in order, and
// must not wait.
type Watcher interface {
	LinkUp(first bool) // the guest is linked
	LinkDown()         // the link broke, and was not closed
	LinkRefused()      // a connection was not let in
}

type nobody struct{}

func (nobody) LinkUp(bool)  {}
func (nobody) LinkDown()    {}
func (nobody) LinkRefused() {}

// Listener waits for the guest of one generation of one sandbox. The socket is
// the identity: whoever dials it is that sandbox, and only one may hold it.
type Listener struct {
	opts Options
	log  *slog.Logger
	ln   *net.UnixListener
	slot chan struct{} // of guests that have spoken and wait to be weighed
	done chan struct{} // closed by Close

	mu       sync.Mutex
	caller   Caller          // answers what the guest calls, nil for nobody
	silent   []*net.UnixConn // have dialled and not spoken yet, the oldest first
	live     *Client
	changed  chan struct{} // closed and replaced when live changes
	linked   bool          // there was a link before
	up       *Client       // the link that the watcher was told of
	mismatch error         // why the guest that dialled last was refused, when it is of another time
	closed   bool
	refused  int
	said     time.Time // when a refusal was last logged

	admit sync.Mutex // one newcomer at a time is weighed against the live link
}

// Listen makes the socket anew. Guests that knew an earlier one at the same
// place find this one when they dial again.
func Listen(opts Options) (*Listener, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Watcher == nil {
		opts.Watcher = nobody{}
	}
	// Inside, the agent runs as another user than the one that owns the folder
	// outside. What keeps others on the host away is the mode of the parents.
	if err := os.MkdirAll(opts.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the link folder: %w", err)
	}
	ln, err := bind(opts.Dir)
	if err != nil {
		return nil, err
	}
	l := &Listener{
		opts:    opts,
		log:     opts.Logger.With("sandbox", opts.SandboxID),
		ln:      ln,
		slot:    make(chan struct{}, handshakesMax),
		done:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	go l.accept()
	return l, nil
}

// bind listens on the socket in dir. The address of a Unix socket holds about
// a hundred bytes and data directories may be deeper than that, so the folder
// is named by a descriptor.
func bind(dir string) (*net.UnixListener, error) {
	name := filepath.Base(guestapi.LinkSocket)
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing the old link socket: %w", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the link folder: %w", err)
	}
	defer d.Close()
	addr := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on the link socket in %s: %w", dir, err)
	}
	ln.SetUnlinkOnClose(false) // the descriptor in its name is another folder by then
	if err := os.Chmod(filepath.Join(dir, name), 0o666); err != nil {
		ln.Close()
		return nil, fmt.Errorf("opening the link socket to the guest: %w", err)
	}
	return ln, nil
}

// Client waits until the guest is linked. The Client may break at any time;
// then ask again.
func (l *Listener) Client(ctx context.Context) (*Client, error) {
	for {
		l.mu.Lock()
		live, changed, closed := l.live, l.changed, l.closed
		l.mu.Unlock()
		if closed {
			return nil, fmt.Errorf("the link of %s is closed: %w", l.opts.SandboxID, ErrLinkLost)
		}
		switch {
		case live != nil && live.alive() && live.conn.hungUp():
			select {
			case <-live.Done(): // when its last answers are read
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			continue
		case live != nil && live.alive():
			return live, nil
		case live != nil:
			l.drop(live)
			continue
		}
		select {
		case <-changed:
			if err := l.mismatched(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// mismatched says that the guest that dialled last cannot be spoken with.
func (l *Listener) mismatched() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mismatch
}

// Renumber changes the generation that guests are told from now on. It is for
// one that nobody has called yet.
func (l *Listener) Renumber(generation int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opts.Generation = generation
}

func (l *Listener) generation() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opts.Generation
}

// Close ends the link and frees the socket; the folder stays.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.done)
	live := l.live
	l.live = nil
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()

	if live != nil {
		live.Close()
	}
	err := l.ln.Close()
	if rerr := os.Remove(filepath.Join(l.opts.Dir, filepath.Base(guestapi.LinkSocket))); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

func (l *Listener) accept() {
	for {
		conn, err := l.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Warn("link socket", "error", err) // out of descriptors, most likely
			l.rest(10 * refusalPause)
			continue
		}
		l.makeRoom(conn)
		go l.welcome(conn)
		if l.current() != nil {
			l.rest(refusalPause) // nobody honest dials while the link is up
		}
	}
}

// rest waits, unless the listener is closed.
func (l *Listener) rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.done:
	}
}

// makeRoom counts a connection among the silent ones. An honest guest speaks
// as soon as it has dialled, so when there are too many the one that has been
// silent longest goes: nobody keeps the others out by saying nothing.
func (l *Listener) makeRoom(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.silent) == handshakesMax {
		l.silent[0].Close()
		l.silent = l.silent[1:]
	}
	l.silent = append(l.silent, conn)
}

func (l *Listener) spoke(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = slices.DeleteFunc(l.silent, func(c *net.UnixConn) bool { return c == conn })
}

// welcome does the handshake on a new connection and makes it the link.
func (l *Listener) welcome(conn *net.UnixConn) {
	if err := l.shake(conn); err != nil {
		conn.Close()
		l.sayRefused(err)
	}
}

func (l *Listener) shake(conn *net.UnixConn) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	hello, err := readHello(conn)
	l.spoke(conn)
	if err != nil {
		return refuse(conn, fmt.Sprintf("bad handshake: %v", err))
	}
	protocol, known := guestapi.Agree(hello.Protocol, hello.Oldest)
	if !known {
		why := fmt.Sprintf("this host speaks the protocols %d to %d, the guest %d", guestapi.OldestProtocol, guestapi.Protocol, hello.Protocol)
		l.giveUp(why)
		return refuse(conn, why)
	}

	select {
	case l.slot <- struct{}{}:
		defer func() { <-l.slot }()
	default:
		return refuse(conn, "too many links are being weighed already")
	}
	l.admit.Lock()
	defer l.admit.Unlock()
	if old := l.current(); old != nil {
		// The agent may know sooner than we do that its link is dead.
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		_, err := old.Health(ctx)
		cancel()
		if err == nil {
			return refuse(conn, "there is a live link already")
		}
		l.log.Warn("the old link does not answer, taking a new one", "error", err)
		old.Close()
	}
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	generation := l.generation()
	if err := writeLine(conn, guestapi.Welcome{Protocol: protocol, Generation: generation}); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	client, err := newClient(conn, l.opts.SandboxID, generation, protocol)
	if err != nil {
		return err
	}
	if !l.adopt(client) {
		client.Close()
		return nil
	}
	l.log.Debug("guest linked", "protocol", protocol, "generation", generation, "boot_id", hello.BootID, "last_generation", hello.Generation)
	return nil
}

// giveUp ends the waits for a guest that this host cannot speak with, unless
// there is a link: then somebody in the sandbox only pretends.
func (l *Listener) giveUp(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live != nil || l.closed {
		return
	}
	l.mismatch = fmt.Errorf("%w: %s", ErrProtocol, why)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Listener) adopt(c *Client) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.live, l.mismatch = c, nil
	close(l.changed)
	l.changed = make(chan struct{})
	l.sayDown(l.up)
	l.opts.Watcher.LinkUp(!l.linked)
	l.linked, l.up = true, c
	go func() {
		<-c.Done()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sayDown(c)
	}()
	return true
}

// sayDown tells the watcher that a link is gone, once. The lock is held.
func (l *Listener) sayDown(c *Client) {
	if c != nil && l.up == c && !l.closed {
		l.up = nil
		l.opts.Watcher.LinkDown()
	}
}

// current is the live link, nil when there is none.
func (l *Listener) current() *Client {
	l.mu.Lock()
	live := l.live
	l.mu.Unlock()
	if live != nil && !live.alive() {
		l.drop(live)
		return nil
	}
	return live
}

// drop gives up a link that is of no use any more. The guest may not know, so
// the connection is closed: then it dials again.
func (l *Listener) drop(c *Client) {
	l.mu.Lock()
	if l.live == c {
		l.live = nil
	}
	l.mu.Unlock()
	c.Close()
}

// sayRefused logs refusals, but no more than one a second.
func (l *Listener) sayRefused(err error) {
	l.opts.Watcher.LinkRefused()
	l.mu.Lock()
	l.refused++
	n, closed, now := l.refused, l.closed, time.Now()
	quiet := closed || now.Sub(l.said) < time.Second
	if !quiet {
		l.said, l.refused = now, 0
	}
	l.mu.Unlock()
	if !quiet {
		l.log.Warn("a connection from the sandbox was refused", "error", err, "count", n)
	}
}

// refuse tells the guest why and gives the same as an error.
func refuse(conn net.Conn, why string) error {
	err := errors.New(why)
	if werr := writeLine(conn, guestapi.Welcome{Protocol: guestapi.Protocol, Error: why}); werr != nil {
		return errors.Join(err, werr)
	}
	return err
}

// readHello reads one line and nothing beyond it: the guest has to be silent
// until it is welcome.
func readHello(r io.Reader) (guestapi.Hello, error) {
	var hello guestapi.Hello
	br := bufio.NewReaderSize(io.LimitReader(r, guestapi.MaxHandshake), guestapi.MaxHandshake)
	line, err := br.ReadSlice('\n')
	if err != nil {
		return hello, fmt.Errorf("no line of at most %d bytes: %w", guestapi.MaxHandshake, err)
	}
	if br.Buffered() > 0 {
		return hello, errors.New("the guest spoke before it was welcome")
	}
	if err := json.Unmarshal(line, &hello); err != nil {
		return hello, err
	}
	hello.BootID = cut(hello.BootID, maxName)
	return hello, nil
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
