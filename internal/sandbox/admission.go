package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
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
		return nil, fault.New(api.CodeNoCapacity, "%d sandboxes are waiting to be created already", q.most).
			WithHint("try again in %d seconds", 10)
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
		return nil, fault.New(api.CodeNoCapacity, "the server was too busy to create the sandbox within %s", q.timeout).
			WithHint("try again in %d seconds", 10)
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

// takePlace counts a user's sandbox, or says that there are enough.
func (m *Manager) takePlace(owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places[owner] >= m.cfg.MaxPerOwner && m.cfg.MaxPerOwner < m.cfg.MaxSandboxes {
		return fault.New(api.CodeRateLimited, "the workspace has its maximum of %d sandboxes", m.cfg.MaxPerOwner).
			WithHint("kill some that are not needed; the server's setting max_sandboxes_per_workspace says how many there may be").After(10 * time.Second)
	}
	all := 0
	for _, n := range m.places {
		all += n
	}
	if all >= m.cfg.MaxSandboxes {
		return fault.New(api.CodeNoCapacity, "this server holds its maximum of %d sandboxes", m.cfg.MaxSandboxes).
			WithHint("kill some that are not needed, or try again later; the server's setting max_sandboxes says how many there may be")
	}
	m.places[owner]++
	return nil
}

func (m *Manager) leavePlace(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.places[owner]--; m.places[owner] == 0 {
		delete(m.places, owner)
	}
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

// errNoMemory says how much is missing for n sandboxes of so many bytes each.
func errNoMemory(n int, each, free int64, reserve int) error {
	return fault.New(api.CodeNoCapacity, "the server has no memory left: %d more would take about %d MB, and %d MB are free, of which %d MB are kept back",
		n, int64(n)*each>>20, free>>20, reserve).
		WithHint("kill or hibernate sandboxes that are not needed, or try again in %d seconds", 10)
}

// memoryAvailable is what the host could give to programs without swapping.
func memoryAvailable() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	s := bufio.NewScanner(bytes.NewReader(b))
	for s.Scan() {
		f := bytes.Fields(s.Bytes())
		if len(f) >= 2 && string(f[0]) == "MemAvailable:" {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("no MemAvailable in /proc/meminfo")
}
