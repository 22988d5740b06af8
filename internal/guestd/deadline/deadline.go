// Package deadline measures time that a sandbox has really run.
//
// A sandbox may be stored and come back hours later; its monotonic clock then
// jumps by that time and every timer fires at once. A cell must not be killed
// for that. So time is counted in short steps, and a step never counts for
// much more than its own length.
package deadline

import "time"

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

// Watch counts the time since it was started.
type Watch struct {
	clock Clock
	last  time.Time
	spent time.Duration
}

// Start starts a watch.
func Start(c Clock) *Watch { return &Watch{clock: c, last: c.Now()} }

// Spent is the time counted so far.
func (w *Watch) Spent() time.Duration {
	now := w.clock.Now()
	w.spent += min(max(now.Sub(w.last), 0), step+slack)
	w.last = now
	return w.spent
}

// Wait returns true when the watch has counted until, or false as soon as stop
// is closed.
func (w *Watch) Wait(until time.Duration, stop <-chan struct{}) bool {
	for {
		left := until - w.Spent()
		if left <= 0 {
			return true
		}
		select {
		case <-stop:
			return false
		case <-w.clock.After(min(left, step)):
		}
	}
}
