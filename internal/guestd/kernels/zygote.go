package kernels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

const (
	maxNote = 64 << 10 // one message of the zygote
	lastLog = 8 << 10  // of what it wrote, for errors
)

// bootstrap starts the interpreter side. Its folder comes as an argument and
// not in PYTHONPATH, which the programs that a cell starts would inherit.
const bootstrap = `import sys, runpy; sys.path.insert(0, sys.argv.pop()); runpy.run_module("pandastack_kernel.zygote", run_name="__main__", alter_sys=True)`

// note is one message between the agent and the zygote.
type note struct {
	Op      string             `json:"op"`
	ID      string             `json:"id,omitempty"`
	Ahead   bool               `json:"ahead,omitempty"`
	PID     int                `json:"pid,omitempty"`
	Code    int                `json:"code,omitempty"`
	Signal  int                `json:"signal,omitempty"`
	Error   string             `json:"error,omitempty"`
	Version string             `json:"version,omitempty"`
	Imports map[string]float64 `json:"imports,omitempty"`
	Failed  map[string]string  `json:"failed,omitempty"`
	Threads int                `json:"threads,omitempty"`
}

// zygote is the interpreter that has everything imported and is forked.
type zygote struct {
	cfg   Config
	child *child.Child
	conn  *net.UnixConn
	out   *child.Outputs
	ready chan struct{} // closed when warm; greeting is set then
	gone  chan struct{} // closed when it has ended

	greeting note

	mu     sync.Mutex
	tokens int
	forks  map[string]chan forked
	kids   map[int]*kid
	log    []byte // the end of what it wrote
}

type kid struct {
	exit  *exit
	child *child.Child
}

type forked struct {
	pid  int
	exit *exit
	err  error
}

// startZygote starts the interpreter; it is warm when ready is closed.
func startZygote(cfg Config, req guestapi.WarmRequest) (*zygote, error) {
	imports := []byte{} // the interpreter's own list
	if req.Imports != nil {
		var err error
		if imports, err = json.Marshal(req.Imports); err != nil {
			return nil, err
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "zygote"), os.NewFile(uintptr(fds[1]), "zygote")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		return nil, fmt.Errorf("zygote's socket: %w", err)
	}
	z := &zygote{
		cfg: cfg, conn: conn.(*net.UnixConn),
		ready: make(chan struct{}), gone: make(chan struct{}),
		forks: map[string]chan forked{}, kids: map[int]*kid{},
	}
	var ends [2]*os.File
	if z.out, ends, err = child.NewOutputs(z.keepLog); err != nil {
		return nil, errors.Join(err, z.conn.Close())
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, z.conn.Close())
	}
	defer closeAll([]*os.File{null, ends[0], ends[1]})
	env := cfg.Env(child.Root, map[string]string{
		"PANDASTACK_IMPORTS": string(imports),
		"PANDASTACK_WARMUP":  req.Warmup,
		"PANDASTACK_TOOLS":   cfg.ToolSocket,
	})
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	z.child, err = cfg.Reaper.Start(child.Spec{
		Path:  req.Python,
		Argv:  []string{req.Python, "-I", "-c", bootstrap, cfg.Programs + "/kernel"},
		Env:   list,
		Dir:   cfg.Workspace,
		Files: []*os.File{null, ends[0], ends[1], theirs},
		User:  child.Root,
	})
	if err != nil {
		z.out.Close()
		return nil, errors.Join(fmt.Errorf("start %s: %w", req.Python, err), z.conn.Close())
	}
	z.out.Run()
	go z.listen()
	return z, nil
}

// keepLog passes on what the zygote prints, and remembers the end of it.
func (z *zygote) keepLog(_ int, b []byte) {
	_, _ = z.cfg.Stderr.Write(b)
	z.mu.Lock()
	defer z.mu.Unlock()
	z.log = append(z.log, b...)
	if n := len(z.log) - lastLog; n > 0 {
		z.log = append([]byte(nil), z.log[n:]...)
	}
}

func (z *zygote) lastWords() string {
	z.out.Lock()
	z.out.Drain()
	z.out.Unlock()
	z.mu.Lock()
	defer z.mu.Unlock()
	return string(bytes.TrimSpace(z.log))
}

