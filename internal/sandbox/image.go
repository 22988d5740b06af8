package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// Images lie in one folder, named for whose they are:
//
//	sn-…       a snapshot
//	sb-…-N     what a sandbox wakes up from, that was hibernated or paused in its generation N
//	fk-…       what copies are being restored from; gone when they run
//
// The driver makes them whole or not at all. What no row leads to goes when a
// daemon starts.

// image is what a sandbox is restored from instead of its template's snapshot.
type image struct {
	dir        string
	bytes      int64
	generation int    // of the sandbox when it was made
	snapshot   string // id, when it is a snapshot
	parent     string // id of the sandbox, when it is copied now
}

func (m *Manager) imageDir(name string) string { return filepath.Join(m.cfg.ImageDir, name) }

// sleepImage is what a sandbox that does not run wakes up from.
func (m *Manager) sleepImage(row store.Sandbox) string {
	return m.imageDir(fmt.Sprintf("%s-%d", row.ID, row.Generation))
}

func (m *Manager) removeImage(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		m.log.Error("an image could not be removed; it goes when the server starts again", "dir", dir, "error", err)
	}
}

// removeSleepImages removes all that a sandbox could wake up from.
func (m *Manager) removeSleepImages(id string) error {
	found, err := filepath.Glob(m.imageDir(id + "-*"))
	for _, dir := range found {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// sweepImages removes images that nothing leads to, such as of what a daemon
// was doing when it was killed.
func (m *Manager) sweepImages(ctx context.Context) error {
	entries, err := os.ReadDir(m.cfg.ImageDir)
	if err != nil {
		return fmt.Errorf("reading the folder of the images: %w", err)
	}
	list, err := m.cfg.Store.SnapshotsOf(ctx, "", "")
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, sn := range list {
		keep[sn.ID] = true
	}
	for _, b := range m.all() {
		if row := b.get(); row.State == store.Hibernated || row.State == store.Paused {
			keep[filepath.Base(m.sleepImage(row))] = true
		}
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			m.log.Info("removing an image that belongs to nothing", "name", e.Name())
			m.removeImage(m.imageDir(e.Name()))
		}
	}
	return nil
}

// snapshotter is the driver, if it can make images.
func (m *Manager) snapshotter(what string) (driver.Snapshotter, error) {
	s, ok := m.cfg.Driver.(driver.Snapshotter)
	if !ok {
		return nil, errUnsupported("", what)
	}
	return s, nil
}

// expected is about how large the image of a box would be.
func (m *Manager) expected(ctx context.Context, b *box) (int64, error) {
	if b.inst == nil {
		img, err := m.inspect(ctx, m.sleepImage(b.get()))
		return img.Bytes, err
	}
	use, err := b.inst.Stats(ctx)
	return use.MemoryBytes + use.DiskBytes, err // what was written is part of it
}

func (m *Manager) inspect(ctx context.Context, dir string) (driver.Image, error) {
	s, err := m.snapshotter("restoring an image")
	if err != nil {
		return driver.Image{}, err
	}
	return s.Inspect(ctx, dir)
}

// takeDisk sets room for an image aside until give is called, or says that
// there is not enough.
func (m *Manager) takeDisk(bytes int64) (give func(), err error) {
	free, err := m.cfg.DiskAvailable()
	if err != nil {
		return nil, fmt.Errorf("reading how much disk is free: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if free-m.diskTaken-bytes < int64(m.cfg.MinFreeDiskMB)<<20 {
		return nil, fault.New(api.CodeNoSpace, "the image needs about %d MB of disk; %d MB are free, of which %d MB are to stay so",
			bytes>>20, max(0, free-m.diskTaken)>>20, m.cfg.MinFreeDiskMB).
			WithHint("delete snapshots that are not needed, or free space on the server's disk")
	}
	m.diskTaken += bytes
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.diskTaken -= bytes
	}, nil
}

// saveTo writes an image of a box, which may be asleep. The caller holds the turn.
func (m *Manager) saveTo(ctx context.Context, b *box, dir string, how driver.Save) error {
	s, err := m.snapshotter("making an image")
	if err != nil {
		return err
	}
	if b.inst == nil {
		return linkFiles(m.sleepImage(b.get()), dir)
	}
	bytes, err := m.expected(ctx, b)
	if err != nil {
		return stopped(ctx, err)
	}
	give, err := m.takeDisk(bytes)
	if err != nil {
		return err
	}
	defer give()
	b.cutting(true)
	if err := s.Snapshot(ctx, b.inst, dir, how); err != nil {
		b.cutting(false)
		return ours(stopped(ctx, err), "the image could not be made")
	}
	return nil
}

// linkFiles gives the files of an image, which never change, a second place.
func linkFiles(from, to string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".link-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(tmp, e.Name())); err != nil {
			return err
		}
	}
	return os.Rename(tmp, to)
}

// hasImage says whether a sandbox can be woken.
func (m *Manager) hasImage(row store.Sandbox) (bool, error) {
	_, err := os.Stat(m.sleepImage(row))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
