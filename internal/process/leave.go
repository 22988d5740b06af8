package process

import (
	"sync"
	"time"
)

// leaving ends commands whose callers have gone. One that has an id is given a
// while, in which its caller may come back to it.
type leaving struct {
	wait time.Duration

	mu      sync.Mutex
	waiting map[command]*attention
	closed  bool
}

type command struct{ sandbox, tag string }

// attention is who follows a command.
type attention struct {
	callers int
	timer   *time.Timer // runs while nobody does
}

func newLeaving(wait time.Duration) *leaving {
	return &leaving{wait: wait, waiting: map[command]*attention{}}
}

// join notes a caller of a command.
func (l *leaving) join(c command) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.waiting[c]
	if a == nil {
		a = &attention{}
		l.waiting[c] = a
	}
	a.callers++
	if a.timer != nil {
		a.timer.Stop()
		a.timer = nil
	}
}

// leave notes that a caller has gone, and has the command killed: at once, or
// with mayReturn when nobody comes back for it. One that has ended needs nobody.
func (l *leaving) leave(c command, ended, mayReturn bool, kill func()) {
	if l.left(c, ended, mayReturn, kill) {
		kill()
	}
}

// left reports whether the command is to be killed now.
func (l *leaving) left(c command, ended, mayReturn bool, later func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.waiting[c]
	if a.callers--; a.callers > 0 {
		return false
	}
	if ended || l.closed || !mayReturn {
		delete(l.waiting, c)
		return !ended && !l.closed
	}
	a.timer = time.AfterFunc(l.wait, func() {
		l.mu.Lock()
		due := !l.closed && l.waiting[c] == a && a.callers == 0
		if due {
			delete(l.waiting, c)
		}
		l.mu.Unlock()
		if due {
			later()
		}
	})
	return false
}

// close lets commands go on: that the daemon ends is nobody's leaving.
func (l *leaving) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, a := range l.waiting {
		if a.timer != nil {
			a.timer.Stop()
		}
	}
}
