package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	lookTime    = 2 * time.Second        // for one look at one sandbox
	guestLook   = 200 * time.Millisecond // of it for what the guest says
	lookAnyway  = 30 * time.Second       // at a sandbox that nobody calls
	cpuWindow   = 200 * time.Millisecond // the shortest time over which use of CPU is told
	hitAgain    = time.Minute            // between two events about one limit
	heldAtLeast = 10                     // periods of 100 ms held back by the limit of CPU that are worth an event
)

// seen is what is known of the use of a sandbox.
type seen struct {
	mu      sync.Mutex
	usage   api.Usage
	process driver.Process
	looked  time.Time     // the last look of the loop
	held    bool          // by its limit of CPU, between the last two looks
	inside  int64         // memory in use as the guest counts it
	adopted bool          // what was met before is in its events already
	told    api.LimitHits // of which there are events
	toldAt  map[string]time.Time
}

// look finds out what a sandbox uses now.
func (m *Manager) look(ctx context.Context, b *box) (api.Usage, driver.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	row, inst := b.get(), b.instance()
	if inst == nil || row.State != store.Running && row.State != store.Paused {
		return api.Usage{}, driver.Process{}, errState(row)
	}
	s, err := inst.Stats(ctx)
	if err != nil {
		if now := b.get(); now.State != row.State {
			err = errState(now)
		}
		return api.Usage{}, driver.Process{}, err
	}
	health, heard := m.askGuest(ctx, b, row.State)

	x := &b.seen
	x.mu.Lock()
	defer x.mu.Unlock()
	now, before := m.cfg.Now(), x.usage
	u := api.Usage{
		At: now, CPUPercent: before.CPUPercent, CPUSeconds: s.CPUSeconds, MemoryBytes: s.MemoryBytes, DiskBytes: s.DiskBytes, Processes: s.Tasks,
		LimitHits: api.LimitHits{CPU: s.Throttled, CPUSeconds: s.ThrottledSeconds, MemoryMB: health.MemoryHits, DiskMB: s.DiskRefused, PIDs: s.TasksRefused},
	}
	if !heard {
		u.LimitHits.MemoryMB = before.LimitHits.MemoryMB
	}
	since, spent := before.At, s.CPUSeconds-before.CPUSeconds
	if since.IsZero() {
		since, spent = row.CreatedAt, s.CPUSeconds
	}
	if over := now.Sub(since); over >= cpuWindow {
		u.CPUPercent = 100 * max(0, spent) / over.Seconds()
		x.held = u.LimitHits.CPU-before.LimitHits.CPU > int64(over/(500*time.Millisecond)) // more than a fifth of its periods
	} else if !before.At.IsZero() { // too short a time to tell; the next look counts from the last one
		u.At, u.CPUSeconds = before.At, before.CPUSeconds
	}
	x.usage, x.process, x.inside = u, s.Process, health.MemoryBytes
	u.At, u.CPUSeconds = now, s.CPUSeconds
	return u, s.Process, nil
}

// askGuest asks what only the guest knows of its memory. By lying it can only
// spoil its own counts and hints. A guest that is busy is not waited for, and
// being asked is no sign of life.
func (m *Manager) askGuest(ctx context.Context, b *box, state store.State) (h guestapi.Health, ok bool) {
	b.mu.Lock()
	link := b.link
	b.mu.Unlock()
	if state != store.Running || link == nil {
		return h, false
	}
	ctx, cancel := context.WithTimeout(ctx, guestLook)
	defer cancel()
	client, err := link.Client(ctx)
	if err == nil {
		h, err = client.Health(ctx)
	}
	if err != nil {
		m.log.Debug("a guest does not say how it is", "sandbox", b.id, "error", err)
	}
	return h, err == nil
}

// Metrics tells what a sandbox may use and uses.
func (m *Manager) Metrics(ctx context.Context, owner, id string) (api.Metrics, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Metrics{}, err
	}
	u, p, err := m.look(ctx, b)
	if err != nil {
		return api.Metrics{}, err
	}
	row := b.get()
	m.tellHits(b, u.LimitHits)
	return api.Metrics{
		PID: p.PID, UptimeSeconds: u.At.Sub(row.CreatedAt).Seconds(), HostCPUPercent: u.CPUPercent,
		HostRSSBytes: p.RSSBytes, HostVSZBytes: p.VSZBytes, Threads: p.Threads,
		Limits: api.Limits{CPU: row.CPU, MemoryMB: row.MemoryMB, DiskMB: row.DiskMB, PIDs: row.PIDs}, Usage: u,
	}, nil
}

// lookLoop looks at the sandboxes that are in use, so that their events tell
// of limits even when nobody asks.
func (m *Manager) lookLoop(ctx context.Context) {
	tick := time.NewTicker(m.cfg.LookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, b := range m.all() {
				m.lookIfUsed(ctx, b)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) lookIfUsed(ctx context.Context, b *box) {
	row, now := b.get(), m.cfg.Now()
	if row.State != store.Running || ctx.Err() != nil {
		return
	}
	b.mu.Lock()
	used := b.calls > 0
	last := b.usedAt
	b.mu.Unlock()
	x := &b.seen
	x.mu.Lock()
	due := used || last.After(x.looked) || now.Sub(x.looked) >= lookAnyway
	if due {
		x.looked = now
	}
	x.mu.Unlock()
	if !due {
		return
	}
	u, _, err := m.look(ctx, b)
	if err != nil {
		if b.get().State == store.Running && ctx.Err() == nil {
			m.log.Warn("the use of a sandbox cannot be seen", "sandbox", b.id, "error", err)
		}
		return
	}
	m.tellHits(b, u.LimitHits)
}

// tellHits makes events of limits that were met since the last ones, for each
// limit one a minute at most.
func (m *Manager) tellHits(b *box, h api.LimitHits) {
	row, now := b.get(), m.cfg.Now()
	x := &b.seen
	x.mu.Lock()
	if x.adopted {
		x.adopted, x.told = false, h
	}
	var events []map[string]any
	for _, l := range []struct {
		name  string
		told  *int64
		now   int64
		least int64
		words string
	}{
		{"cpu", &x.told.CPU, h.CPU, heldAtLeast, fmt.Sprintf("held back in %d periods of 100 ms, %.1f s in all, by its limit of %g cores", h.CPU, h.CPUSeconds, row.CPU)},
		{"memory_mb", &x.told.MemoryMB, h.MemoryMB, 1, fmt.Sprintf("short of memory %d times under its limit of %d MB", h.MemoryMB, row.MemoryMB)},
		{"disk_mb", &x.told.DiskMB, h.DiskMB, 1, fmt.Sprintf("%d writes refused by its limit of %d MB", h.DiskMB, row.DiskMB)},
		{"pids", &x.told.PIDs, h.PIDs, 1, fmt.Sprintf("%d processes refused by its limit of %d", h.PIDs, row.PIDs)},
	} {
		if l.now < *l.told {
			*l.told = 0 // it was restored since
		}
		if l.now-*l.told < l.least || now.Sub(x.toldAt[l.name]) < hitAgain {
			continue
		}
		*l.told = l.now
		if x.toldAt == nil {
			x.toldAt = map[string]time.Time{}
		}
		x.toldAt[l.name] = now
		events = append(events, map[string]any{"limit": l.name, "hits": l.now, "detail": l.words})
	}
	x.mu.Unlock()
	for _, e := range events {
		m.note(b, api.LifeLimitHit, e)
		m.log.Info("a sandbox met a limit", "sandbox", b.id, "limit", e["limit"], "detail", e["detail"])
	}
}
