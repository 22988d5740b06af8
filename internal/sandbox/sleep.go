package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// A sandbox that is hibernated is an image on the disk and a row; it has a box,
// but no instance and no link. The name of the image carries the generation, so
// that after a crash an image of an earlier life is not taken for the present:
//
//	hibernate  image appears whole → instance ends → row says hibernated
//	wake       instance of the next generation runs → row says running → image goes
//
// A daemon that finds a row "running" without an instance, but with an image of
// that very generation, was killed between the first step and the last.

// bootWake is BootMode of a sandbox that woke up.
const bootWake = "wake"

// Hibernate writes a sandbox to the disk and frees its memory.
func (m *Manager) Hibernate(ctx context.Context, owner, id string, req api.CarryRequest) error {
	if _, err := m.snapshotter("hibernating"); err != nil {
		return err
	}
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return err
	}
	done, err := m.work()
	if err != nil {
		return err
	}
	defer done()
	_, leave, err := m.still(ctx, b, req.CarryRunning)
	if err != nil {
		return err
	}
	defer leave()
	switch row := b.get(); row.State {
	case store.Hibernated:
		return nil
	case store.Running, store.Paused:
		return m.putToSleep(ctx, b, "asked")
	default:
		return errState(row)
	}
}

// putToSleep hibernates a box that runs or is paused. The caller holds the turn.
func (m *Manager) putToSleep(ctx context.Context, b *box, why string) error {
	// A client that leaves does not stop it halfway; a kill does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.CreateTimeout)
	defer cancel()
	ctx, end := b.stoppable(ctx)
	defer end()
	began := time.Now()
	row := b.get()
	m.announce(ctx, b)
	have, err := m.hasImage(row) // of a paused one
	if err != nil {
		return err
	}
	if have && row.State == store.Paused {
		if b.inst != nil {
			err = stopped(ctx, b.inst.Stop(ctx))
		}
	} else {
		err = m.saveTo(ctx, b, m.sleepImage(row), driver.Save{Stop: true})
	}
	if err != nil {
		if row.State == store.Running { // it goes on, and must not wake up from how it was now
			m.removeImage(m.sleepImage(row))
		}
		return fmt.Errorf("hibernating sandbox %s: %w", b.id, err)
	}
	b.holds(nil)
	m.unlink(b)
	m.disconnect(b)
	row.State, row.SleptAt, row.HostID = store.Hibernated, m.cfg.Now(), ""
	// From here on there is no way back: what the store does not learn now, the
	// next daemon sees by the image.
	stay := context.WithoutCancel(ctx)
	err = m.save(stay, b, row, store.Running, store.Paused)
	if err != nil {
		b.setRow(row)
	}
	if b.leavePlace() {
		m.leavePlace(row.Owner, rowLimits(row))
	}
	m.note(b, api.LifeHibernated, caller.Payload(ctx, map[string]any{"why": why, "duration_ms": time.Since(began).Milliseconds()}))
	m.log.InfoContext(ctx, "sandbox hibernated", "sandbox", b.id, "why", why, "ms", time.Since(began).Milliseconds())
	m.wakePools()
	return errors.Join(err, m.cfg.Store.Sync(stay))
}

// unlink closes the link of a box that has no guest any more.
func (m *Manager) unlink(b *box) {
	if b.link != nil {
		if err := b.link.Close(); err != nil {
			m.log.Warn("closing a link", "sandbox", b.id, "error", err)
		}
	}
	b.setLink(nil)
	if err := m.removeLinkDir(b.onHost()); err != nil {
		m.log.Warn("a link folder could not be removed", "sandbox", b.id, "error", err)
	}
}

// Wake brings a hibernated sandbox back. One that runs is left as it is.
func (m *Manager) Wake(ctx context.Context, owner, id string) error {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return err
	}
	if err := m.awaken(ctx, b); err != nil {
		return err
	}
	if row := b.get(); row.State != store.Running {
		return errState(row)
	}
	return nil
}

// awaken wakes a box that sleeps. Of many at once, the first does it and the
// others find it awake.
func (m *Manager) awaken(ctx context.Context, b *box) error {
	done, err := m.work()
	if err != nil {
		return err
	}
	defer done()
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	if !b.asleep() {
		return nil // whoever asked looks again
	}
	return m.wakeUp(ctx, b)
}

