package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/store"
)

const endTime = time.Minute // for everything that an end has to free

// ending says why a sandbox ends.
type ending struct {
	reason string
	detail string         // for the operator
	by     map[string]any // who killed it
}

func (e ending) state() store.State {
	switch e.reason {
	case reasonOOM, reasonCrashed, reasonExited, reasonLost:
		return store.Failed
	default:
		return store.Deleted
	}
}

// Kill ends a sandbox and frees everything it had.
func (m *Manager) Kill(ctx context.Context, owner, id string) error {
	b, err := m.find(ctx, owner, id)
	if err != nil {
		return err
	}
	if b == nil {
		return m.forget(ctx, owner, id)
	}
	return m.kill(ctx, b, ending{reason: reasonKilled, by: caller.Payload(ctx, nil)})
}

// kill ends a box, also in the middle of its creation.
func (m *Manager) kill(ctx context.Context, b *box, e ending) error {
	b.mu.Lock()
	stop := b.stop
	b.mu.Unlock()
	stop()
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if err := m.finish(ctx, b, e); !errors.Is(err, errUnrecorded) {
		return err
	}
	return nil // it has ended, which is what was asked for
}

// forget lets go of a sandbox that ended by itself: nothing is left of it but
// its row.
func (m *Manager) forget(ctx context.Context, owner, id string) error {
	row, err := m.row(ctx, owner, id)
	if err != nil {
		return err
	}
	if row.State != store.Failed {
		return errState(row)
	}
	row.State = store.Deleted
	if err := m.cfg.Store.ReplaceSandbox(ctx, row, store.Failed); err != nil && !errors.Is(err, store.ErrStale) {
		return err
	}
	return nil
}

// discard ends a box of the pools.
func (m *Manager) discard(ctx context.Context, b *box) error {
	return m.kill(context.WithoutCancel(ctx), b, ending{reason: reasonUnused})
}

// errUnrecorded is for a sandbox of which nothing is left but its row, which
// could not be written.
var errUnrecorded = errors.New("the end of the sandbox could not be recorded")

// finish frees all that a box has and says so in its row. It is idempotent:
// what fails stays in the state "stopping" and is tried again by the sweeper.
// The caller holds the turn.
func (m *Manager) finish(ctx context.Context, b *box, e ending) error {
	if b.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()

	row := b.get()
	if row.State == store.Stopping {
		e = ending{reason: row.EndReason, detail: row.EndDetail} // the first reason is the true one
	} else {
		m.noteEnding(row, e)
		was := row.State
		row.State, row.EndReason, row.EndDetail = store.Stopping, e.reason, e.detail
		if err := m.save(ctx, b, row, was); err != nil {
			m.log.Error("the store does not know that a sandbox ends", "sandbox", b.id, "error", err)
			b.setRow(row) // it ends nevertheless
		}
	}
	if b.link != nil {
		if err := b.link.Close(); err != nil {
			m.log.Warn("closing a link", "sandbox", b.id, "error", err)
		}
	}
	if err := m.free(ctx, b); err != nil {
		m.log.Error("a sandbox could not be ended, it will be tried again", "sandbox", b.id, "error", err)
		return fmt.Errorf("ending sandbox %s: %w", b.id, err)
	}
	// The row comes before the map: who finds no box may take the row's word.
	if err := m.bury(ctx, row, e, unburied...); err != nil {
		m.log.Error("a sandbox has ended, and the store could not be told; it will be tried again", "sandbox", b.id, "error", err)
		return errors.Join(errUnrecorded, err)
	}
	b.gone = true
	m.mu.Lock()
	delete(m.boxes, b.id)
	m.pool.remove(b)
	m.mu.Unlock()
	if b.leavePlace() {
		m.leavePlace(row.Owner, rowLimits(row))
	}
	m.wakePools()
	return nil
}

// noteEnding says what ends a sandbox, before it is ended.
func (m *Manager) noteEnding(row store.Sandbox, e ending) {
	switch e.reason {
	case reasonKilled:
		m.noteRow(row, api.LifeKilled, e.by)
	case reasonTTL:
		m.noteRow(row, api.LifeExpired, map[string]any{"ttl_seconds": int(row.TTL / time.Second)})
	case reasonOOM:
		m.noteRow(row, api.LifeOOM, map[string]any{"memory_mb": row.MemoryMB})
	}
}

func (m *Manager) free(ctx context.Context, b *box) error {
	defer m.disconnect(b)
	if m.cfg.Tools != nil {
		defer m.cfg.Tools.Forget(b.id)
	}
	if b.inst != nil {
		if err := b.inst.Stop(ctx); err != nil {
			return err
		}
	}
	if b.prepared != nil {
		if err := b.prepared.Discard(ctx); err != nil {
			return err
		}
	}
	return errors.Join(m.removeLinkDir(b.onHost()), m.removeSleepImages(b.id))
}

// unburied are the states of what still exists.
var unburied = []store.State{store.Prepared, store.Pooled, store.Creating, store.Running, store.Paused, store.Hibernated, store.Stopping}

// bury writes the end into the row. Of what was nobody's no row is kept.
func (m *Manager) bury(ctx context.Context, row store.Sandbox, e ending, from ...store.State) error {
	if e.reason == reasonUnused {
		return m.cfg.Store.RemoveSandbox(ctx, row.ID)
	}
	row.State, row.EndReason, row.EndDetail, row.EndedAt = e.state(), e.reason, e.detail, m.cfg.Now()
	if err := m.cfg.Store.ReplaceSandbox(ctx, row, from...); err != nil {
		return err
	}
	payload := map[string]any{"reason": e.reason}
	if words := reasonWords(e.reason); words != e.reason {
		payload["detail"] = words
	}
	m.noteRow(row, api.LifeEnded, payload)
	if row.Owner != "" {
		m.cfg.Metrics.Ended(e.reason)
	}
	m.log.InfoContext(ctx, "sandbox ended", "sandbox", row.ID, "reason", e.reason, "detail", e.detail)
	return nil
}

// watch waits for a sandbox to end by itself and then cleans up after it.
func (m *Manager) watch(b *box, inst driver.Instance) {
	for {
		exit, err := inst.Wait(m.life)
		if m.life.Err() != nil {
			return
		}
		if err == nil {
			m.died(b, inst, exit)
			return
		}
		m.log.Error("waiting for a sandbox", "sandbox", b.id, "error", err)
		select {
		case <-time.After(time.Second):
		case <-m.life.Done():
			return
		}
	}
}

func (m *Manager) died(b *box, inst driver.Instance, exit driver.Exit) {
	if err := b.lock(m.life); err != nil {
		return // the next daemon finds out
	}
	defer b.unlock()
	if b.inst != inst { // it was put to sleep
		return
	}
	e := ending{reason: reasonCrashed, detail: fmt.Sprintf("%s, exit code %d %s", exit.Reason, exit.Code, exit.Detail)}
	switch exit.Reason {
	case "oom":
		e.reason = reasonOOM
	case "exited":
		e.reason = reasonExited
	}
	if b.get().Owner == "" && b.get().State != store.Creating {
		if !b.gone {
			m.log.Warn("a sandbox of the pool died", "sandbox", b.id, "detail", e.detail)
		}
		e.reason = reasonUnused
	}
	if err := m.finish(m.life, b, e); err != nil {
		m.log.Error("cleaning up after a sandbox", "sandbox", b.id, "error", err)
	}
}
