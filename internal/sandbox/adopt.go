package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	adopters  = 8                // sandboxes that are adopted at once
	adoptTime = 30 * time.Second // for each
	sweepTime = 2 * time.Minute  // for what nobody knows
)

// errHostShort ends a daemon that cannot take over what runs for want of file
// descriptors or disk. The sandboxes go on, and wait for one that can.
var errHostShort = errors.New("the sandboxes of the last daemon are left alone, for the host has run short")

// adopt takes over what an earlier daemon left: every row is found again or
// cleaned up, and its events say which. Then everything that has no row goes.
// What fails is logged: one sandbox in a bad state must not keep the others
// from their users.
func (m *Manager) adopt(ctx context.Context) error {
	rows, err := m.cfg.Store.SandboxesOf(ctx, "", unburied...)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(adopters)
	errs := make([]error, len(rows))
	for i, row := range rows {
		g.Go(func() error { errs[i] = m.adoptOne(ctx, row); return nil })
	}
	_ = g.Wait()
	err = errors.Join(errs...)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errHostShort) {
		return err
	}
	if err != nil {
		m.log.Error("some sandboxes could neither be adopted nor cleaned up", "error", err)
	}
	if err := errors.Join(m.sweepHost(ctx), m.sweepImages(ctx)); err != nil {
		m.log.Error("not everything that belongs to no sandbox could be removed", "error", err)
	}
	return nil
}

// EndAll ends every sandbox of an earlier daemon and removes what belongs to
// none. It is for a machine on which no daemon shall run any more: instead of
// Run, never beside it. Hibernated sandboxes stay: they are files, and run
// nowhere. It gives the ids of the users' sandboxes that it ended.
func (m *Manager) EndAll(ctx context.Context) (ended []string, err error) {
	rows, err := m.cfg.Store.SandboxesOf(ctx, "", unburied...)
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.SetLimit(adopters)
	for _, row := range rows {
		e := ending{reason: reasonKilled, detail: "all sandboxes of this daemon were ended"}
		switch {
		case row.State == store.Hibernated:
			continue
		case row.State == store.Stopping:
			e = ending{reason: row.EndReason, detail: row.EndDetail}
		case row.Owner == "":
			e = ending{reason: reasonUnused}
		default:
			ended = append(ended, row.ID)
		}
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, adoptTime)
			defer cancel()
			return m.cleanUp(ctx, row, e)
		})
	}
	return ended, errors.Join(g.Wait(), m.sweepHost(ctx))
}

func (m *Manager) adoptOne(ctx context.Context, row store.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTime)
	defer cancel()
	switch row.State {
	case store.Running, store.Paused, store.Pooled:
		return m.takeOver(ctx, row)
	case store.Hibernated:
		b := newBox(row)
		m.mu.Lock()
		m.boxes[b.id] = b
		m.mu.Unlock()
		return nil
	case store.Stopping:
		return m.cleanUp(ctx, row, ending{reason: row.EndReason, detail: row.EndDetail})
	case store.Creating:
		// Nobody was told its id, so nobody can use it.
		return m.cleanUp(ctx, row, ending{reason: reasonCreate, detail: "the daemon ended while it was created"})
	default:
		return m.cleanUp(ctx, row, ending{reason: reasonUnused})
	}
}

// takeOver makes a running sandbox ours again: its guest finds the new socket
// at the old place, and what runs in it never noticed.
func (m *Manager) takeOver(ctx context.Context, row store.Sandbox) error {
	b := newBox(row)
	b.seen.adopted = true
	b.turn <- struct{}{}
	defer b.unlock()
	m.mu.Lock()
	m.boxes[b.id] = b
	if row.Owner != "" || row.State != store.Pooled {
		m.count(row.Owner, rowLimits(row), 1)
		b.place = true
	}
	m.mu.Unlock()

	link, err := m.listen(b)
	if err == nil {
		b.setLink(link)
		var inst driver.Instance
		if inst, err = m.cfg.Driver.Adopt(ctx, row.OnHost()); err == nil {
			b.holds(inst)
		}
	}
	if err == nil {
		err = m.holdAs(ctx, b, row.State)
	}
	if errors.Is(err, context.Canceled) {
		return err // this daemon ends already, the next one tries again
	}
	if errors.Is(err, fault.NotFound) {
		asleep, serr := m.sleepless(ctx, b)
		if asleep || serr != nil {
			return serr
		}
	}
	if err := hostShort(err); err != nil {
		return fmt.Errorf("%w: %w", errHostShort, err) // which is not the sandbox's fault
	}
	if err != nil {
		e := ending{reason: reasonLost, detail: err.Error()}
		if row.State == store.Pooled {
			e.reason = reasonUnused
		}
		m.log.Warn("a sandbox could not be adopted", "sandbox", b.id, "gone", errors.Is(err, fault.NotFound), "error", err)
		return m.finish(ctx, b, e)
	}
	if err := m.connect(ctx, b); err != nil {
		m.log.Error("the network of a sandbox stays closed", "sandbox", b.id, "error", err)
	}
	go m.watch(b, b.inst)
	if row.State == store.Pooled {
		m.mu.Lock()
		m.pool.restored = append(m.pool.restored, b)
		m.mu.Unlock()
	}
	m.log.Info("sandbox adopted", "sandbox", b.id, "state", row.State)
	m.note(b, api.LifeAdopted, map[string]any{"state": string(row.State)})
	return nil
}

// holdAs sees that an instance stands still or does not, as its row says: the
// last daemon may have been killed in the middle of a change.
func (m *Manager) holdAs(ctx context.Context, b *box, state store.State) error {
	p, ok := m.cfg.Driver.(driver.Pauser)
	switch {
	case !ok:
		return nil
	case state == store.Paused:
		return p.Pause(ctx, b.inst)
	default:
		return p.Resume(ctx, b.inst)
	}
}

// cleanUp ends what an earlier daemon did not finish.
func (m *Manager) cleanUp(ctx context.Context, row store.Sandbox, e ending) error {
	if err := errors.Join(m.clearHost(ctx, row.OnHost()), m.removeSleepImages(row.ID)); err != nil {
		return err
	}
	m.log.Info("sandbox cleaned up", "sandbox", row.ID, "state", row.State, "reason", e.reason)
	return m.bury(ctx, row, e, row.State)
}

// sweepHost removes what belongs to no sandbox that we know.
func (m *Manager) sweepHost(ctx context.Context) error {
	keep := map[string]bool{}
	for _, b := range m.all() {
		row := b.get()
		keep[row.OnHost()] = b.inst != nil
	}
	sweep, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	removed, failed := m.cfg.Driver.Sweep(sweep, keep)
	if len(removed) > 0 {
		m.log.Info("removed what belonged to no sandbox", "what", removed)
	}
	entries, err := os.ReadDir(m.cfg.RunDir)
	failed = errors.Join(failed, err)
	for _, e := range entries {
		if !keep[e.Name()] {
			failed = errors.Join(failed, m.removeLinkDir(e.Name()))
		}
	}
	return failed
}
