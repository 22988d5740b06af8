package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// short turns an error that comes of something the host has run out of into
// one that says so. It gives nil for others.
func short(err error) *fault.Error {
	switch {
	case errors.Is(err, fault.NoSpace), errors.Is(err, fault.NoCapacity):
		return nil // says so already
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, api.CodeNoSpace, "the disk of the server is full").
			WithHint("kill sandboxes that are not needed; the operator can free space in the data directory")
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fault.Wrap(err, api.CodeNoCapacity, "the server has no file descriptors left").
			WithHint("kill sandboxes that are not needed; the operator can raise the limit (ulimit -n, LimitNOFILE=)")
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN):
		return fault.Wrap(err, api.CodeNoCapacity, "the server has no memory or processes left").
			WithHint("kill sandboxes that are not needed, or try again later")
	}
	return nil
}

// hostShort gives an error that says nothing of the sandbox, but that the host
// has run out of something, and nil for any other.
func hostShort(err error) error {
	if e := short(err); e != nil {
		return e
	}
	if errors.Is(err, fault.NoSpace) || errors.Is(err, fault.NoCapacity) {
		return err
	}
	return nil
}

// spacious sees that there is room on the disk for one more sandbox. What is
// left is for those that run, and for the daemon to keep its books.
func (m *Manager) spacious() error {
	free, err := m.cfg.DiskAvailable()
	if err != nil {
		return fmt.Errorf("reading how much of the disk is free: %w", err)
	}
	if free>>20 >= int64(m.cfg.MinFreeDiskMB) {
		return nil
	}
	return fault.New(api.CodeNoSpace, "the server's disk has %d MB left, and new sandboxes need %d MB (disk_reserve_mb)", free>>20, m.cfg.MinFreeDiskMB).
		WithHint("kill sandboxes that are not needed; the operator can free space in the data directory")
}

// diskAvailable is what programs that are not root's could write under a folder.
func diskAvailable(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}