// listen handles what the zygote says until it ends.
func (z *zygote) listen() {
	buf := make([]byte, maxNote)
	for {
		n, err := z.conn.Read(buf)
		if err != nil || n == 0 {
			break
		}
		var m note
		if err := json.Unmarshal(buf[:n], &m); err != nil {
			z.cfg.Log.Warn("zygote sent something that is not understood", "error", err)
			continue
		}
		z.hear(m)
	}
	_ = z.conn.Close()
	child.KillSession(z.child.PID)
	<-z.child.Done()
	z.mu.Lock()
	for id, c := range z.forks {
		c <- forked{err: errZygoteEnded}
		delete(z.forks, id)
	}
	z.mu.Unlock()
	close(z.gone)
}

func (z *zygote) hear(m note) {
	switch m.Op {
	case "ready":
		select {
		case <-z.ready:
		default:
			z.greeting = m
			close(z.ready)
		}
	case "forked":
		// Should the zygote die before its child, the child becomes ours.
		adopted, exit := adopt(z.cfg.Reaper, m.PID)
		k := &kid{exit: exit, child: adopted}
		z.mu.Lock()
		z.kids[m.PID] = k
		c := z.forks[m.ID]
		delete(z.forks, m.ID)
		z.mu.Unlock()
		if c == nil { // whoever asked has given up
			child.KillSession(m.PID)
			return
		}
		c <- forked{pid: m.PID, exit: k.exit}
	case "fork_failed":
		z.mu.Lock()
		c := z.forks[m.ID]
		delete(z.forks, m.ID)
		z.mu.Unlock()
		if c != nil {
			c <- forked{err: errors.New(m.Error)}
		}
	case "exited":
		z.mu.Lock()
		k := z.kids[m.PID]
		delete(z.kids, m.PID)
		z.mu.Unlock()
		if k != nil {
			z.cfg.Reaper.Forget(k.child)
			k.exit.end(m.Code, syscall.Signal(m.Signal))
		}
	}
}

// waitWarm waits for the imports.
func (z *zygote) waitWarm(ctx context.Context) error {
	select {
	case <-z.ready:
		return nil
	case <-z.gone:
		return fmt.Errorf("the interpreter ended before it was warm: %s", z.lastWords())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errZygoteEnded = errors.New("the zygote has ended")

// fork makes another interpreter out of the zygote: ahead of need, or for a
// context that waits for it.
func (z *zygote) fork(ctx context.Context, ahead bool) (*interp, error) {
	if err := z.waitWarm(ctx); err != nil {
		return nil, err
	}
	k, theirs, err := newInterp()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs)
	var fds []int
	for _, f := range theirs {
		fds = append(fds, int(f.Fd()))
	}
	answer := make(chan forked, 1)
	z.mu.Lock()
	z.tokens++
	id := strconv.Itoa(z.tokens)
	z.forks[id] = answer
	z.mu.Unlock()
	giveUp := func(err error) (*interp, error) {
		z.mu.Lock()
		delete(z.forks, id)
		z.mu.Unlock()
		k.closeFiles()
		return nil, err
	}
	msg, err := json.Marshal(note{Op: "fork", ID: id, Ahead: ahead})
	if err != nil {
		return giveUp(err)
	}
	if _, _, err := z.conn.WriteMsgUnix(msg, unix.UnixRights(fds...), nil); err != nil {
		select { // it takes no messages because it is about to be gone
		case <-z.gone:
			return giveUp(errZygoteEnded)
		case <-ctx.Done():
			return giveUp(fmt.Errorf("the zygote takes no messages: %w", err))
		}
	}
	expired, stop := expiry(z.cfg.StartTime)
	defer stop()
	select {
	case got := <-answer:
		if got.err != nil {
			return giveUp(fmt.Errorf("fork: %w", got.err))
		}
		k.run(got.pid, got.exit)
		return k, nil
	case <-z.gone:
		return giveUp(errZygoteEnded)
	case <-expired:
		z.stop() // the next context gets another one
		return giveUp(fmt.Errorf("the interpreter that others are forked from did not answer within %s", z.cfg.StartTime))
	case <-ctx.Done():
		return giveUp(ctx.Err())
	}
}

// stop ends the zygote. Its children go on.
func (z *zygote) stop() {
	_ = z.conn.Close()
	child.KillSession(z.child.PID)
}

func (z *zygote) alive() bool {
	select {
	case <-z.gone:
		return false
	default:
		return true
	}
}
