package sandbox

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// box is a sandbox that exists on this host: its row and what holds it up.
type box struct {
	id string

	// turn is held by whoever changes the state: a create, a claim, a kill, a
	// pause. It is a channel so that waiting for it can be given up.
	turn chan struct{}

	// Under turn.
	prepared driver.Prepared // until it is restored
	inst     driver.Instance // from then on
	gone     bool            // nothing of it is left
	gated    bool            // its network is open
	dirty    bool            // it sleeps, but a wake could not be undone wholly

	seen seen

	// stop ends a create in progress.
	stop context.CancelFunc

	mu      sync.Mutex
	link    *guest.Listener // nil while it sleeps
	row     store.Sandbox
	calls   int             // in progress
	once    int             // of these, those that cannot be made again
	changed chan struct{}   // closed and replaced when once falls
	gate    chan struct{}   // calls wait until it is closed; nil: they need not
	usedAt  time.Time       // when the last call ended or began
	saved   time.Time       // what the store knows of usedAt
	place   bool            // counts among MaxSandboxes
	moved   chan struct{}   // closed and replaced when the row changes
	warned  bool            // that it will be ended soon
	tryAt   time.Time       // not before may it be put to sleep again
	runs    driver.Instance // what inst is, for those without the turn
	cut     bool            // its link breaks because an image is made

	events     *rate.Limiter
	suppressed int // events since the last that was kept
}

func newBox(row store.Sandbox) *box {
	return &box{
		id: row.ID, row: row, turn: make(chan struct{}, 1), usedAt: row.UsedAt, saved: row.UsedAt, changed: make(chan struct{}), moved: make(chan struct{}),
		stop: func() {}, events: newEventLimit(),
	}
}

// lock takes the turn, unless the context ends first.
func (b *box) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryLock takes the turn if it is free.
func (b *box) tryLock() bool {
	select {
	case b.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (b *box) unlock() { <-b.turn }

// onHost is the id under which the driver knows it.
func (b *box) onHost() string {
	row := b.get()
	return row.OnHost()
}

// settle notes under which id the driver knows it from now on; "" is its own.
func (b *box) settle(hostID string) {
	row := b.get()
	row.HostID = hostID
	b.setRow(row)
}

func (b *box) setRow(row store.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row = row
	close(b.moved)
	b.moved = make(chan struct{})
}

// opened notes that a user has it from now on.
func (b *box) opened(row store.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.place, b.usedAt, b.saved, b.warned = true, row.UsedAt, row.UsedAt, false
}

// leavePlace says whether it counted among MaxSandboxes. It does no more.
func (b *box) leavePlace() (had bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	had, b.place = b.place, false
	return had
}

// warn says true once until it is opened again.
func (b *box) warn() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := !b.warned
	b.warned = true
	return first
}

func (b *box) touch(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usedAt = at
}

// mayTry and tryAgain keep the sweeper from trying every second what cannot work.
func (b *box) mayTry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.tryAt)
}

func (b *box) tryAgain(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tryAt = at
}

func (b *box) get() store.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.row
}

// holds says which instance the box has from now on. The caller has the turn.
func (b *box) holds(inst driver.Instance) {
	b.inst = inst
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = inst
}

// instance is the running sandbox, nil before it runs and while it sleeps.
func (b *box) instance() driver.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs
}

// call is one in progress.
type call struct {
	link *guest.Listener
	end  func(now time.Time)
}

// begin notes a call in progress if the sandbox can take one. If it can soon,
// or when the pause ends of one whose running work is followed,
// it gives what to wait for.
func (b *box) begin(now time.Time, unrepeatable, follows bool) (c call, wait <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.row.State == store.Paused && follows {
		return call{}, b.moved, nil
	}
	if b.row.State != store.Running {
		return call{}, nil, errState(b.row)
	}
	if b.gate != nil {
		return call{}, b.gate, nil
	}
	b.calls++
	b.usedAt = now
	if unrepeatable {
		b.once++
	}
	var once sync.Once
	return call{b.link, func(now time.Time) {
		once.Do(func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.calls--
			b.usedAt = now
			if unrepeatable {
				b.once--
				close(b.changed)
				b.changed = make(chan struct{})
			}
		})
	}}, nil, nil
}

// asleep says whether there is only an image of it, from which it can wake.
func (b *box) asleep() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.row.State == store.Hibernated
}

func (b *box) setLink(l *guest.Listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.link = l
}

// idle is how long nobody has called, 0 while somebody does.
func (b *box) idle(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls > 0 {
		return 0
	}
	return max(0, now.Sub(b.usedAt))
}

func (m *Manager) linkDir(id string) string { return filepath.Join(m.cfg.RunDir, id) }

// save writes a changed row and, when that worked, makes it the box's own. A
// write that was given up halfway may have happened or not, so none is.
func (m *Manager) save(ctx context.Context, b *box, row store.Sandbox, from ...store.State) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ctx = context.WithoutCancel(ctx)
	if err := m.cfg.Store.ReplaceSandbox(ctx, row, from...); err != nil {
		return err
	}
	b.setRow(row)
	return nil
}

func (m *Manager) info(row store.Sandbox) api.SandboxInfo {
	var network *api.NetworkInfo
	if m.cfg.Policies != nil {
		n := m.cfg.Policies.Show(row)
		network = &n
	}
	return api.SandboxInfo{
		Network: network,
		ID:      row.ID, Template: row.Template, Status: status(row.State), CPU: row.CPU, MemoryMB: row.MemoryMB, DiskMB: row.DiskMB, PIDs: row.PIDs,
		Metadata: row.Metadata, FromSnapshot: row.FromSnapshot, ForkedFrom: row.ForkedFrom, Persistent: row.Persistent,
		TTLSeconds: int(row.TTL / time.Second), IdleTimeoutSeconds: int(row.IdleTimeout / time.Second),
		CreatedAt: row.CreatedAt, ExpiresAt: row.ExpiresAt, Driver: row.Driver, BootMS: row.BootMS, BootMode: row.BootMode,
		EndReason: row.EndReason, Generation: row.Generation, Capabilities: m.capabilities(), PreviewHost: m.cfg.PreviewHost,
	}
}

// capabilities names what the driver can do beyond the minimum.
func (m *Manager) capabilities() []string {
	var out []string
	if _, ok := m.cfg.Driver.(driver.Pauser); ok {
		out = append(out, "pause")
	}
	if _, ok := m.cfg.Driver.(driver.Snapshotter); ok {
		// The memory of each copy is its own: nothing is shared with the parent.
		out = append(out, "snapshot", "hibernate", "fork")
	}
	if _, ok := m.networker(); ok {
		out = append(out, "network")
	}
	return out
}

func status(s store.State) api.Status {
	switch s {
	case store.Prepared, store.Pooled:
		return api.StatusCreating // never shown
	default:
		return api.Status(s)
	}
}
