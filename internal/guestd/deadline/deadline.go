// Package deadline measures time that a sandbox has really run.
//
// A sandbox may be stored and come back hours later; its monotonic clock then
// jumps by that time and every timer fires at once. A cell must not be killed
// for that. So time is counted in short steps, and a step never counts for
// much more than its own length.
package deadline

import (
	"sync"
	"time"
)

const (
	step  = time.Second
	slack = 250 * time.Millisecond // by which a loaded machine may be late
)

// Clock is where time comes from.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// System is the real clock.
var System = Clock{Now: time.Now, After: time.After}

// Watch counts the time since it was started, but for that in which it is held.
type Watch struct {
	clock Clock

	mu    sync.Mutex
	last  time.Time
	spent time.Duration
	held  int
}

// Start starts a watch.
func Start(c Clock) *Watch { return &Watch{clock: c, last: c.Now()} }

// Spent is the time counted so far.
func (w *Watch) Spent() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count()
}

// count counts up to now. The lock is held.
func (w *Watch) count() time.Duration {
	now := w.clock.Now()
	if w.held == 0 {
		w.spent += min(max(now.Sub(w.last), 0), step+slack)
	}
	w.last = now
	return w.spent
}

// Hold keeps it from counting until free is called, which may be more than once.
func (w *Watch) Hold() (free func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	w.held++
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count()
		w.held--
	})
}

// next is how long to wait before the time is looked at again, 0 when until was counted.
func (w *Watch) next(until time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := until - w.count()
	if left > 0 && w.held > 0 {
		return step
	}
	return max(min(left, step), 0)
}

// Wait returns true when the watch has counted until, or false as soon as stop
// is closed.
func (w *Watch) Wait(until time.Duration, stop <-chan struct{}) bool {
	for {
		d := w.next(until)
		if d == 0 {
			return true
		}
		select {
		case <-stop:
			return false
		case <-w.clock.After(d):
		}
	}
}
