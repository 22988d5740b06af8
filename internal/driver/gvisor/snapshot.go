package gvisor

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// mark is the file that says a snapshot is whole, written last. It names what
// can read it: a snapshot fits the build of runsc that made it.
type mark struct {
	Runsc string    `json:"runsc"`
	Arch  string    `json:"arch"`
	Bytes int64     `json:"bytes"`
	At    time.Time `json:"at"`
}

const markFile = "complete.json"

// Snapshot implements driver.Snapshotter. dir must not exist, or be empty: it
// appears whole or not at all. The files in it hold the sandbox's memory, with
// every secret in it, and are for the daemon's user alone. Connections to host
// sockets break, in the sandbox and in every copy; guests dial again.
func (d *Driver) Snapshot(ctx context.Context, inst driver.Instance, dir string, stop bool) (err error) {
	i, err := d.owned(inst)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(dir) {
		return fault.InvalidField("dir", "the path %q is not absolute", dir)
	}
	i.state.Lock()
	defer i.state.Unlock()
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, err)
	}
	defer os.RemoveAll(tmp)

	args := []string{"--image-path=" + tmp, "--compression=none"}
	if stop {
		i.stopping.Store(true)
	} else {
		args = append(args, "--leave-running")
	}
	if err := d.command(ctx, checkpointTimeout, i.box, nil, "checkpoint", append(args, i.box.ID)...); err != nil {
		select {
		case <-i.done: // a failed checkpoint may have cost the sandbox its life
		default:
			i.stopping.Store(false)
		}
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, d.explain(i.box, err))
	}
	m := mark{Runsc: d.version(), Arch: runtime.GOARCH, At: time.Now().UTC()}
	if m.Bytes, err = size(tmp); err != nil {
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(tmp, markFile), data); err != nil {
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, err)
	}
	if stop {
		return i.Stop(ctx)
	}
	return nil
}

// checkSnapshot says why a folder cannot be restored.
func (d *Driver) checkSnapshot(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, "not_found", "%s holds no whole snapshot", dir)
	}
	if err != nil {
		return err
	}
	var m mark
	if err := json.Unmarshal(data, &m); err != nil {
		return fault.Wrap(err, "invalid", "%s holds no snapshot", dir)
	}
	if here := d.version(); m.Runsc != here || m.Arch != runtime.GOARCH {
		return fault.New("conflict", "the snapshot %s was made by runsc %s on %s, and this is %s on %s", dir, m.Runsc, m.Arch, here, runtime.GOARCH).
			WithHint("build the template again")
	}
	return nil
}

// moduleVersion is that of the gVisor module in a runsc program, which prints
// none itself when it was built from the module.
func moduleVersion(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown"
	}
	if info.Main.Path == gvisorModule {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == gvisorModule {
			return dep.Version
		}
	}
	return "unknown"
}

const gvisorModule = "gvisor.dev/gvisor"

func size(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
