package template

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unusedMark is the file in a folder that was found unused; its time says when.
const unusedMark = ".unused"

// Sweep removes what no name leads to and InUse does not hold, some minutes
// after it was first found so. It says what it removed, and does nothing while
// something is being built.
func (s *Store) Sweep(ctx context.Context) (removed []string, err error) {
	if s.InUse == nil {
		return nil, nil
	}
	unlock, err := s.tryLock()
	if err != nil || unlock == nil {
		return nil, err
	}
	defer unlock()
	snapshots, err := s.heldSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	gone, err := s.sweepDir(s.snapshots(), snapshots)
	removed = append(removed, gone...)
	if err != nil {
		return removed, err
	}
	// What a snapshot that is still there needs stays as long as it does.
	rootfs, programs, err := s.heldBySnapshots()
	if err != nil {
		return removed, err
	}
	for dir, held := range map[string]map[string]bool{s.rootfs(): rootfs, filepath.Join(s.dir, "programs"): programs} {
		gone, err := s.sweepDir(dir, held)
		removed = append(removed, gone...)
		if err != nil {
			return removed, err
		}
	}
	gone, err = s.sweepCache()
	removed = append(removed, gone...)
	slices.Sort(removed)
	return removed, err
}

// sweepCache removes what no root filesystem that is there was made from. It
// can be had again, so nobody has to be asked.
func (s *Store) sweepCache() (removed []string, err error) {
	held := map[string]bool{}
	made, err := filepath.Glob(filepath.Join(s.rootfs(), "*", rootfsFile))
	if err != nil {
		return nil, err
	}
	for _, file := range made {
		m, err := readRootfs(file)
		if err != nil {
			return nil, err
		}
		held[m.Bootstrap+bootstrapExt], held[m.Wheels] = true, true
	}
	for _, kind := range []string{"bootstrap", "wheels"} {
		dir := filepath.Join(s.cache(), kind)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return removed, err
		}
		for _, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				return removed, err
			}
			// What is new may be for a build that failed later and is tried again.
			if held[entry.Name()] || s.now().Sub(info.ModTime()) < cacheGrace {
				continue
			}
			path := filepath.Join(dir, entry.Name())
			if err := s.discard(path); err != nil {
				return removed, err
			}
			removed = append(removed, path)
		}
	}
	return removed, nil
}

func (s *Store) heldSnapshots(ctx context.Context) (map[string]bool, error) {
	held := map[string]bool{}
	current, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range current {
		held[t.Digest] = true
	}
	used, err := s.InUse(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask which templates are in use: %w", err)
	}
	for digest, in := range used {
		if in {
			held[digest] = true
		}
	}
	return held, nil
}

func (s *Store) heldBySnapshots() (rootfs, programs map[string]bool, err error) {
	rootfs, programs = map[string]bool{}, map[string]bool{}
	entries, err := os.ReadDir(s.snapshots())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, entry := range entries {
		t, err := s.read(filepath.Join(s.snapshots(), entry.Name(), "template.json"))
		if err != nil {
			return nil, nil, err
		}
		rootfs[t.RootfsDigest], programs[t.ProgramsDigest] = true, true
	}
	return rootfs, programs, nil
}

// sweepDir removes the folders in dir that are not held and were not some time
// ago either.
func (s *Store) sweepDir(dir string, held map[string]bool) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		mark := filepath.Join(path, unusedMark)
		if held[entry.Name()] {
			if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return removed, err
			}
			continue
		}
		info, err := os.Stat(mark)
		if errors.Is(err, fs.ErrNotExist) {
			if err := s.mark(mark); err != nil {
				return removed, err
			}
			continue
		}
		if err != nil {
			return removed, err
		}
		if s.now().Sub(info.ModTime()) < sweepGrace {
			continue
		}
		if err := s.discard(path); err != nil {
			return removed, err
		}
		removed = append(removed, path)
	}
	return removed, nil
}

func (s *Store) mark(file string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	return os.Chtimes(file, time.Time{}, s.now())
}

// discard removes a published folder: out of sight in one step, then away.
func (s *Store) discard(path string) error {
	tmp, err := s.stage("discard-")
	if err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(tmp, "gone")); err != nil {
		return errors.Join(err, removeTree(tmp))
	}
	return removeTree(tmp)
}

// stage makes a folder for something that is not finished.
func (s *Store) stage(prefix string) (string, error) {
	if err := s.makeDirs(); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(s.staging(), prefix)
	if err != nil {
		return "", fmt.Errorf("make a folder to build in: %w", err)
	}
	return dir, os.Chmod(dir, 0o711)
}

// cleanStaging removes what builds left that were ended half-way. The caller
// holds the lock.
func (s *Store) cleanStaging() error {
	entries, err := os.ReadDir(s.staging())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := removeTree(filepath.Join(s.staging(), entry.Name())); err != nil {
			return fmt.Errorf("remove an unfinished build: %w", err)
		}
	}
	return nil
}

// publish moves a finished folder to its place, after everything in it has
// reached the disk.
func publish(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	err = errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
	if err != nil {
		return fmt.Errorf("write %s to the disk: %w", from, err)
	}
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// removeTree removes a folder, and first what a killed bootstrapper may have
// left mounted in it: removing through such a mount would reach the host.
func removeTree(dir string) error {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	defer mounts.Close()
	var points []string
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && strings.HasPrefix(unescapeMount(fields[4]), dir+"/") {
			points = append(points, unescapeMount(fields[4]))
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	for _, point := range slices.Backward(points) { // the last mounted first
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return os.RemoveAll(dir)
}

// unescapeMount undoes the octal escapes of mountinfo.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace
