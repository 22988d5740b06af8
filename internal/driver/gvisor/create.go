package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// prepared is a sandbox whose sentry and gofer wait for a snapshot.
type prepared struct {
	d        *Driver
	box      *box
	snapshot string
	saved    mark // of that snapshot

	mu   sync.Mutex
	used bool
}

var (
	_ driver.Prepared   = (*prepared)(nil)
	_ driver.Retargeter = (*prepared)(nil)
)

// Prepare implements driver.Driver. It starts sentry and gofer, so that Restore
// only has to load. The limits of CPU hold from Restore on, that of memory at once.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (driver.Prepared, error) {
	if spec.Snapshot == "" {
		return nil, fault.InvalidField("snapshot", "a sandbox is restored from a snapshot, and none is given")
	}
	saved, err := d.readMark(ctx, spec.Snapshot)
	if err != nil {
		return nil, fmt.Errorf("prepare sandbox %s: %w", spec.ID, err)
	}
	if spec.DiskMB == 0 {
		spec.DiskMB = saved.DiskMB
	}
	if err := d.validate(driver.BootSpec{Spec: spec}); err != nil {
		return nil, err
	}
	b, err := d.create(ctx, driver.BootSpec{Spec: spec}, d.prepares)
	if err != nil {
		return nil, err
	}
	return &prepared{d: d, box: b, snapshot: spec.Snapshot, saved: saved}, nil
}

// Restore implements driver.Prepared.
func (p *prepared) Restore(ctx context.Context, limits driver.Limits) (driver.Instance, error) {
	return p.restore(ctx, p.snapshot, "", p.saved, limits)
}

// RestoreFrom implements driver.Retargeter.
func (p *prepared) RestoreFrom(ctx context.Context, snapshot, hostname string, limits driver.Limits) (driver.Instance, error) {
	saved, err := p.d.readMark(ctx, snapshot)
	if err != nil {
		return nil, fmt.Errorf("restore sandbox %s: %w", p.box.ID, err)
	}
	if limits.DiskMB == 0 {
		limits.DiskMB = saved.DiskMB
	}
	return p.restore(ctx, snapshot, hostname, saved, limits)
}

func (p *prepared) restore(ctx context.Context, snapshot, hostname string, saved mark, limits driver.Limits) (driver.Instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used {
		return nil, fault.New("conflict", "sandbox %s was restored or discarded before", p.box.ID)
	}
	p.used = true
	if limits.DiskMB == 0 {
		limits.DiskMB = p.box.DiskMB // the sentry has that of the snapshot, from which it may differ
	}
	inst, err := p.d.launch(ctx, p.box, limits, p.d.restores, func() error {
		if l := limits.MemoryMB; l > 0 && saved.Memory+ownMemory > int64(l)<<20 {
			return errSmall(l)
		}
		p.box.Memory = saved.Memory
		if err := p.d.setRestore(ctx, p.box.ID, saved.Stays, hostname); err != nil {
			return err
		}
		// It runs while what is not needed yet is loaded, or before it is.
		return p.d.command(ctx, patience(ctx, restoreTimeout), p.box, nil, "restore", "--detach", "--background", "--bundle="+p.box.dir, "--image-path="+snapshot, p.box.ID)
	})
	if err != nil {
		return nil, fmt.Errorf("restore sandbox %s: %w", p.box.ID, err)
	}
	return inst, nil
}

// Discard implements driver.Prepared.
func (p *prepared) Discard(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used { // it failed and was cleaned up, or it belongs to an Instance
		return nil
	}
	p.used = true
	unlock := p.d.lock(p.box.ID)
	defer unlock()
	return p.d.clear(ctx, p.box.ID)
}

// Boot implements driver.Builder.
func (d *Driver) Boot(ctx context.Context, spec driver.BootSpec) (driver.Instance, error) {
	if err := d.validate(spec); err != nil {
		return nil, err
	}
	if spec.Writable {
		if err := prepareRootfs(spec.Rootfs); err != nil {
			return nil, fmt.Errorf("boot sandbox %s: %w", spec.ID, err)
		}
	}
	b, err := d.create(ctx, spec, d.prepares)
	if err != nil {
		return nil, err
	}
	limits := spec.Limits
	limits.DiskMB = spec.DiskMB
	if spec.Writable {
		limits.DiskMB = 0 // it has no layer
	}
	inst, err := d.launch(ctx, b, limits, d.restores, func() error { return d.command(ctx, restoreTimeout, b, nil, "start", b.ID) })
	if err != nil {
		return nil, fmt.Errorf("boot sandbox %s: %w", b.ID, err)
	}
	return inst, nil
}

