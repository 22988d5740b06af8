package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// live gives the box of a sandbox that has not ended.
func (m *Manager) live(ctx context.Context, owner, id string) (*box, error) {
	b, err := m.find(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	if b == nil {
		row, err := m.row(ctx, owner, id)
		if err != nil {
			return nil, err
		}
		return nil, errState(row)
	}
	return b, nil
}

// Lifecycle tells how long a sandbox still has.
func (m *Manager) Lifecycle(ctx context.Context, owner, id string) (api.Lifecycle, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	return m.lifecycle(b), nil
}

func (m *Manager) lifecycle(b *box) api.Lifecycle {
	row := b.get()
	return api.Lifecycle{
		TTLSeconds: int(row.TTL.Seconds()), IdleTimeoutSeconds: int(row.IdleTimeout.Seconds()), Persistent: row.Persistent,
		IdleSeconds: b.idle(m.cfg.Now()).Seconds(), ExpiresAt: row.ExpiresAt,
	}
}

// PatchLifecycle changes how long a sandbox has. A new time to live counts
// from now. Only this call can lengthen a sandbox's life; nothing inside can.
func (m *Manager) PatchLifecycle(ctx context.Context, owner, id string, p api.LifecyclePatch) (api.Lifecycle, error) {
	ttl, err := m.ttl(p.TTLSeconds, 0)
	if err != nil {
		return api.Lifecycle{}, err
	}
	if _, err := m.idleTimeout(p.IdleTimeoutSeconds); err != nil {
		return api.Lifecycle{}, err
	}
	if p.Persistent != nil && *p.Persistent {
		return api.Lifecycle{}, errUnsupported("persistent", "a persistent sandbox")
	}
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	if p.TTLSeconds == nil {
		return m.lifecycle(b), nil
	}
	if err := b.lock(ctx); err != nil {
		return api.Lifecycle{}, err
	}
	defer b.unlock()
	now := m.cfg.Now()
	row := b.get()
	row.TTL, row.ExpiresAt = ttl, now.Add(ttl)
	err = m.cfg.Store.Extend(ctx, row, now)
	if errors.Is(err, store.ErrStale) {
		if row := b.get(); row.State != store.Running && row.State != store.Paused {
			return api.Lifecycle{}, errState(row)
		}
		return api.Lifecycle{}, fault.New(api.CodeConflict, "the time to live of sandbox %s is over, it is being ended", id)
	}
	if err != nil {
		return api.Lifecycle{}, err
	}
	b.mu.Lock()
	b.row.TTL, b.row.ExpiresAt = row.TTL, row.ExpiresAt
	b.mu.Unlock()
	m.note(b, api.LifeLifecycleChanged, caller.Payload(ctx, map[string]any{
		"ttl_seconds": int(ttl / time.Second), "expires_at": row.ExpiresAt.UTC().Format(time.RFC3339),
	}))
	return m.lifecycle(b), nil
}

// Pause holds a sandbox still. Its time to live goes on.
func (m *Manager) Pause(ctx context.Context, owner, id string) error {
	p, ok := m.cfg.Driver.(driver.Pauser)
	if !ok {
		return errUnsupported("", "pausing")
	}
	return m.turnTo(ctx, owner, id, store.Running, store.Paused, p.Pause)
}

// Resume lets a paused sandbox go on.
func (m *Manager) Resume(ctx context.Context, owner, id string) error {
	p, ok := m.cfg.Driver.(driver.Pauser)
	if !ok {
		return errUnsupported("", "resuming")
	}
	return m.turnTo(ctx, owner, id, store.Paused, store.Running, p.Resume)
}

// turnTo changes between running and paused. Being there already is fine.
func (m *Manager) turnTo(ctx context.Context, owner, id string, from, to store.State, do func(context.Context, driver.Instance) error) error {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return err
	}
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	row := b.get()
	switch row.State {
	case to:
		return nil
	case from:
	default:
		return errState(row)
	}
	// Half done would be a row that lies, so a client that leaves does not stop it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.CreateTimeout)
	defer cancel()
	if err := do(ctx, b.inst); err != nil {
		return fmt.Errorf("turning sandbox %s from %s to %s: %w", id, from, to, err)
	}
	row.State = to
	if err := m.save(ctx, b, row, from); err != nil {
		return err
	}
	kind := api.LifePaused
	if to == store.Running {
		kind = api.LifeResumed
	}
	m.note(b, kind, caller.Payload(ctx, nil))
	return nil
}