// wakeUp restores a box from its image. It either runs afterwards or is as it
// was before. The caller holds the turn.
func (m *Manager) wakeUp(ctx context.Context, b *box) (err error) {
	began := time.Now()
	row := b.get()
	if !row.Persistent && !row.ExpiresAt.After(m.cfg.Now()) {
		return fault.New(api.CodeConflict, "the time to live of sandbox %s is over, it is being ended", b.id)
	}
	if err := m.takePlace(row.Owner, rowLimits(row)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			m.leavePlace(row.Owner, rowLimits(row))
		}
	}()
	waiting, giveUp := b.stoppable(ctx)
	leave, err := m.queue.wait(waiting)
	giveUp()
	if err != nil {
		return err
	}
	defer leave()
	// Clients may leave: others wait for the same.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), m.cfg.CreateTimeout,
		fault.New(api.CodeTimeout, "sandbox %s did not wake up within %s", b.id, m.cfg.CreateTimeout).WithHint("the server may be overloaded; try again"))
	defer cancel()
	ctx, undo := m.untilClosed(ctx)
	defer undo()
	ctx, end := b.stoppable(ctx)
	defer end()

	dir := m.sleepImage(row)
	img, err := m.inspect(ctx, dir)
	if err != nil {
		return fmt.Errorf("sandbox %s cannot wake up: %w", b.id, err)
	}
	t, err := m.templateOf(ctx, row.Template, row.Digest)
	if err != nil {
		return fmt.Errorf("sandbox %s cannot wake up: %w", b.id, err)
	}
	if err := m.makeRoom(ctx, img.Bytes); err != nil {
		return err
	}
	row.Generation++
	err = m.restart(ctx, b, row, t, dir, true)
	if err != nil && b.onHost() != b.id && ctx.Err() == nil { // that of the pool may be at fault
		m.log.Warn("a sandbox did not wake up in one of the pool", "sandbox", b.id, "error", err)
		if err = m.undoWake(ctx, b); err == nil {
			err = m.restart(ctx, b, row, t, dir, false)
		}
	}
	if err != nil {
		m.log.Warn("a sandbox did not wake up", "sandbox", b.id, "error", err)
		return cause(stopped(ctx, err), m.undoWake(ctx, b))
	}
	row.State, row.SleptAt, row.BootMode, row.HostID = store.Running, time.Time{}, bootWake, b.get().HostID
	row.BootMS, row.UsedAt = float64(time.Since(began).Microseconds())/1000, m.cfg.Now()
	if row.Persistent && row.TTL > 0 {
		row.ExpiresAt = row.UsedAt.Add(row.TTL)
	}
	if err := m.save(ctx, b, row, store.Hibernated, store.Paused); err != nil {
		return cause(err, m.undoWake(ctx, b))
	}
	b.opened(row)
	m.removeImage(dir)
	m.createdOne()
	m.note(b, api.LifeWoken, caller.Payload(ctx, map[string]any{"boot_ms": row.BootMS}))
	m.log.InfoContext(ctx, "sandbox woken", "sandbox", b.id, "generation", row.Generation, "ms", row.BootMS)
	return nil
}

// restart restores a box and tells its guest what has changed meanwhile. Random
// state stays: it is the same sandbox, and there is no other. A prepared sandbox
// of the pool may serve, if there is one.
func (m *Manager) restart(ctx context.Context, b *box, row store.Sandbox, t Template, dir string, pool bool) error {
	if b.dirty { // an earlier attempt could not be undone
		if err := m.clearHost(ctx, b.onHost()); err != nil {
			return err
		}
		b.dirty = false
	}
	b.settle("")
	pooled := false
	if pool {
		var err error
		if pooled, err = m.moveIn(ctx, b, t); err != nil {
			return err
		}
	}
	link, err := m.listenAs(b, row.Generation)
	if err != nil {
		return err
	}
	b.setLink(link)
	var other string // snapshot than that which it was prepared for
	if pooled {
		other = dir
	} else if b.prepared, err = m.cfg.Driver.Prepare(ctx, m.driverSpec(b.get(), t, dir)); err != nil {
		return ours(err, "the sandbox could not be prepared")
	}
	client, err := m.restore(ctx, b, rowLimits(row), other)
	if err != nil {
		return err
	}
	req := identity(row, t)
	req.KeepEnvs, req.MachineID = true, "" // it is the same one still
	if err := m.tell(ctx, b, client, req); err != nil {
		return err
	}
	return m.trust(ctx, row, client)
}

// moveIn gives a box that wakes a prepared sandbox of the pool, if one will do.
// Its row goes first: what the driver has without a row is removed when a daemon starts.
func (m *Manager) moveIn(ctx context.Context, b *box, t Template) (moved bool, err error) {
	if !m.fitsLimits(t, rowLimits(b.get())) {
		return false, nil
	}
	p := m.takePrepared(t.Info)
	if p == nil {
		return false, nil
	}
	err = p.lock(ctx)
	if err == nil {
		if _, can := p.prepared.(driver.Retargeter); can && !p.gone {
			err = m.cfg.Store.RemoveSandbox(context.WithoutCancel(ctx), p.id)
			moved = err == nil
		}
		if moved {
			b.prepared, p.prepared, p.gone = p.prepared, nil, true
			m.mu.Lock()
			delete(m.boxes, p.id)
			m.mu.Unlock()
			b.settle(p.id)
			err = p.link.Close()
		}
		p.unlock()
	}
	if !moved {
		err = errors.Join(err, m.discard(ctx, p))
	}
	return moved, err
}

