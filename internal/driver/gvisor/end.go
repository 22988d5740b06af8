package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// clear ends and removes all there is of a sandbox, in whatever state it was
// left. It does not ask runsc: its delete refuses half-made sandboxes, needs a
// process of its own, and does nothing that we could not see. It is idempotent,
// and it goes to its end when ctx is cancelled, within a time of its own: half
// of it would be left to the next sweep. The caller holds the lock of the id.
func (d *Driver) clear(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), stopTimeout, fmt.Errorf("it took longer than %s", stopTimeout))
	defer cancel()
	if err := d.killAll(ctx, id); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	d.mu.Lock()
	inst := d.live[id]
	d.mu.Unlock()
	if inst != nil { // it reads the cgroup's counters before they go
		if _, err := inst.Wait(ctx); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", id, err)
		}
	}
	err := errors.Join(d.hangUp(id), d.cgroups.remove(ctx, id), d.removeState(id))
	d.reapOrphans()
	if e := os.RemoveAll(filepath.Join(d.sandboxes(), id)); e != nil {
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	d.forget(id)
	return nil
}

// killAll ends all processes of a sandbox, as its cgroup and their command
// lines name them. A command of runsc in the middle of making the sandbox may
// add some while we look, so it looks until there are none.
func (d *Driver) killAll(ctx context.Context, id string) error {
	d.mu.Lock()
	inst := d.live[id]
	d.mu.Unlock()
	for {
		found := d.cgroups.members(id)
		if inst != nil { // all others were seen to end, which spares a walk over /proc
			found = append(found, inst.box.Sentry, inst.box.Gofer)
		} else {
			found = append(found, d.processes()[id]...)
		}
		var err error
		alive := false
		for _, p := range found {
			killed, e := p.end(ctx)
			alive = alive || killed
			err = errors.Join(err, e)
		}
		if err != nil || !alive {
			return err
		}
	}
}

// removeState removes what runsc keeps of a sandbox.
func (d *Driver) removeState(id string) error {
	var err error
	state := d.stateFile(id)
	for _, path := range []string{state, strings.TrimSuffix(state, ".state") + ".lock", d.socket(id)} {
		if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Adopt implements driver.Driver.
func (d *Driver) Adopt(ctx context.Context, id string) (driver.Instance, error) {
	if !validID.MatchString(id) {
		return nil, fault.InvalidField("id", "the id %q is not 1 to %d lower-case letters, digits and inner hyphens", id, maxID)
	}
	unlock := d.lock(id)
	defer unlock()
	d.mu.Lock()
	inst := d.live[id]
	d.mu.Unlock()
	if inst != nil {
		select {
		case <-inst.done:
		default:
			return inst, nil
		}
	}
	b := d.box(id)
	err := b.load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fault.New("not_found", "there is no sandbox %s", id)
	case err == nil && !b.Running:
		err = fault.New("not_found", "sandbox %s was never started", id)
	case err == nil:
		var procs *pair
		if procs, err = d.open(b); err == nil {
			d.reach(ctx, b)
			return d.watch(b, procs), nil
		}
	default: // a file that cannot be read describes nothing that can be kept
		err = fault.Wrap(err, "not_found", "sandbox %s cannot be found again", id)
	}
	if !errors.Is(err, fault.NotFound) {
		return nil, fmt.Errorf("adopt sandbox %s: %w", id, err)
	}
	return nil, errors.Join(err, d.clear(ctx, id))
}

// Sweep implements driver.Driver. What is being made while it runs is swept
// once it is made, if keep does not hold it: call it before the first Prepare.
func (d *Driver) Sweep(ctx context.Context, keep map[string]bool) (removed []string, err error) {
	found := map[string]bool{}
	entries, err := os.ReadDir(d.sandboxes())
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	for _, e := range entries {
		found[e.Name()] = true
	}
	states, err := os.ReadDir(d.root())
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	for _, e := range states {
		if id, ok := idOfState(e.Name()); ok {
			found[id] = true
		}
	}
	for _, id := range d.cgroups.list() {
		found[id] = true
	}
	for id := range d.processes() {
		if validID.MatchString(id) {
			found[id] = true
		}
	}
	var failed error
	for id := range found {
		if keep[id] {
			continue
		}
		unlock := d.lock(id)
		if e := d.clear(ctx, id); e != nil {
			failed = errors.Join(failed, e)
		} else {
			removed = append(removed, id)
		}
		unlock()
	}
	slices.Sort(removed)
	return removed, failed
}

// idOfState finds the id in the name of one of runsc's files.
func idOfState(name string) (id string, ok bool) {
	if s, ok := strings.CutPrefix(name, "runsc-"); ok {
		return strings.CutSuffix(s, ".sock")
	}
	id, rest, ok := strings.Cut(name, "_sandbox:")
	return id, ok && strings.HasPrefix(rest, id)
}
