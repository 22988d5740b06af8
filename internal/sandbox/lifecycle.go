package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
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
	return m.lifecycle(ctx, b), nil
}

func (m *Manager) lifecycle(ctx context.Context, b *box) api.Lifecycle {
	row := b.get()
	return api.Lifecycle{
		TTLSeconds: int(row.TTL.Seconds()), IdleTimeoutSeconds: int(row.IdleTimeout.Seconds()), Persistent: row.Persistent,
		IdleSeconds: m.idle(ctx, b).Seconds(), ExpiresAt: row.ExpiresAt,
	}
}

// idle is how long a sandbox has had nothing to do: nobody has called, and no
// cell or process runs that was left to itself. The guest is asked for the
// latter. It may lie, and gains nothing that it had not by starting one.
func (m *Manager) idle(ctx context.Context, b *box) time.Duration {
	idle := b.idle(m.cfg.Now())
	b.mu.Lock()
	link, state := b.link, b.row.State
	b.mu.Unlock()
	if idle == 0 || state != store.Running || link == nil {
		return idle
	}
	ctx, cancel := context.WithTimeout(ctx, busyTime)
	defer cancel()
	client, err := link.Client(ctx)
	if err != nil {
		return idle // it redials, or is stuck; what is known counts
	}
	if h, err := client.Health(ctx); err != nil || !h.Busy {
		return idle
	}
	b.touch(m.cfg.Now()) // it is idle from the end of what runs, as far as somebody looks
	return 0
}

const busyTime = time.Second // for a guest to say whether something runs in it

// PatchLifecycle changes how long a sandbox has. A new time to live counts
// from now. Only this call can lengthen a sandbox's life; nothing inside can.
func (m *Manager) PatchLifecycle(ctx context.Context, owner, id string, p api.LifecyclePatch) (api.Lifecycle, error) {
	idle, err := m.idleTimeout(p.IdleTimeoutSeconds)
	if err != nil {
		return api.Lifecycle{}, err
	}
	if err := m.persistable(p.Persistent != nil && *p.Persistent); err != nil {
		return api.Lifecycle{}, err
	}
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Lifecycle{}, err
	}
	if err := b.lock(ctx); err != nil {
		return api.Lifecycle{}, err
	}
	defer b.unlock()
	now := m.cfg.Now()
	row := b.get()
	if p.Persistent != nil {
		row.Persistent = *p.Persistent
	}
	if p.IdleTimeoutSeconds != nil {
		row.IdleTimeout = idle
	}
	ttl, err := m.ttl(p.TTLSeconds, row.TTL, row.Persistent)
	if err != nil {
		return api.Lifecycle{}, err
	}
	if p.TTLSeconds != nil {
		row.TTL, row.ExpiresAt = ttl, now.Add(ttl)
	}
	// What sleeps and was persistent may be long over its time.
	if !row.Persistent && row.State == store.Hibernated && !row.ExpiresAt.After(now) {
		row.ExpiresAt = now.Add(row.TTL)
	}
	err = m.cfg.Store.Extend(ctx, row, now)
	if errors.Is(err, store.ErrStale) {
		if row := b.get(); !keepable(row.State) {
			return api.Lifecycle{}, errState(row)
		}
		return api.Lifecycle{}, fault.New(api.CodeConflict, "the time to live of sandbox %s is over, it is being ended", id)
	}
	if err != nil {
		return api.Lifecycle{}, err
	}
	b.setRow(row)
	m.note(b, api.LifeLifecycleChanged, caller.Payload(ctx, map[string]any{
		"ttl_seconds": int(row.TTL / time.Second), "expires_at": row.ExpiresAt.UTC().Format(time.RFC3339),
		"persistent": row.Persistent, "idle_timeout_seconds": int(row.IdleTimeout / time.Second),
	}))
	return m.lifecycle(ctx, b), nil
}
