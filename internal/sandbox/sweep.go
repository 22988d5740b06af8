package sandbox

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/internal/store"
)

const sweepers = 4 // sandboxes that are ended at once

func (m *Manager) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(m.cfg.SweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := m.Sweep(ctx); err != nil && ctx.Err() == nil {
				m.log.Error("sweeping", "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Sweep ends what is over its time, snapshots too, tries again what could not be
// ended, and forgets what ended long ago. It goes by the store and may be called at any
// time.
func (m *Manager) Sweep(ctx context.Context) error {
	if err := m.followClock(ctx); err != nil {
		return err
	}
	now := m.cfg.Now()
	expired, err := m.cfg.Store.Expired(ctx, now)
	if err != nil {
		return err
	}
	stuck, err := m.stuck(ctx)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(sweepers)
	for _, row := range expired {
		g.Go(func() error { return m.expire(ctx, row) })
	}
	for _, row := range stuck {
		g.Go(func() error { return m.retry(ctx, row) })
	}
	errs := []error{g.Wait(), m.rest(ctx, now), m.expireSnapshots(ctx, now), m.saveUse(ctx), m.cfg.Store.Purge(ctx, now.Add(-m.cfg.Retention)), m.cfg.Store.PurgeCreates(ctx, now.Add(-idempotent))}
	return errors.Join(errs...)
}

// stuck are the sandboxes that are ending, also those of which the store could
// not be told.
func (m *Manager) stuck(ctx context.Context) ([]store.Sandbox, error) {
	rows, err := m.cfg.Store.SandboxesOf(ctx, "", store.Stopping)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, row := range rows {
		known[row.ID] = true
	}
	for _, b := range m.all() {
		if row := b.get(); row.State == store.Stopping && !known[b.id] {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// expire ends a sandbox whose time is over, or hibernates it if it is
// persistent, unless it was renewed meanwhile. A store that cannot be written
// to, because the disk is full, keeps no sandbox alive: its end may be what
// frees the space.
func (m *Manager) expire(ctx context.Context, row store.Sandbox) error {
	b := m.box(row.ID)
	if b == nil {
		return ignoreStale(m.bury(ctx, row, ending{reason: reasonLost}, store.Running, store.Paused))
	}
	if !b.tryLock() {
		return nil // at the next sweep
	}
	defer b.unlock()
	if now := b.get(); now.Persistent {
		return m.expirePersistent(ctx, b, now)
	}
	err := m.cfg.Store.Expire(ctx, row.ID, reasonTTL, m.cfg.Now())
	switch {
	case errors.Is(err, store.ErrStale), ctx.Err() != nil:
		return ignoreStale(err)
	case err != nil:
		m.log.Error("the store does not know that a sandbox expires", "sandbox", row.ID, "error", err)
	}
	m.noteEnding(b.get(), ending{reason: reasonTTL})
	ended := b.get()
	ended.State, ended.EndReason = store.Stopping, reasonTTL
	b.setRow(ended)
	return m.finish(ctx, b, ending{reason: reasonTTL})
}

// expirePersistent hibernates a box with all that runs in it. While it cannot
// be, for want of disk, it goes on. The caller holds the turn.
func (m *Manager) expirePersistent(ctx context.Context, b *box, row store.Sandbox) error {
	now := m.cfg.Now()
	if row.State != store.Running && row.State != store.Paused || row.ExpiresAt.After(now) || !b.mayTry(now) {
		return nil
	}
	defer b.shut()()
	err := m.putToSleep(ctx, b, "ttl")
	if err != nil {
		b.tryAgain(now.Add(retrySleep))
		m.noteAwake(b, "ttl", err)
	}
	return err
}

// retry tries again what could not be ended.
func (m *Manager) retry(ctx context.Context, row store.Sandbox) error {
	b := m.box(row.ID)
	if b == nil {
		return ignoreStale(m.bury(ctx, row, ending{reason: row.EndReason, detail: row.EndDetail}, store.Stopping))
	}
	if !b.tryLock() {
		return nil
	}
	defer b.unlock()
	return m.finish(ctx, b, ending{reason: row.EndReason, detail: row.EndDetail})
}

// ignoreStale forgives that somebody else was faster.
func ignoreStale(err error) error {
	if errors.Is(err, store.ErrStale) {
		return nil
	}
	return err
}

// saveUse writes when sandboxes were last used, so that a new daemon knows.
func (m *Manager) saveUse(ctx context.Context) error {
	var errs []error
	for _, b := range m.all() {
		b.mu.Lock()
		at, due := b.usedAt, b.usedAt.After(b.saved)
		if due {
			b.saved = at
		}
		b.mu.Unlock()
		if due {
			errs = append(errs, m.cfg.Store.Touch(ctx, b.id, at))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) box(id string) *box {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boxes[id]
}

func (m *Manager) all() []*box {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*box, 0, len(m.boxes))
	for _, b := range m.boxes {
		out = append(out, b)
	}
	return out
}
