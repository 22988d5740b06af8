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
type lock struct{ file *os.File }

func takeLock(dir string) (*lock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the data directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		who := "another daemon"
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 && len(b) < 32 {
			who += " (process " + strings.TrimSpace(string(b)) + ")"
		}
		return nil, fault.New(api.CodeConflict, "%s already uses the data directory %s", who, dir).
			WithHint("stop it, or give this one a data directory of its own with --data-dir")
	}
	// For the message above only; the lock is the file's, not its content's.
	if err := errors.Join(f.Truncate(0), writeAll(f, fmt.Sprintln(os.Getpid()))); err != nil {
		f.Close()
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &lock{file: f}, nil
}

func writeAll(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// release ends the claim. The file stays: removing it would let two daemons
// hold locks on two files of one name.
func (l *lock) release() error { return l.file.Close() }
