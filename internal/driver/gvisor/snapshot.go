package gvisor

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// mark is the file that says a snapshot is whole, written last. It names what
// can read it, and what it must find.
type mark struct {
	Made     string          `json:"made"` // the fingerprint
	Arch     string          `json:"arch"`
	Features []string        `json:"features"` // of the processor
	DiskMB   int             `json:"disk_mb"`  // the quota, which is part of what was saved
	Bytes    int64           `json:"bytes"`
	Memory   int64           `json:"memory_bytes"`    // that the sandbox had
	Stays    bool            `json:"stays,omitempty"` // while sandboxes run that were restored from it
	Files    map[string]file `json:"files"`           // all but this one
	At       time.Time       `json:"at"`
}

const markFile = "complete.json"

// Snapshot implements driver.Snapshotter. dir must not exist, or be empty: it
// appears whole or not at all, and until then is a hidden folder beside it. The
// files in it hold the sandbox's memory, with every secret in it, and are for
// the daemon's user alone. Connections to host sockets break, in the sandbox
// and in every copy; guests dial again. A sandbox of which no snapshot could be
// made goes on, also when it was to be ended.
func (d *Driver) Snapshot(ctx context.Context, inst driver.Instance, dir string, how driver.Save) error {
	i, err := d.owned(inst)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(dir) {
		return fault.InvalidField("dir", "the path %q is not absolute", dir)
	}
	i.state.Lock()
	defer i.state.Unlock()
	if err := i.save(ctx, dir, how); err != nil {
		return fmt.Errorf("snapshot of sandbox %s: %w", i.box.ID, err)
	}
	if how.Stop {
		return i.Stop(ctx)
	}
	return nil
}

