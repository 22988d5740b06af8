package kernel

import (
	"sync"
	"time"
)

const rememberDetached = 4096 // executions at most

// watch knows which executions have somebody who waits for them, and tells
// when the last one has been gone for a while. It starts empty with every
// daemon: that a daemon died is nobody's leaving.
type watch struct {
	wait time.Duration
	left func(execution)

	mu     sync.Mutex
	known  map[execution]*watched
	closed bool
}

type execution struct{ sandbox, context, id string }

type watched struct {
	viewers int
	detach  bool // it may go on without any
	timer   *time.Timer
	since   time.Time // the last viewer left
}

func newWatch(wait time.Duration, left func(execution)) *watch {
	return &watch{wait: wait, left: left, known: map[execution]*watched{}}
}

// run notes that somebody started an execution, or came back to it with its
// code, and waits for it.
func (w *watch) run(e execution, detach bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.known[e]
	if x == nil {
		w.makeRoom()
		x = &watched{}
		w.known[e] = x
	}
	x.detach = x.detach || detach
	x.join()
}

// attach notes that somebody else waits for an execution. It is false for one
// that this daemon did not start: nobody will be missed there.
func (w *watch) attach(e execution) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.known[e]
	if x == nil {
		return false
	}
	x.join()
	return true
}

func (x *watched) join() {
	x.viewers++
	if x.timer != nil {
		x.timer.Stop()
		x.timer = nil
	}
}

// leave notes that somebody waits no longer, because the execution has ended
// or because they are gone.
func (w *watch) leave(e execution, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.known[e]
	if x == nil {
		return
	}
	x.viewers--
	switch {
	case x.viewers > 0:
	case ended || w.closed:
		delete(w.known, e)
	case x.detach: // remembered, so that a later viewer may leave too
		x.since = time.Now()
	default:
		x.timer = time.AfterFunc(w.wait, func() { w.expire(e, x) })
	}
}

func (w *watch) expire(e execution, x *watched) {
	w.mu.Lock()
	gone := !w.closed && w.known[e] == x && x.viewers == 0 && x.timer != nil
	if gone {
		delete(w.known, e)
	}
	w.mu.Unlock()
	if gone {
		w.left(e)
	}
}

// makeRoom forgets the detached execution that was left longest ago.
func (w *watch) makeRoom() {
	if len(w.known) < rememberDetached {
		return
	}
	var oldest execution
	var at time.Time
	for e, x := range w.known {
		if x.viewers == 0 && x.detach && (at.IsZero() || x.since.Before(at)) {
			oldest, at = e, x.since
		}
	}
	delete(w.known, oldest)
}

func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, x := range w.known {
		if x.timer != nil {
			x.timer.Stop()
			x.timer = nil
		}
	}
}
