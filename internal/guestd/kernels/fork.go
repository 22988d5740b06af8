package kernels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

const (
	forkWait     = 10 * time.Second // for the cells of a context to end
	forkTime     = 30 * time.Second // for an interpreter to copy itself
	maxWarning   = 1 << 10          // bytes
	maxWarnings  = 16
	helloTime    = 10 * time.Second // for a copy to say who it is
	maxHello     = 4 << 10
	leastForkPID = 2
)

// Fork makes copies of a context, one for each id, with all that it holds. It
// waits for the cells of the context, and lets none start meanwhile. All copies
// are there or none. room keeps memory for them until its answer is called.
func (m *Manager) Fork(ctx context.Context, cid string, ids []string, room func(copies int) (made func(), err error)) (guestapi.ForkResponse, error) {
	var resp guestapi.ForkResponse
	parent, err := m.Context(cid)
	if err != nil {
		return resp, err
	}
	copies, err := m.reserve(parent, ids)
	if err != nil {
		return resp, err
	}
	defer m.touch()
	resp.Warnings, err = parent.fork(ctx, copies, room)
	for _, c := range copies {
		switch {
		case err != nil:
			m.remove(c)
		default:
			resp.Contexts = append(resp.Contexts, c.Info())
			go c.loop()
		}
	}
	return resp, err
}

// reserve makes contexts that have no interpreter yet.
func (m *Manager) reserve(parent *Context, ids []string) ([]*Context, error) {
	if n := len(ids); n < 1 || n > guestapi.MaxForks {
		return nil, fault.InvalidField("count", "count must lie between 1 and %d, not %d", guestapi.MaxForks, n)
	}
	for i, id := range ids {
		if err := guestapi.CheckID("ids", id); err != nil {
			return nil, err
		}
		if slices.Contains(ids[:i], id) {
			return nil, fault.InvalidField("ids", "the id %s is there twice", id)
		}
	}
	info := parent.Info()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.contexts)+len(ids) > guestapi.MaxContexts {
		return nil, fault.New(api.CodeRateLimited, "there are %d contexts already, and a sandbox may have %d", len(m.contexts), guestapi.MaxContexts).
			WithHint("close some of them first, or make fewer copies")
	}
	for _, id := range ids {
		if m.contexts[id] != nil {
			return nil, fault.New(api.CodeConflict, "there is a context %s already", id)
		}
	}
	var copies []*Context
	for _, id := range ids {
		c := newContext(m, api.CreateContextRequest{ID: id, CWD: info.CWD, Envs: parent.envs})
		c.info.ForkedFrom = info.ID
		m.contexts[id] = c
		m.order = append(m.order, id)
		copies = append(copies, c)
	}
	return copies, nil
}

// fork gives each of the copies an interpreter that is a fork of this one's.
func (c *Context) fork(ctx context.Context, copies []*Context, room func(int) (func(), error)) (warnings []string, err error) {
	k, count, err := c.hold(ctx)
	if err != nil {
		return nil, err
	}
	defer c.release()
	made, err := room(len(copies))
	if err != nil {
		return nil, err
	}
	defer made()
	kids, warnings, err := k.fork(ctx, c.m.cfg.Reaper, len(copies))
	for i, kid := range kids {
		if err == nil {
			err = c.m.introduce(ctx, kid, copies[i], count)
		}
	}
	if err != nil {
		for _, kid := range kids {
			kid.kill("")
		}
	}
	return warnings, err
}

