package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/deadline"
)

const (
	directly  = 32 << 10 // bytes that a socket takes when it is empty
	frameTime = 100 * time.Millisecond
	leaveTime = 200 * time.Millisecond // between the end of its channel and that of its process
	goneTime  = 2 * time.Second        // for the status of an interpreter that was killed
)

// sink gets what an interpreter says, in order. Its methods are called with
// the interpreter's lock held and must not call back.
type sink interface {
	output(stream int, b []byte)
	frame(f frame)
	dead()
}

// interp is one interpreter process: a fork of the zygote.
type interp struct {
	pid     int
	exit    *exit
	control *os.File
	sync    *os.File
	out     *child.Outputs // its lock is this interpreter's

	frames  frameReader
	scratch []byte
	sink    sink
	next    int   // the number that it will give the next cell
	broken  error // what was wrong with its control channel
	closed  bool
	ready   chan struct{} // closed by the answer to init
	acted   chan struct{} // gets the answer to rehearse
	forked  chan frame    // gets the answers to fork
	forks   int           // asked for; whoever holds the context counts
	gone    chan struct{} // closed when it is of no use any more
	left    chan struct{} // closed when its process has ended, too, as far as is known
	once    sync.Once

	writing sync.Mutex
	causeMu sync.Mutex
	cause   string // why we killed it
}

// exit is how an interpreter process ended, as soon as that is known.
type exit struct {
	once   sync.Once
	done   chan struct{}
	code   int
	signal syscall.Signal
}

func newExit() *exit { return &exit{done: make(chan struct{})} }

func (e *exit) end(code int, signal syscall.Signal) {
	e.once.Do(func() {
		e.code, e.signal = code, signal
		close(e.done)
	})
}

// newInterp makes our ends of the four channels, and the ends for the process.
func newInterp() (*interp, []*os.File, error) {
	k := &interp{ready: make(chan struct{}), acted: make(chan struct{}, 1), forked: make(chan frame, 1), gone: make(chan struct{}), left: make(chan struct{}), sink: discard{}}
	var theirs []*os.File
	fail := func(err error) (*interp, []*os.File, error) {
		k.closeFiles()
		closeAll(theirs)
		return nil, nil, err
	}
	for _, f := range []**os.File{&k.control, &k.sync} {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fail(fmt.Errorf("socketpair: %w", err))
		}
		_ = unix.SetNonblock(fds[0], true)
		*f = os.NewFile(uintptr(fds[0]), "interpreter")
		theirs = append(theirs, os.NewFile(uintptr(fds[1]), "interpreter"))
	}
	out, ends, err := child.NewOutputs(func(stream int, b []byte) { k.sink.output(stream, b) })
	if err != nil {
		return fail(err)
	}
	k.out = out
	return k, append(theirs, ends[0], ends[1]), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func (k *interp) closeFiles() {
	for _, f := range []*os.File{k.control, k.sync} {
		if f != nil {
			_ = f.Close()
		}
	}
	if k.out != nil {
		k.out.Close()
	}
}

// run starts to read what the process says.
func (k *interp) run(pid int, e *exit) {
	k.pid, k.exit = pid, e
	k.out.Run()
	go k.pump(k.control, k.readControl)
	go k.pump(k.sync, k.answerSync)
	go func() {
		select {
		case <-k.gone:
			if !k.exitWithin(leaveTime) { // it lives, but nobody can talk to it
				k.out.Lock()
				if k.broken == nil {
					k.broken = errors.New("it closed its channel to the guest agent")
				}
				k.out.Unlock()
			}
			k.kill("")
			k.exitWithin(goneTime)
		case <-k.exit.done:
			// A child that it forked may hold the channels open.
		}
		k.out.Lock()
		k.pullControl()
		k.out.Drain()
		k.leave(nil)
		k.closed = true
		k.sink.dead()
		k.out.Unlock()
		k.closeFiles()
		close(k.left)
	}()
}

// leave marks the interpreter as gone. The lock is held.
func (k *interp) leave(err error) {
	k.once.Do(func() {
		k.broken = err
		close(k.gone)
	})
}

