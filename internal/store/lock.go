package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// lock is an exclusive claim on a data directory. The kernel drops it when the
// process is gone, so a crash leaves none behind.
type lock struct {
	file    *os.File
	crashed bool // the last daemon was of this run of the machine
}

func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, unusable(dir, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		who := "another daemon"
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 && len(b) < 128 {
			pid, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
			who += " (process " + pid + ")"
		}
		return nil, fault.New(api.CodeConflict, "%s already uses the data directory %s", who, dir).
			WithHint("stop it, or give this one a data directory of its own with --data-dir")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("reading which run of the machine this is: %w", err)
	}
	last, err := os.ReadFile(path)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	// The lock is the file's, not its content's. A full disk must not keep a
	// daemon from its sandboxes, so what is written is as long as what was there.
	line := fmt.Sprintf("%-10d %s", os.Getpid(), boot)
	if err := errors.Join(writeAll(f, line), f.Truncate(int64(len(line)))); err != nil {
		f.Close()
		return nil, unusable(dir, err)
	}
	return &lock{file: f, crashed: strings.HasSuffix(string(last), " "+string(boot))}, nil
}

func writeAll(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// release ends the claim. The file stays: removing it would let two daemons
// hold locks on two files of one name.
func (l *lock) release() error { return l.file.Close() }