// undoWake makes a box that did not wake up sleep again.
func (m *Manager) undoWake(ctx context.Context, b *box) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	var err error
	if b.inst != nil {
		err = b.inst.Stop(ctx)
	}
	if b.prepared != nil {
		err = errors.Join(err, b.prepared.Discard(ctx))
	}
	b.holds(nil)
	b.prepared, b.dirty = nil, err != nil
	m.unlink(b)
	m.disconnect(b)
	if !b.dirty {
		b.settle("")
	}
	return err
}

// clearHost ends whatever there is under an id on this host.
func (m *Manager) clearHost(ctx context.Context, id string) error {
	inst, err := m.cfg.Driver.Adopt(ctx, id)
	if errors.Is(err, fault.NotFound) { // and what was left of it is gone
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for what is left of %s: %w", id, err)
	}
	return inst.Stop(ctx)
}

// Pause holds a sandbox still, and its time to live goes on. Its memory stays
// where it is; it is also written to the disk, so that the sandbox comes back
// when the machine goes down meanwhile.
func (m *Manager) Pause(ctx context.Context, owner, id string) error {
	p, ok := m.cfg.Driver.(driver.Pauser)
	if !ok {
		return errUnsupported("", "pausing")
	}
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return err
	}
	defer done()
	row := b.get()
	switch row.State {
	case store.Paused:
		return nil
	case store.Running:
	default:
		return errState(row)
	}
	// Half done would be a row that lies, so a client that leaves does not stop it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.CreateTimeout)
	defer cancel()
	ctx, end := b.stoppable(ctx)
	defer end()
	// What cannot be made again, such as a write, ends first, or it would be
	// refused and done all the same. Cells are not waited for.
	defer b.shut()()
	b.drain(ctx, stillDrain)
	m.announce(ctx, b)
	if err := p.Pause(ctx, b.inst); err != nil { // it may stand still all the same
		return cause(fmt.Errorf("pausing sandbox %s: %w", id, stopped(ctx, err)), p.Resume(context.WithoutCancel(ctx), b.inst))
	}
	was := row
	if _, can := m.cfg.Driver.(driver.Snapshotter); can {
		err = m.saveTo(ctx, b, m.sleepImage(row), driver.Save{})
	}
	if err == nil {
		row.State = store.Paused
		if err = m.save(ctx, b, row, store.Running); err == nil {
			err = m.cfg.Store.Sync(context.WithoutCancel(ctx))
		}
	}
	if err != nil {
		var undo error
		if b.get().State == store.Paused {
			undo = m.save(context.WithoutCancel(ctx), b, was, store.Paused)
		}
		m.removeImage(m.sleepImage(was))
		return cause(fmt.Errorf("pausing sandbox %s: %w", id, err), errors.Join(undo, p.Resume(context.WithoutCancel(ctx), b.inst)))
	}
	m.note(b, api.LifePaused, caller.Payload(ctx, nil))
	return nil
}

// Resume lets a paused sandbox go on.
func (m *Manager) Resume(ctx context.Context, owner, id string) error {
	p, ok := m.cfg.Driver.(driver.Pauser)
	if !ok {
		return errUnsupported("", "resuming")
	}
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return err
	}
	defer done()
	row := b.get()
	switch {
	case row.State == store.Running:
		return nil
	case row.State != store.Paused:
		return errState(row)
	case b.inst == nil: // the machine went down meanwhile
		return m.wakeUp(ctx, b)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.cfg.CreateTimeout)
	defer cancel()
	// The row comes first: from the moment that it goes on, the image is old.
	row.State = store.Running
	if err := m.save(ctx, b, row, store.Paused); err != nil {
		return err
	}
	if err := p.Resume(ctx, b.inst); err != nil {
		row.State = store.Paused
		return cause(fmt.Errorf("resuming sandbox %s: %w", id, err), m.save(context.WithoutCancel(ctx), b, row, store.Running))
	}
	m.removeImage(m.sleepImage(row))
	m.note(b, api.LifeResumed, caller.Payload(ctx, nil))
	return nil
}

// turn takes the turn of a box for something that Close waits for.
func (m *Manager) turn(ctx context.Context, owner, id string) (b *box, done func(), err error) {
	if b, err = m.live(ctx, owner, id); err != nil {
		return nil, nil, err
	}
	worked, err := m.work()
	if err != nil {
		return nil, nil, err
	}
	if err := b.lock(ctx); err != nil {
		worked()
		return nil, nil, err
	}
	return b, func() { b.unlock(); worked() }, nil
}