// pump calls handle with the lock held whenever f may be read, until that
// returns false.
func (k *interp) pump(f *os.File, handle func() bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(uintptr) bool {
		k.out.Lock()
		defer k.out.Unlock()
		return !handle()
	})
}

// readNow reads what is there, without waiting.
func readNow(f *os.File, b []byte) (n int, end bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, true
	}
	var readErr error
	err = raw.Control(func(fd uintptr) {
		for {
			n, readErr = syscall.Read(int(fd), b)
			if readErr != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case err != nil:
		return 0, true
	case readErr == syscall.EAGAIN:
		return 0, false
	case readErr != nil || n == 0:
		return 0, true
	}
	return n, false
}

// readControl handles the control frames that are waiting.
func (k *interp) readControl() bool {
	if k.closed {
		return false
	}
	if !k.pullControl() {
		k.out.Drain()
		k.leave(nil)
		return false
	}
	return k.broken == nil
}

// pullControl reads the control channel empty and passes the frames on, after
// all output that was written before them: an interpreter that writes between
// two frames waits for us on the sync channel first. It returns false at the
// end.
func (k *interp) pullControl() bool {
	for {
		state := k.fill()
		for drained := false; k.broken == nil; {
			f, ok, err := k.frames.next()
			if err != nil {
				k.leave(err)
			}
			if !ok {
				break
			}
			if !drained {
				k.out.Drain()
				drained = true
			}
			k.pass(f)
		}
		if state != moreWaits || k.broken != nil {
			return state != channelEnded
		}
	}
}

type channelState int

const (
	channelEmpty channelState = iota
	moreWaits                 // enough was read for now
	channelEnded
)

func (k *interp) fill() channelState {
	if k.scratch == nil {
		k.scratch = make([]byte, 32<<10)
	}
	for len(k.frames.buf) <= maxFrame+4 {
		n, end := readNow(k.control, k.scratch)
		if end {
			return channelEnded
		}
		if n == 0 {
			return channelEmpty
		}
		k.frames.feed(k.scratch[:n])
	}
	return moreWaits
}

func (k *interp) pass(f frame) {
	if f.Next > 0 {
		k.next = f.Next
	}
	switch f.Op {
	case "ready":
		select {
		case <-k.ready:
		default:
			close(k.ready)
		}
	case "forked", "fork_failed":
		select {
		case <-k.forked: // an answer that nobody waits for any more
		default:
		}
		select {
		case k.forked <- f:
		default:
		}
	case "rehearsed":
		select {
		case k.acted <- struct{}{}:
		default:
		}
	default:
		k.sink.frame(f)
	}
}

// answerSync tells the interpreter that all it has written so far has arrived.
func (k *interp) answerSync() bool {
	if k.closed {
		return false
	}
	var b [16]byte
	for {
		n, end := readNow(k.sync, b[:])
		if end {
			return false
		}
		if n == 0 {
			return true
		}
		k.pullControl()
		k.out.Drain()
		raw, err := k.sync.SyscallConn()
		if err != nil {
			return false
		}
		_ = raw.Control(func(fd uintptr) { _, _ = syscall.Write(int(fd), b[:n]) })
	}
}

func (k *interp) nextCount() int {
	k.out.Lock()
	defer k.out.Unlock()
	return k.next
}

// attach sends what the interpreter says from now on to another sink. What is
// still in the pipes belongs to the one before.
func (k *interp) attach(s sink) {
	k.out.Lock()
	defer k.out.Unlock()
	k.out.Drain()
	k.sink = s
	if k.closed {
		s.dead()
	}
}

// post writes a frame without waiting: one that the process is slow to read is
// written in the background. An error means that it is gone, which shows.
func (k *interp) post(v any, size int) {
	if size < directly {
		_ = k.send(v)
		return
	}
	go func() { _ = k.send(v) }()
}

// send writes a frame. It waits as long as the process does not read.
func (k *interp) send(v any) error {
	b, err := encodeFrame(v)
	if err != nil {
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	_, err = k.control.Write(b)
	return err
}

// init makes a spare into a context.
func (k *interp) init(ctx context.Context, f initFrame, limit time.Duration) error {
	if err := k.send(f); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return k.answered(ctx, k.ready, limit)
}

// rehearse lets a spare do once more what it did when it was forked: after a
// restore that brings back the pages a first cell needs.
func (k *interp) rehearse(ctx context.Context, limit time.Duration) error {
	if err := k.send(map[string]string{"op": "rehearse"}); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	return k.answered(ctx, k.acted, limit)
}

// answered waits for the answer of a spare.
func (k *interp) answered(ctx context.Context, answer <-chan struct{}, limit time.Duration) error {
	expired, stop := expiry(limit)
	defer stop()
	select {
	case <-answer:
		return nil
	case <-k.gone:
		return fmt.Errorf("the interpreter died at once: %s", k.fate())
	case <-k.exit.done:
		return fmt.Errorf("the interpreter died at once: %s", k.fate())
	case <-expired:
		return fmt.Errorf("the interpreter did not answer within %s", limit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// expiry gives a channel that is closed when the sandbox has run for a time,
// unless stop is called before.
func expiry(d time.Duration) (expired <-chan struct{}, stop func()) {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		if deadline.Start(deadline.System).Wait(d, stopped) {
			close(over)
		}
	}()
	return over, func() { close(stopped) }
}

// waitLeft waits until the interpreter has ended and all that it wrote was
// passed on, and kills it should it not end by itself.
func (k *interp) waitLeft() {
	for range 2 {
		select {
		case <-k.left:
			return
		case <-time.After(afterKill):
			k.kill("")
		}
	}
}

// exitWithin waits for the end of the process.
func (k *interp) exitWithin(d time.Duration) bool {
	select {
	case <-k.exit.done:
		return true
	case <-time.After(d):
		return false
	}
}

func (k *interp) alive() bool {
	select {
	case <-k.gone:
		return false
	case <-k.exit.done:
		return false
	default:
		return true
	}
}

// signal sends a signal to the process group of the interpreter.
func (k *interp) signal(sig syscall.Signal) {
	if k.alive() {
		_ = unix.Kill(-k.pid, sig)
	}
}

// interrupt stops a cell, also one that the interpreter has not begun yet: for
// that one it finds the frame, since a signal between cells is nothing to it.
func (k *interp) interrupt(id string) {
	k.announceInterrupt(id)
	k.signal(syscall.SIGINT)
}

func (k *interp) announceInterrupt(id string) {
	sent := make(chan struct{})
	go func() {
		_ = k.send(interruptFrame{Op: "interrupt", ID: id})
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(frameTime): // it does not read, so it is in a cell
	}
}

// kill ends the interpreter and all of its session. The first cause counts.
func (k *interp) kill(cause string) {
	k.causeMu.Lock()
	if k.cause == "" {
		k.cause = cause
	}
	k.causeMu.Unlock()
	child.KillSession(k.pid)
}

func (k *interp) why() string {
	k.causeMu.Lock()
	defer k.causeMu.Unlock()
	return k.cause
}

// fate says in words how the process ended.
func (k *interp) fate() string {
	k.out.Lock()
	broken := k.broken
	k.out.Unlock()
	if broken != nil {
		return broken.Error()
	}
	select {
	case <-k.exit.done:
	default:
		return "nothing is known of its end"
	}
	switch {
	case k.exit.signal != 0:
		return "it was ended by " + signalWords(k.exit.signal)
	}
	return fmt.Sprintf("it ended itself with exit status %d", k.exit.code)
}

func signalWords(sig syscall.Signal) string {
	name := unix.SignalName(sig)
	switch sig {
	case unix.SIGSEGV:
		return name + " (a crash in compiled code: memory that is not its own)"
	case unix.SIGABRT:
		return name + " (a crash in compiled code: it gave up)"
	case unix.SIGBUS, unix.SIGILL, unix.SIGFPE:
		return name + " (a crash in compiled code)"
	}
	return name
}

// discard is the sink of an interpreter that nobody listens to.
type discard struct{}

var _ sink = discard{}

func (discard) output(int, []byte) {}
func (discard) frame(frame)        {}
func (discard) dead()              {}
