// Package child starts processes inside the sandbox and learns how they ended.
//
// The guest agent is pid 1 there: besides its own children it inherits every
// orphan. One Reaper waits for all of them, so that no status is stolen and no
// zombie stays. Nothing else in the agent may wait for processes, which is why
// os/exec is not used.
package child

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Reaper waits for the children of this process. There may be one per process.
type Reaper struct {
	// mu is held from before a fork until the child is known, so that a child
	// that ends at once finds its entry.
	mu      sync.Mutex
	waiting map[int]*Child
}

// NewReaper starts to wait for children.
func NewReaper() *Reaper {
	r := &Reaper{waiting: map[int]*Child{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for range ended {
			r.reap()
		}
	}()
	return r
}

func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := r.waiting[pid]; c != nil {
			delete(r.waiting, pid)
			c.end(status)
		}
	}
}

// Adopt waits for a process that another process has forked and that becomes
// a child of this one when its parent is gone.
func (r *Reaper) Adopt(pid int) *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newChild(pid)
	r.waiting[pid] = c
	return c
}

// Forget stops to wait for a process that ended under another parent.
func (r *Reaper) Forget(c *Child) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[c.PID] == c {
		delete(r.waiting, c.PID)
	}
}

// Child is a process that is waited for.
type Child struct {
	PID int

	once   sync.Once
	done   chan struct{}
	status syscall.WaitStatus
}

func newChild(pid int) *Child { return &Child{PID: pid, done: make(chan struct{})} }

func (c *Child) end(status syscall.WaitStatus) {
	c.once.Do(func() {
		c.status = status
		close(c.done)
	})
}

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Status says how it ended. It is meaningful once Done is closed.
func (c *Child) Status() syscall.WaitStatus { return c.status }