// HibernateAll hibernates the persistent sandboxes that run, as many as the
// context leaves time for. The others go on, and the next daemon finds them.
func (m *Manager) HibernateAll(ctx context.Context) error {
	if _, err := m.snapshotter("hibernating"); err != nil {
		return nil // then none is persistent
	}
	var g errgroup.Group
	g.SetLimit(sweepers)
	for _, b := range m.all() {
		if row := b.get(); !row.Persistent || row.State != store.Running {
			continue
		}
		g.Go(func() error {
			if ctx.Err() != nil || b.lock(ctx) != nil {
				return nil
			}
			defer b.unlock()
			if b.get().State != store.Running {
				return nil
			}
			defer b.shut()()
			return m.putToSleep(ctx, b, "shutdown")
		})
	}
	return g.Wait()
}

// rest looks after sandboxes that could sleep, sleep, or have slept too long.
func (m *Manager) rest(ctx context.Context, now time.Time) error {
	if _, err := m.snapshotter("hibernating"); err != nil {
		return nil
	}
	var g errgroup.Group
	g.SetLimit(sweepers)
	for _, b := range m.all() {
		row := b.get()
		switch {
		case row.State == store.Running && row.IdleTimeout > 0 && b.idle(now) >= row.IdleTimeout && b.mayTry(now):
			g.Go(func() error { return m.doze(ctx, b) })
		case row.State == store.Hibernated:
			g.Go(func() error { return m.retain(ctx, b, row, now) })
		}
	}
	return g.Wait()
}

// doze hibernates a box that nobody uses and in which nothing of ours runs.
func (m *Manager) doze(ctx context.Context, b *box) error {
	if !b.tryLock() {
		return nil // at the next sweep
	}
	defer b.unlock()
	open := b.shut()
	defer open()
	now := m.cfg.Now()
	row := b.get()
	if row.State != store.Running || b.idle(now) < row.IdleTimeout {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, m.cfg.LinkWait)
	defer cancel()
	client, err := b.link.Client(asking)
	if err != nil {
		return nil // a guest that does not answer is not idle
	}
	health, err := client.Health(asking)
	if err != nil || health.Busy {
		b.touch(now)
		return nil
	}
	if err := m.putToSleep(ctx, b, "idle"); err != nil {
		b.tryAgain(now.Add(retrySleep))
		m.noteAwake(b, "idle", err)
		return err
	}
	return nil
}

// noteAwake says why something did not fall asleep, in words for its user.
func (m *Manager) noteAwake(b *box, why string, err error) {
	detail := "it could not be written to the disk"
	var f *fault.Error
	if errors.As(err, &f) && f.Code != api.CodeInternal {
		detail = f.Message
	}
	m.note(b, api.LifeNotHibernated, map[string]any{"why": why, "detail": detail})
}

const retrySleep = time.Minute // after one that failed, for want of disk for instance

// retain ends a box that has slept for too long, and says so some time before.
func (m *Manager) retain(ctx context.Context, b *box, row store.Sandbox, now time.Time) error {
	end := row.SleptAt.Add(m.cfg.HibernatedFor)
	warn := end.Add(-min(24*time.Hour, m.cfg.HibernatedFor/10))
	if now.Before(warn) {
		return nil
	}
	if b.warn() {
		m.note(b, api.LifeExpiring, map[string]any{"at": end.UTC().Format(time.RFC3339)})
		m.log.Info("a hibernated sandbox will be ended soon", "sandbox", b.id, "at", end)
	}
	if now.Before(end) || !b.tryLock() {
		return nil
	}
	defer b.unlock()
	if now := b.get(); now.State != store.Hibernated || !now.SleptAt.Equal(row.SleptAt) {
		return nil
	}
	return m.finish(ctx, b, ending{reason: reasonRetention})
}

// sleepless is a row "running" or "paused" that has no instance: asleep when
// there is an image of its generation.
func (m *Manager) sleepless(ctx context.Context, b *box) (bool, error) {
	row := b.get()
	have, err := m.hasImage(row)
	if err != nil || !have {
		return false, err
	}
	b.holds(nil)
	m.unlink(b)
	if b.leavePlace() {
		m.leavePlace(row.Owner, rowLimits(row))
	}
	if row.State == store.Running {
		row.State, row.SleptAt, row.HostID = store.Hibernated, m.cfg.Now(), ""
		if info, err := os.Stat(m.sleepImage(row)); err == nil {
			row.SleptAt = info.ModTime()
		}
		if err := m.save(ctx, b, row, store.Running); err != nil {
			return false, err
		}
	}
	m.log.Info("a sandbox has only its image left", "sandbox", b.id, "state", row.State)
	m.note(b, api.LifeAdopted, map[string]any{"state": string(row.State)})
	return true, nil
}