// introduce makes a fresh copy into its context.
func (m *Manager) introduce(ctx context.Context, k *interp, c *Context, count int) error {
	m.mu.Lock()
	f := initFrame{Op: "init", ContextID: c.info.ID, Reseed: m.limits.Reseed, Memory: int64(memoryShare * float64(m.limits.MemoryBytes))}
	m.mu.Unlock()
	f.Entropy = m.entropy()
	if err := k.init(ctx, f, m.cfg.StartTime); err != nil {
		return fmt.Errorf("the copy %s: %w", c.info.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fault.New(api.CodeConflict, "the context %s was closed", c.info.ID)
	}
	c.k, c.wanted, c.info.State, c.info.ExecutionCount = k, false, stateIdle, count
	c.change()
	return nil
}

// hold waits until no cell runs or waits, and lets none start until release.
func (c *Context) hold(ctx context.Context) (k *interp, count int, err error) {
	late := c.m.cfg.Clock.After(forkWait)
	for asked := false; ; {
		c.mu.Lock()
		if rests := c.k == nil && c.info.State != stateStarting; rests && !c.wanted && (!asked || c.info.State == stateIdle) {
			asked, c.wanted = true, true
			c.change()
		}
		changed := c.changed
		switch {
		case asked && !c.wanted && c.info.State == stateDead:
			c.mu.Unlock()
			return nil, 0, fault.New(api.CodeConflict, "the context %s gets no interpreter", c.info.ID).
				WithHint("restart it, or create another context")
		case c.closed:
			c.mu.Unlock()
			return nil, 0, fault.New(api.CodeNotFound, "the context %s was closed", c.info.ID)
		case !c.held && c.running == nil && len(c.queue) == 0 && c.k != nil && c.k.alive():
			c.held = true
			k, count = c.k, c.info.ExecutionCount
			c.mu.Unlock()
			return k, count, nil
		}
		c.mu.Unlock()
		select {
		case <-changed:
		case <-late:
			return nil, 0, fault.New(api.CodeConflict, "the context %s is still busy after %v", c.info.ID, forkWait).
				WithHint("wait for its cells or interrupt them, and fork again")
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

func (c *Context) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	c.change()
}

// fork asks the interpreter, which is idle, for copies of itself. They come
// also with an error when some of them could be made, for the caller to end.
func (k *interp) fork(ctx context.Context, reaper *child.Reaper, count int) (kids []*interp, warnings []string, err error) {
	var fds []int
	for range count {
		kid, theirs, err := newInterp()
		if err != nil {
			closeFilesOf(kids) // they have no process yet that could be killed
			return nil, nil, err
		}
		defer closeAll(theirs)
		for _, f := range theirs {
			fds = append(fds, int(f.Fd()))
		}
		kids = append(kids, kid)
	}
	answer, err := k.askFork(ctx, count, fds)
	if err != nil {
		closeFilesOf(kids)
		return nil, nil, err
	}
	for i, kid := range kids {
		if pid, herr := kid.hello(); herr == nil {
			_, exit := adopt(reaper, pid)
			kid.run(pid, exit)
		} else {
			kid.closeFiles()
			kids[i], err = nil, errors.Join(err, fmt.Errorf("a copy could not be made: %w", herr))
		}
	}
	kids = slices.DeleteFunc(kids, func(kid *interp) bool { return kid == nil })
	for _, w := range answer.Warnings[:min(len(answer.Warnings), maxWarnings)] {
		warnings = append(warnings, w[:min(len(w), maxWarning)])
	}
	return kids, warnings, err
}

// askFork sends the request with its descriptors and waits for the answer.
func (k *interp) askFork(ctx context.Context, count int, fds []int) (frame, error) {
	k.forks++
	id := strconv.Itoa(k.forks)
	b, err := encodeFrame(forkFrame{Op: "fork", ID: id, Count: count})
	if err != nil {
		return frame{}, err
	}
	k.writing.Lock()
	raw, err := k.control.SyscallConn()
	if err == nil {
		var sent error
		err = raw.Control(func(fd uintptr) { sent = unix.Sendmsg(int(fd), b, unix.UnixRights(fds...), nil, 0) })
		err = errors.Join(err, sent)
	}
	k.writing.Unlock()
	if err != nil {
		return frame{}, fmt.Errorf("the interpreter takes no request: %w", err)
	}
	expired, stop := expiry(forkTime)
	defer stop()
	for {
		select {
		case f := <-k.forked:
			switch {
			case f.ID != id: // of a request that was given up
				continue
			case f.Op == "fork_failed":
				return f, fault.New(api.CodeConflict, "the context cannot be forked now: %.1000s", f.Error).WithHint("try again when that has ended")
			}
			return f, nil
		case <-k.gone:
			return frame{}, errors.New("the interpreter died of it")
		case <-expired:
			return frame{}, fmt.Errorf("the interpreter did not answer within %s", forkTime)
		case <-ctx.Done():
			return frame{}, ctx.Err()
		}
	}
}

func closeFilesOf(kids []*interp) {
	for _, kid := range kids {
		kid.closeFiles()
	}
}

// hello reads the first frame of a copy, which tells its process id.
func (k *interp) hello() (pid int, err error) {
	if err := k.control.SetReadDeadline(time.Now().Add(helloTime)); err != nil {
		return 0, err
	}
	var b [1]byte
	for read := 0; read < maxHello; read++ {
		if _, err := io.ReadFull(k.control, b[:]); err != nil {
			return 0, err
		}
		k.frames.feed(b[:])
		f, ok, err := k.frames.next()
		switch {
		case err != nil:
			return 0, err
		case ok && f.Op == "forked" && f.PID >= leastForkPID:
			return f.PID, k.control.SetReadDeadline(time.Time{})
		case ok:
			return 0, fmt.Errorf("it says %q and not who it is", f.Op)
		}
	}
	return 0, errFrameTooLong
}

// adopt waits for a process that is ours as soon as its parent has ended.
func adopt(reaper *child.Reaper, pid int) (*child.Child, *exit) {
	e, c := newExit(), reaper.Adopt(pid)
	go func() {
		select {
		case <-c.Done():
			if s := c.Status(); s.Signaled() {
				e.end(0, s.Signal())
			} else {
				e.end(s.ExitStatus(), 0)
			}
		case <-e.done:
		}
	}()
	return c, e
}
