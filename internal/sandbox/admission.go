package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// queue lets a few creates work at once, in order. What waits is bounded in
// number and in time.
type queue struct {
	turns   chan struct{}
	most    int
	timeout time.Duration

	mu   sync.Mutex
	busy int // waiting or at work
}

func newQueue(at, most int, timeout time.Duration) *queue {
	return &queue{turns: make(chan struct{}, at), most: most, timeout: timeout}
}

// wait gives a turn. The function ends it.
func (q *queue) wait(ctx context.Context) (done func(), err error) {
	q.mu.Lock()
	if q.busy >= q.most+cap(q.turns) {
		q.mu.Unlock()
		return nil, noCapacity("%d sandboxes are waiting to be created already", q.most)
	}
	q.busy++
	q.mu.Unlock()
	leave := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.busy--
	}
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	select {
	case q.turns <- struct{}{}:
		return sync.OnceFunc(func() { <-q.turns; leave() }), nil
	case <-timer.C:
		leave()
		return nil, noCapacity("the server was too busy to create the sandbox within %s", q.timeout)
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// working counts the creates that have their turn: what they will use cannot
// be seen in the host's memory yet.
func (q *queue) working() int { return len(q.turns) }

// waiting counts the creates that wait or work.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy
}

// idle reports whether no create waits or works.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.busy == 0
}

// takePlace counts a user's sandbox and the limits that it was promised, or
// says what of the host is all given away.
func (m *Manager) takePlace(owner string, want driver.Limits) error {
	have, err := m.cfg.Capacity()
	if err != nil {
		return fmt.Errorf("reading what the host has: %w", err)
	}
	disk, err := m.cfg.DiskAvailable()
	if err != nil {
		return fmt.Errorf("reading how much of the disk is free: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.MaxPerOwner > 0 && m.places[owner] >= m.cfg.MaxPerOwner {
		return fault.New(api.CodeRateLimited, "the workspace has its maximum of %d sandboxes", m.cfg.MaxPerOwner).
			WithHint("kill some that are not needed; the server's setting max_sandboxes_per_workspace says how many there may be").After(retryAfter)
	}
	all := 0
	for _, n := range m.places {
		all += n
	}
	if m.cfg.MaxSandboxes > 0 && all >= m.cfg.MaxSandboxes {
		return noCapacity("this server holds its maximum of %d sandboxes (max_sandboxes)", m.cfg.MaxSandboxes)
	}
	for _, r := range []struct {
		what, unit, setting string
		have, factor        float64
		given, want         float64
	}{
		{"memory", "MB", "memory_overcommit", float64(max(0, have.MemoryMB-m.cfg.MinFreeMB)), m.cfg.Overcommit.Memory, float64(m.given.MemoryMB), float64(want.MemoryMB)},
		{"processors", "cores", "cpu_overcommit", have.CPU, m.cfg.Overcommit.CPU, m.given.CPU, want.CPU},
		{"disk", "MB", "disk_overcommit", float64(max(0, int(disk>>20)-m.cfg.MinFreeDiskMB)), m.cfg.Overcommit.Disk, float64(m.given.DiskMB), float64(want.DiskMB)},
	} {
		if most := r.have * r.factor; r.factor > 0 && r.given+r.want > most {
			return noCapacity("the server has no %s left to promise: %.6g of %.6g %s (%.6g × %s %.6g) are given to %d sandboxes, and this one asks for %.6g",
				r.what, r.given, most, r.unit, r.have, r.setting, r.factor, all, r.want)
		}
	}
	m.count(owner, want, 1)
	return nil
}

func (m *Manager) leavePlace(owner string, had driver.Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count(owner, had, -1)
}

// count adds a sandbox to what is given away, or takes it off. The caller holds m.mu.
func (m *Manager) count(owner string, l driver.Limits, n int) {
	if m.places[owner] += n; m.places[owner] == 0 {
		delete(m.places, owner)
	}
	m.given.CPU += l.CPU * float64(n)
	m.given.MemoryMB += l.MemoryMB * n
	m.given.DiskMB += l.DiskMB * n
	if len(m.places) == 0 {
		m.given.CPU = 0 // what rounding left
	}
}

const retryAfter = 10 * time.Second

// noCapacity is the error of a create that the host has no room for.
func noCapacity(format string, args ...any) error {
	return fault.New(api.CodeNoCapacity, format, args...).
		WithHint("kill or hibernate sandboxes that are not needed, ask for less with cpu, memory_mb or disk_mb, or try again in %.0f seconds", retryAfter.Seconds()).
		After(retryAfter)
}

// roomy reports whether the host has the memory for n more sandboxes, and for
// these bytes on top.
func (m *Manager) roomy(n int, bytes int64) (ok bool, free int64, err error) {
	free, err = m.cfg.MemoryAvailable()
	if err != nil {
		return false, 0, fmt.Errorf("reading how much memory is free: %w", err)
	}
	return free>>20 >= int64(m.cfg.MinFreeMB+n*m.cfg.SandboxMB)+bytes>>20, free, nil
}

// makeRoom sees that there is memory for one more sandbox, which may be known
// to hold so many bytes, if need be by ending what waits in the pools: a user
// comes first.
func (m *Manager) makeRoom(ctx context.Context, bytes int64) error {
	beyond := max(0, bytes-int64(m.cfg.SandboxMB)<<20)
	for {
		ok, free, err := m.roomy(max(1, m.queue.working()), beyond)
		if err != nil || ok {
			return err
		}
		b := m.takeVictim()
		if b == nil {
			return errNoMemory(1, max(bytes, int64(m.cfg.SandboxMB)<<20), free, m.cfg.MinFreeMB)
		}
		m.log.Info("memory is short, ending a sandbox in the pool", "sandbox", b.id)
		if err := m.discard(ctx, b); err != nil {
			return err
		}
	}
}

// Capacity is what the host has for sandboxes, besides its disk.
type Capacity struct {
	CPU      float64 // cores
	MemoryMB int     // all of it
}

func hostCapacity() (Capacity, error) {
	total, err := meminfo("MemTotal:")
	return Capacity{CPU: float64(runtime.NumCPU()), MemoryMB: int(total >> 20)}, err
}

// errNoMemory says how much is missing for n sandboxes of so many bytes each.
func errNoMemory(n int, each, free int64, reserve int) error {
	return noCapacity("the server has no memory left: %d more would take about %d MB, and %d MB are free, of which %d MB are kept back (memory_reserve_mb)",
		n, int64(n)*each>>20, free>>20, reserve)
}

// memoryAvailable is what the host could give to programs without swapping.
func memoryAvailable() (int64, error) { return meminfo("MemAvailable:") }

// meminfo reads a line of /proc/meminfo, in bytes.
func meminfo(name string) (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) >= 2 && string(f[0]) == name {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/meminfo", name)
}
