package sandbox

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clockTolerance is how far the wall clock may run from the time that really
// passed before it is taken to have been set.
const clockTolerance = 2 * time.Second

// clock is the time that lives are counted in. Rows hold times of the wall
// clock, which means the same to the next daemon and to users; but a time to
// live is time that passes. So when somebody sets the wall clock, this one
// goes on as before until the sweeper has moved all rows by as much. Nothing
// ends early, and nothing lives longer.
type clock struct {
	wall    func() time.Time
	elapsed func() time.Duration // that really passed, sleep of the machine included

	mu     sync.Mutex
	offset time.Duration // from elapsed to wall, as the rows have it
}

func newClock(wall func() time.Time, elapsed func() time.Duration) *clock {
	c := &clock{wall: wall, elapsed: elapsed}
	_, c.offset = c.read()
	return c
}

// read gives the wall clock and how far it is from elapsed.
func (c *clock) read() (wall time.Time, offset time.Duration) {
	wall = c.wall().Round(0) // without Go's own monotonic reading
	return wall, wall.Sub(time.Unix(0, 0)) - c.elapsed()
}

// Now is the time in the terms of the rows.
func (c *clock) Now() time.Time {
	now, _ := c.look()
	return now
}

// step is how far the wall clock was set since the rows were written, 0 when
// it was not.
func (c *clock) step() time.Duration {
	_, step := c.look()
	return step
}

func (c *clock) look() (now time.Time, step time.Duration) {
	wall, offset := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if step = offset - c.offset; step.Abs() < clockTolerance {
		step = 0
	}
	return wall.Add(-step), step
}

// accept says that the rows were moved.
func (c *clock) accept(step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += step
}

// followClock moves all times by as much as the host's clock was set.
func (m *Manager) followClock(ctx context.Context) error {
	step := m.clock.step()
	if step == 0 {
		return nil
	}
	if err := m.cfg.Store.Shift(ctx, step); err != nil {
		return err
	}
	for _, b := range m.all() {
		b.mu.Lock()
		b.row.ExpiresAt, b.row.UsedAt = shifted(b.row.ExpiresAt, step), shifted(b.row.UsedAt, step)
		b.row.SleptAt, b.tryAt = shifted(b.row.SleptAt, step), shifted(b.tryAt, step)
		b.usedAt, b.saved = shifted(b.usedAt, step), shifted(b.saved, step)
		b.mu.Unlock()
	}
	m.clock.accept(step)
	m.log.Warn("the host's clock was set; sandboxes keep the time they have left", "by", step.Round(time.Millisecond))
	return nil
}

func shifted(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

// sinceBoot is time that nobody can set.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // there since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}
