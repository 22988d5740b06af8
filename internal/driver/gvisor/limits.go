package gvisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

var _ driver.Limiter = (*Driver)(nil)

// spareMemory is what must be left of a new limit of memory: what is in use
// grows while it is looked at.
const spareMemory = 32 << 20

// CanLimit implements driver.Limiter. The number of cores that a sandbox shows
// is fixed when its sentry starts; programs size their pools of threads by it.
func (d *Driver) CanLimit(from, to driver.Limits) bool {
	return shownCores(from.CPU) == shownCores(to.CPU)
}

// SetLimits implements driver.Limiter.
func (d *Driver) SetLimits(ctx context.Context, inst driver.Instance, l driver.Limits) error {
	i, err := d.owned(inst)
	if err != nil {
		return err
	}
	i.state.Lock()
	defer i.state.Unlock()
	unlock := d.lock(i.box.ID)
	defer unlock()
	if !d.CanLimit(i.box.Limits, l) {
		return fault.InvalidField("cpu", "sandbox %s shows %v cores and cannot show another number", i.box.ID, shownCores(i.box.Limits.CPU))
	}
	if l.MemoryMB > 0 && l.MemoryMB < i.box.Limits.MemoryMB && i.box.Memory+ownMemory > int64(l.MemoryMB)<<20 {
		return errSmall(l.MemoryMB)
	}
	now, err := d.cgroups.stats(i.box.ID)
	if err != nil {
		return fmt.Errorf("limit sandbox %s: %w", i.box.ID, err)
	}
	if l.MemoryMB > 0 && int64(l.MemoryMB)<<20 < now.MemoryBytes+spareMemory {
		return fault.InvalidField("memory_mb", "%d MB of memory are too little: sandbox %s uses %d MB already", l.MemoryMB, i.box.ID, now.MemoryBytes>>20).
			WithHint("ask for at least %d MB", (now.MemoryBytes+spareMemory)>>20+1)
	}
	if err := d.limit(ctx, i.box, l); err != nil {
		return fmt.Errorf("limit sandbox %s: %w", i.box.ID, err)
	}
	return i.box.save()
}

// Stats implements driver.Instance.
func (i *Instance) Stats(ctx context.Context) (driver.Stats, error) {
	s, err := i.d.cgroups.stats(i.box.ID)
	if errors.Is(err, os.ErrNotExist) {
		return s, fault.Wrap(err, "not_found", "sandbox %s is gone", i.box.ID)
	}
	if err != nil {
		return s, err
	}
	var u use
	if err := i.d.control(ctx, i.box.ID, "Use", struct{}{}, &u); err != nil {
		select {
		case <-i.done:
			return s, fault.Wrap(err, "not_found", "sandbox %s has ended", i.box.ID)
		default:
			return s, fmt.Errorf("use of sandbox %s: %w", i.box.ID, err)
		}
	}
	s.Tasks, s.TasksRefused, s.DiskBytes, s.DiskRefused = u.Tasks, u.TasksRefused, u.DiskBytes, u.DiskRefused
	s.Process, err = hostProcess(i.box.Sentry.PID)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return s, fault.Wrap(err, "not_found", "sandbox %s has ended", i.box.ID)
	}
	return s, err
}

// hostProcess reads /proc/PID/status.
func hostProcess(pid int) (driver.Process, error) {
	p := driver.Process{PID: pid}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return p, err
	}
	for line := range bytes.Lines(data) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			continue
		}
		switch string(f[0]) {
		case "VmRSS:":
			p.RSSBytes = n << 10
		case "VmSize:":
			p.VSZBytes = n << 10
		case "Threads:":
			p.Threads = int(n)
		}
	}
	return p, nil
}
