// Package files reads and writes the files of the sandbox for the host. Bytes
// are streamed; a write is seen whole or not at all; and nothing that a program
// has put in the way, a FIFO or a device, makes a call wait.
//
// Paths are absolute and belong to the sandbox, whose users may do there what
// they like anyway, so links are followed. They are bytes, as in the kernel,
// and need not be UTF-8.
package files

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const maxPath = 4096

// Clean checks a path and brings it into its shortest form.
func Clean(field, path string) (string, error) {
	switch {
	case path == "":
		return "", fault.InvalidField(field, "%s is missing", field)
	case strings.Contains(path, "\x00"):
		return "", fault.InvalidField(field, "%s holds a NUL byte", field)
	case !filepath.IsAbs(path):
		return "", fault.InvalidField(field, "%s must be absolute, not %q", field, path).
			WithHint("/workspace/%s?", filepath.Clean(path))
	case len(path) > maxPath:
		return "", fault.InvalidField(field, "%s is longer than %d bytes", field, maxPath)
	}
	return filepath.Clean(path), nil
}

// regular refuses what is not a file with an end.
func regular(mode fs.FileMode, path string) error {
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fault.InvalidField("path", "%s is a folder, not a file", path)
	}
	return fault.InvalidField("path", "%s is %s, not a file", path, describe(mode))
}

func describe(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// ShownByKernel reports whether what lies at a path is on no disk: the kernel
// makes it up, under /proc and /sys.
func ShownByKernel(path string) bool {
	var at unix.Statfs_t
	if unix.Statfs(path, &at) != nil {
		return false
	}
	switch at.Type {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC:
		return true
	}
	return false
}

// Explain turns what the system says about a path into an error for the user.
func Explain(err error, field, path string) error {
	say := func(code api.Code, format string, args ...any) *fault.Error {
		e := fault.Wrap(err, code, format, args...)
		e.Field = field
		return e
	}
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		e := say(api.CodeNotFound, "there is no %s in the sandbox", path)
		e.Hint = nearest(path)
		return e
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(err, api.CodeNoSpace, "the disk of the sandbox is full").
			WithHint("remove files, or create the sandbox with a larger disk_mb")
	case errors.Is(err, syscall.ENOTDIR):
		return say(api.CodeInvalid, "a part of %s is a file, not a folder", path)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return say(api.CodeInvalid, "a name in the %s is longer than 255 bytes", field)
	case errors.Is(err, syscall.ELOOP):
		return say(api.CodeInvalid, "%s is a link that leads to itself", path)
	case errors.Is(err, syscall.EISDIR):
		return say(api.CodeInvalid, "%s is a folder, not a file", path)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EBUSY):
		return say(api.CodeDenied, "%s cannot be changed: %v", path, cause(err))
	}
	return err
}

func cause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
