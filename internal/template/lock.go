package template

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a waiting build looks whether the other is done.
const lockPoll = 200 * time.Millisecond

// tryLock takes the lock that builds and sweeps of a data directory share. It
// gives nil when another process, or another part of this one, holds it. The
// lock goes with its holder.
func (s *Store) tryLock() (unlock func(), err error) {
	if err := s.makeDirs(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "templates", "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the templates: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the templates: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// lock waits for the lock, and tells once that it does.
func (s *Store) lock(ctx context.Context, waiting func()) (unlock func(), err error) {
	told := false
	for {
		unlock, err := s.tryLock()
		if err != nil || unlock != nil {
			return unlock, err
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build: %w", context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}