// save writes a snapshot. One that is to be stopped stands still afterwards,
// unless it fails. The caller holds i.state.
func (i *Instance) save(ctx context.Context, dir string, how driver.Save) (failed error) {
	d := i.d
	m := mark{Arch: runtime.GOARCH, Features: features(), DiskMB: i.box.DiskMB, Stays: how.Stays, At: time.Now().UTC()}
	var err error
	if m.Made, err = d.Fingerprint(ctx); err != nil {
		return err
	}
	// What is not in memory yet would be read while the sandbox stands still.
	var older refusal // of a sentry that an earlier version started and that knows no such call
	if m.Memory, err = d.loadAll(ctx, i.box.ID); err != nil && !errors.As(err, &older) {
		return d.explain(i.box, err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	// runsc would also end the sandbox after it was saved, but does so when
	// saving has failed, too. So it is held, saved as one that goes on, and
	// ended when the snapshot is whole.
	if how.Stop {
		held, err := d.hold(ctx, i.box, true)
		if err != nil {
			return err
		}
		defer func() {
			if failed != nil && held {
				_, err := d.hold(context.WithoutCancel(ctx), i.box, false)
				failed = errors.Join(failed, err)
			}
		}()
	}
	if err := d.checkpoint(ctx, i.box.ID, tmp); err != nil {
		return d.explain(i.box, err)
	}
	if how.GoesOn != nil && !how.Stop {
		how.GoesOn()
	}
	if m.Files, m.Bytes, err = seal(tmp, how.Volatile); err != nil {
		return d.explain(i.box, err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(tmp, markFile), data); err != nil {
		return d.explain(i.box, err)
	}
	if how.Volatile {
		return os.Rename(tmp, dir)
	}
	if err := errors.Join(syncPath(filepath.Join(tmp, markFile)), syncPath(tmp)); err != nil {
		return d.explain(i.box, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	d.intact.seen(dir, m) // it was just read
	return syncPath(filepath.Dir(dir))
}

// Inspect implements driver.Snapshotter.
func (d *Driver) Inspect(ctx context.Context, dir string) (driver.Image, error) {
	m, err := d.readMark(ctx, dir)
	return driver.Image{Bytes: m.Bytes, DiskMB: m.DiskMB}, err
}

// Needs implements driver.Carrier.
func (d *Driver) Needs(ctx context.Context, dir string) (driver.Needs, error) {
	m, err := d.readMark(ctx, dir)
	return driver.Needs{Made: m.Made, Arch: m.Arch, Features: m.Features}, err
}

// Fits implements driver.Carrier.
func (d *Driver) Fits(ctx context.Context, n driver.Needs) error {
	here, err := d.Fingerprint(ctx)
	if err != nil {
		return err
	}
	return mark{Made: n.Made, Arch: n.Arch, Features: n.Features}.fits(here)
}

// readMark looks whether a folder can be restored here, and whether its files
// are those that were written.
func (d *Driver) readMark(ctx context.Context, dir string) (m mark, err error) {
	data, err := os.ReadFile(filepath.Join(dir, markFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, fault.Wrap(err, "not_found", "%s holds no whole snapshot", dir)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fault.Wrap(err, "conflict", "the snapshot is damaged: %s cannot be read", markFile)
	}
	here, err := d.Fingerprint(ctx)
	if err != nil {
		return m, err
	}
	if err := m.fits(here); err != nil {
		return m, err
	}
	return m, d.intact.check(dir, m)
}

// fits says why a snapshot cannot be restored by this build on this machine.
// A processor may have more features than that on which it was made.
func (m mark) fits(here string) error {
	made := m.Made
	if m.Arch != "" {
		if m.Arch != runtime.GOARCH {
			return fault.Wrap(driver.ErrStale, "conflict", "the snapshot was made on another processor architecture: %s, and this is %s", m.Arch, runtime.GOARCH).
				WithHint("restore it on a machine of its own kind")
		}
		have := features()
		missing := slices.DeleteFunc(slices.Clone(m.Features), func(f string) bool { _, ok := slices.BinarySearch(have, f); return ok })
		if len(missing) > 0 {
			return fault.Wrap(driver.ErrStale, "conflict", "the snapshot was made on a processor with features that this one lacks: %s", strings.Join(missing, " ")).
				WithHint("restore it on a machine with such a processor")
		}
		made, here = beforeProcessor(made), beforeProcessor(here)
	}
	if made != here {
		return fault.Wrap(driver.ErrStale, "conflict", "the snapshot was made by another version of the server: by %q, and this is %q", made, here).
			WithHint("make it again with this version, and templates with: pandastack template build")
	}
	return nil
}

func beforeProcessor(fingerprint string) string {
	before, _, _ := strings.Cut(fingerprint, ", processor ")
	return before
}

// Restorable implements driver.Restorer.
func (d *Driver) Restorable(ctx context.Context, snapshot string) error {
	_, err := d.readMark(ctx, snapshot)
	return err
}

// Fingerprint implements driver.Fingerprinter.
func (d *Driver) Fingerprint(context.Context) (string, error) {
	version, err := d.version()
	if err != nil {
		return "", d.broken(err)
	}
	fixed := d.spec(driver.BootSpec{}, "")
	fixed.Linux.CgroupsPath = ""
	data, err := json.Marshal(fixed)
	if err != nil {
		return "", err
	}
	build, err := buildID(d.runsc)
	if err != nil {
		return "", d.broken(err)
	}
	return fmt.Sprintf("runsc %s %s, spec %s, processor %s", version, build, short(data), processor()), nil
}

// buildID tells builds of one version apart, which may differ in how memory
// lies in a snapshot.
func buildID(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("runsc: %w", err)
	}
	defer f.Close()
	note := f.Section(".note.go.buildid")
	if note == nil {
		return "", fmt.Errorf("%s has no build id: it was not built by go", program)
	}
	data, err := note.Data()
	if err != nil {
		return "", fmt.Errorf("runsc: %w", err)
	}
	return short(data), nil
}

func short(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// moduleVersion is that of the gVisor module in a runsc program, which prints
// none itself when it was built from the module.
func moduleVersion(program string) (string, error) {
	const module = "gvisor.dev/gvisor"
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "", fmt.Errorf("runsc: %w", err)
	}
	if info.Main.Path == module {
		return info.Main.Version, nil
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version, nil
		}
	}
	return "", fmt.Errorf("%s is not runsc: it holds no gVisor", program)
}

// processor names what of the processor a guest may have looked at before it
// was saved. The sentry refuses to restore where a feature is missing.
func processor() string {
	return runtime.GOARCH + " " + short([]byte(strings.Join(features(), " ")))
}

// features are those of the processor, sorted, as the kernel names them.
var features = sync.OnceValue(func() []string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "flags", "Features":
			found := strings.Fields(value)
			slices.Sort(found)
			return found
		}
	}
	return nil
})