// prepareRootfs makes sure that runsc does not lay a file system in memory over
// /tmp, which it does when /tmp is empty: files there belong on the layer, where
// the quota of the disk holds. The folder is one that a guest may have written,
// so no link in it may lead out.
func prepareRootfs(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir("tmp", 0o755); err == nil {
		if err := errors.Join(root.Lchown("tmp", IDBase, IDBase), root.Chmod("tmp", 0o777|fs.ModeSticky)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := root.OpenFile("tmp/.keep", os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Chown(IDBase, IDBase), f.Close())
}

// validate looks at what a caller could get wrong.
func (d *Driver) validate(s driver.BootSpec) error {
	if !validID.MatchString(s.ID) {
		return fault.InvalidField("id", "the id %q is not 1 to %d lower-case letters, digits and inner hyphens", s.ID, maxID)
	}
	if n := len(d.socket(s.ID)) - unixPathMax; n >= 0 { // runsc would put it elsewhere
		return fault.New("invalid", "the driver's folder %s has a path %d bytes too long for the sockets in it", d.dir, n+1).
			WithHint("choose a data directory with a shorter path")
	}
	dirs := map[string]string{"rootfs": s.Rootfs, "link_dir": s.LinkDir, "programs": s.Programs}
	for inside, path := range s.Binds {
		if !filepath.IsAbs(inside) {
			return fault.InvalidField("binds", "the path %q inside is not absolute", inside)
		}
		dirs["binds of "+inside] = path
	}
	for field, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return fault.InvalidField(field, "the path %q is not absolute", dir)
		}
		if err := reachable(dir); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	switch l := s.Limits; {
	case l.CPU < 0 || math.IsNaN(l.CPU) || math.IsInf(l.CPU, 0):
		return fault.InvalidField("cpu", "%v cores are not a limit", l.CPU)
	case l.MemoryMB < 0 || l.PIDs < 0 || s.DiskMB < 0 || l.DiskMB < 0:
		return fault.InvalidField("limits", "a limit is negative: memory %d MB, processes %d, disk %d MB", l.MemoryMB, l.PIDs, s.DiskMB)
	}
	return nil
}

// reachable says why a process that owns nothing could not get at a path.
func reachable(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fault.Wrap(err, "invalid", "sandboxes cannot reach %s", path)
	}
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fault.New("invalid", "sandboxes cannot reach %s: the folder %s has mode %04o", path, dir, info.Mode().Perm()).
				WithHint("their processes are nobody on this host and must be let through: chmod o+x %s", dir)
		}
	}
	return nil
}

// create makes a sandbox that is ready to start. It leaves nothing when it fails.
func (d *Driver) create(ctx context.Context, spec driver.BootSpec, slots chan struct{}) (b *box, err error) {
	if err := acquire(ctx, slots); err != nil {
		return nil, fmt.Errorf("prepare sandbox %s: %w", spec.ID, err)
	}
	defer release(slots)
	unlock := d.lock(spec.ID)
	defer unlock()

	b = d.box(spec.ID)
	b.DiskMB, b.Direct, b.Limits, b.Network = spec.DiskMB, spec.Writable, spec.Limits, d.nets != nil
	if err := b.make(); err != nil {
		return nil, fmt.Errorf("prepare sandbox %s: %w", spec.ID, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("prepare sandbox %s: %w", spec.ID, err)
			err = errors.Join(err, d.clear(ctx, spec.ID))
		}
	}()
	if err := b.save(); err != nil {
		return nil, err
	}
	network, err := d.lay(b)
	if err != nil {
		return nil, err
	}
	defer network.Close()
	if err := d.writeSpec(b, spec, network.path()); err != nil {
		return nil, err
	}
	if err := d.cgroups.make(b.ID); err != nil {
		return nil, err
	}
	// The sentry takes the number of cores and the size of memory that it shows
	// from the limits it starts under, and never less than two cores; so it starts
	// under whole cores, and at full speed.
	start := driver.Limits{MemoryMB: spec.Limits.MemoryMB, CPU: shownCores(spec.Limits.CPU)}
	if err := d.cgroups.set(b.ID, start); err != nil {
		return nil, err
	}
	var out *os.File
	if spec.Log != "" {
		if out, err = os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return nil, err
		}
		defer out.Close()
	}
	pidFile := filepath.Join(b.dir, "pid")
	if err := d.command(ctx, patience(ctx, createTimeout), b, out, "create", "--bundle="+b.dir, "--pid-file="+pidFile, b.ID); err != nil {
		return nil, err
	}
	if err := d.identify(b); err != nil {
		return nil, err
	}
	return b, b.save()
}

