package deadline_test

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/guestd/deadline"
)

// fakeClock is one whose timers fire at once, each after late more than asked.
type fakeClock struct {
	now   time.Time
	late  []time.Duration
	asked int
}

func (f *fakeClock) clock() deadline.Clock {
	return deadline.Clock{
		Now: func() time.Time { return f.now },
		After: func(d time.Duration) <-chan time.Time {
			if f.asked < len(f.late) {
				d += f.late[f.asked]
			}
			f.asked++
			f.now = f.now.Add(d)
			c := make(chan time.Time, 1)
			c <- f.now
			return c
		},
	}
}

func TestStoredTimeDoesNotCount(t *testing.T) {
	f := &fakeClock{now: time.Unix(0, 0), late: []time.Duration{0, 5 * time.Hour}}
	w := deadline.Start(f.clock())
	if !w.Wait(30*time.Second, nil) {
		t.Fatal("it did not end")
	}
	if f.asked < 29 {
		t.Errorf("a jump of five hours counted: only %d steps of 30 were waited", f.asked)
	}
}

func TestWaitCountsToTheMillisecond(t *testing.T) {
	f := &fakeClock{now: time.Unix(0, 0)}
	w := deadline.Start(f.clock())
	w.Wait(2500*time.Millisecond, nil)
	if got := w.Spent(); got != 2500*time.Millisecond {
		t.Errorf("spent %v", got)
	}
}

func TestStopEndsTheWait(t *testing.T) {
	c := deadline.System
	c.After = func(time.Duration) <-chan time.Time { return nil }
	stop := make(chan struct{})
	close(stop)
	if deadline.Start(c).Wait(time.Hour, stop) {
		t.Error("it counted an hour")
	}
}