// shownCores is how many cores a sandbox shows under a limit; 0: those of the host.
func shownCores(limit float64) float64 {
	if limit <= 0 {
		return 0
	}
	return max(2, math.Ceil(limit))
}

// identify finds the processes of a sandbox that runsc has made.
func (d *Driver) identify(b *box) error {
	state, err := d.state(b.ID)
	if err != nil {
		return err
	}
	if b.Sentry, err = findProcess(state.Sandbox.Pid); err != nil {
		return fmt.Errorf("the sentry: %w", err)
	}
	if b.Gofer, err = findProcess(state.GoferPid); err != nil {
		return fmt.Errorf("the gofer: %w", err)
	}
	return nil
}

// state is a part of what runsc keeps of a sandbox.
type state struct {
	Status   string `json:"status"` // "created", "running", "paused", …
	GoferPid int    `json:"goferPid"`
	Sandbox  struct {
		Pid int `json:"pid"`
	} `json:"sandbox"`
}

func (d *Driver) stateFile(id string) string {
	return filepath.Join(d.root(), fmt.Sprintf("%s_sandbox:%s.state", id, id))
}

func (d *Driver) state(id string) (s state, err error) {
	data, err := os.ReadFile(d.stateFile(id))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", d.stateFile(id), err)
	}
	return s, nil
}

// launch lets a created sandbox run, with its limits off until it does: a
// quota would count from the first instruction. It leaves nothing when it fails.
func (d *Driver) launch(ctx context.Context, b *box, limits driver.Limits, slots chan struct{}, run func() error) (inst *Instance, err error) {
	defer func() {
		if err != nil {
			unlock := d.lock(b.ID)
			defer unlock()
			err = errors.Join(err, d.clear(ctx, b.ID))
		}
	}()
	if err := acquire(ctx, slots); err != nil {
		return nil, err
	}
	defer release(slots)
	unlock := d.lock(b.ID)
	defer func() { unlock() }()
	if err := b.load(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fault.Wrap(err, "not_found", "sandbox %s is gone", b.ID)
		}
		return nil, err
	}
	b.Limits = limits
	if err := d.cgroups.set(b.ID, driver.Limits{MemoryMB: limits.MemoryMB}); err != nil {
		return nil, err
	}
	procs, err := d.open(b)
	if err != nil {
		return nil, err
	}
	defer func() {
		if inst == nil {
			procs.close()
		}
	}()
	if err := d.serve(b.ID); err != nil {
		return nil, err
	}
	if err := run(); err != nil {
		if _, over := d.finished(b); !over {
			return nil, d.explain(b, err)
		}
	}
	if err := d.limit(ctx, b, limits); err != nil {
		if _, over := d.finished(b); !over { // a program so short that nobody is left to be told
			return nil, d.explain(b, err)
		}
	}
	b.Running = true
	if err := b.save(); err != nil {
		return nil, err
	}
	return d.watch(b, procs), nil
}

// limit makes limits hold in a sandbox that runs, and notes them in its box,
// which the caller saves.
func (d *Driver) limit(ctx context.Context, b *box, l driver.Limits) error {
	if err := d.sentryLimits(ctx, b.ID, l); err != nil {
		var refused refusal
		if errors.As(err, &refused) {
			e := fault.Wrap(err, "invalid", "a disk of %d MB is too little for what is on it", l.DiskMB).WithHint("ask for more with disk_mb, or leave it out")
			e.Field = "disk_mb"
			return e
		}
		return err
	}
	if err := d.cgroups.set(b.ID, l); err != nil {
		return err
	}
	if l.DiskMB > 0 {
		b.DiskMB = l.DiskMB
	}
	b.Limits = l
	return nil
}

// explain adds the kind to an error that has a known cause.
func (d *Driver) explain(b *box, err error) error {
	if d.cgroups.oomKills(b.ID) > 0 {
		return errors.Join(errSmall(b.Limits.MemoryMB), err)
	}
	if strings.Contains(err.Error(), "no space left on device") {
		return fault.Wrap(err, "no_space", "the disk of the host is full")
	}
	return err
}

// ownMemory is what sentry and gofer need beside the memory of a sandbox.
const ownMemory = 64 << 20

// errSmall is for a limit of memory that the snapshot does not fit in.
func errSmall(memoryMB int) error {
	return fault.InvalidField("memory_mb", "%d MB of memory are too little for what the snapshot holds", memoryMB).
		WithHint("ask for more with memory_mb, or leave it out")
}

// acquire waits for a slot.
func acquire(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fault.Wrap(context.Cause(ctx), "timeout", "no turn to start came in time")
		}
		return context.Cause(ctx)
	}
}

func release(slots chan struct{}) { <-slots }
