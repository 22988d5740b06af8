// Package files reads and writes the files of the sandbox for the host. Bytes
// are streamed; a write is seen whole or not at all; and nothing that a program
// has put in the way, a FIFO or a device, makes a call wait.
//
// Paths are absolute and belong to the sandbox, whose users may do there what
// they like anyway, so links are followed.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	maxPath    = 4096
	maxEntries = 10_000 // in one listing
)

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

// Open opens a file for reading and reports its size, -1 when only reading to
// its end can tell, as under /proc.
func Open(path string) (*os.File, int64, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, 0, Explain(err, "path", path)
	}
	if err := regular(st.Mode(), path); err != nil {
		return nil, 0, err
	}
	// O_NONBLOCK, should it have become a FIFO meanwhile.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, Explain(err, "path", path)
	}
	if st, err = f.Stat(); err == nil {
		err = regular(st.Mode(), path)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	if st.Size() == 0 {
		return f, -1, nil
	}
	return f, st.Size(), nil
}

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

// Write replaces or makes a file with what r gives, and the folders above it.
// Until all has come the old file stays as it is; when r fails it stays for
// good. A file that exists keeps its mode and owner; perm is that of a new one,
// and also that of an old one if force is set.
func Write(path string, r io.Reader, perm fs.FileMode, force bool) (written int64, err error) {
	if strings.HasSuffix(path, "/") {
		return 0, fault.InvalidField("path", "%s names a folder, not a file", path)
	}
	target, err := followLink(path)
	if err != nil {
		return 0, err
	}
	old, err := os.Stat(target)
	if err == nil {
		if err := regular(old.Mode(), path); err != nil {
			return 0, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, Explain(err, "path", path)
	}
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, Explain(err, "path", path)
	}
	tmp, err := os.CreateTemp(dir, ".pandastack-*")
	if err != nil {
		return 0, Explain(err, "path", path)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	written, err = io.CopyBuffer(onlyWriter{tmp}, r, make([]byte, 256<<10))
	if err == nil {
		err = dress(tmp, old, perm, force)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	if err != nil {
		return 0, Explain(err, "path", path)
	}
	return written, nil
}

// onlyWriter hides ReadFrom, which would not use our buffer.
type onlyWriter struct{ io.Writer }

// dress gives the new file the looks of the one that it replaces.
func dress(tmp *os.File, old fs.FileInfo, perm fs.FileMode, force bool) error {
	if old != nil {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			if err := tmp.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
		if !force {
			perm = old.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
		}
	}
	return tmp.Chmod(perm)
}

// followLink gives the file that a write to path means: through a link its
// target, which need not exist.
func followLink(path string) (string, error) {
	for range 40 {
		st, err := os.Lstat(path)
		if err != nil || st.Mode()&fs.ModeSymlink == 0 {
			return path, nil // whatever is wrong shows when it is used
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", Explain(err, "path", path)
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", fault.InvalidField("path", "%s is a link that leads to itself", path)
}

// Stat describes what is at a path; of a link, the link.
func Stat(path string) (api.FileInfo, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return api.FileInfo{}, Explain(err, "path", path)
	}
	return info(path, st), nil
}

func info(path string, st fs.FileInfo) api.FileInfo {
	fi := api.FileInfo{
		Name: st.Name(), Path: path, IsDir: st.IsDir(), Size: st.Size(), Mode: letter(st.Mode()),
		MTime: st.ModTime().Unix(), ModifiedAt: st.ModTime().UTC(),
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		fi.Owner, fi.Group = int(sys.Uid), int(sys.Gid)
		fi.Permissions = octal(sys.Mode & 0o7777)
	}
	if fi.Mode == "l" {
		fi.Target, _ = os.Readlink(path)
	}
	return fi
}

func octal(mode uint32) string {
	return string([]byte{'0' + byte(mode>>9&7), '0' + byte(mode>>6&7), '0' + byte(mode>>3&7), '0' + byte(mode&7)})
}

func letter(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "f"
	case mode.IsDir():
		return "d"
	case mode&fs.ModeSymlink != 0:
		return "l"
	case mode&fs.ModeNamedPipe != 0:
		return "p"
	case mode&fs.ModeSocket != 0:
		return "s"
	case mode&fs.ModeCharDevice != 0:
		return "c"
	}
	return "b"
}

// List lists a folder by name, as far as a listing goes.
func List(path string) (api.DirListing, error) {
	list := api.DirListing{Path: path, Entries: []api.FileInfo{}}
	st, err := os.Stat(path)
	if err != nil {
		return list, Explain(err, "path", path)
	}
	if !st.IsDir() {
		return list, fault.InvalidField("path", "%s is not a folder", path)
	}
	dir, err := os.Open(path)
	if err != nil {
		return list, Explain(err, "path", path)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return list, Explain(err, "path", path)
	}
	if len(names) > maxEntries {
		names, list.Truncated = names[:maxEntries], true
	}
	slices.Sort(names)
	for _, name := range names {
		p := filepath.Join(path, name)
		st, err := os.Lstat(p)
		if err != nil {
			continue // removed meanwhile
		}
		list.Entries = append(list.Entries, info(p, st))
	}
	return list, nil
}

// MakeDir makes a folder and those above it. One that is there is fine.
func MakeDir(path string) error {
	err := os.MkdirAll(path, 0o755)
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrExist) {
		return fault.New(api.CodeConflict, "%s cannot be made: a file is in the way", path)
	}
	return Explain(err, "path", path)
}

// Remove removes a file, an empty folder, or with recursive all in a folder.
func Remove(path string, recursive bool) error {
	if path == "/" {
		return fault.InvalidField("path", "the root folder cannot be removed")
	}
	if _, err := os.Lstat(path); err != nil {
		return Explain(err, "path", path)
	}
	if ofKernel(path) {
		return fault.New(api.CodeDenied, "%s cannot be removed: it is not on a disk, the kernel shows it", path)
	}
	var err error
	if recursive {
		err = os.RemoveAll(path)
	} else {
		err = os.Remove(path)
	}
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		return fault.Wrap(err, api.CodeConflict, "the folder %s is not empty", path).
			WithHint("recursive=1 removes it with all that is in it")
	}
	return Explain(err, "path", path)
}

// ofKernel reports whether a path lies under /proc or /sys. Removing all in
// there removes nothing of it, but would reach through its links, root and cwd
// of every process, what they lead to.
func ofKernel(path string) bool {
	for _, p := range []string{filepath.Dir(path), path} {
		if st, err := os.Lstat(p); err == nil && p == path && st.Mode()&fs.ModeSymlink != 0 {
			continue // of a link only where it lies counts
		}
		var fs unix.Statfs_t
		if unix.Statfs(p, &fs) == nil && (fs.Type == unix.PROC_SUPER_MAGIC || fs.Type == unix.SYSFS_MAGIC) {
			return true
		}
	}
	return false
}

// Move renames a file or folder, and makes the folders above its new place.
func Move(from, to string, overwrite bool) error {
	src, err := os.Lstat(from)
	if err != nil {
		return Explain(err, "from", from)
	}
	if dst, err := os.Lstat(to); err == nil {
		if !overwrite {
			return fault.New(api.CodeConflict, "%s exists already", to).WithHint("overwrite replaces it")
		}
		if os.SameFile(src, dst) {
			return nil
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return Explain(err, "to", to)
	}
	if overwrite {
		err = os.Rename(from, to)
	} else if err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Rename(from, to)
	}
	switch {
	case errors.Is(err, syscall.EXDEV) && src.Mode().IsRegular():
		return moveAcross(from, to, src)
	case errors.Is(err, syscall.EXDEV):
		return fault.Wrap(err, api.CodeUnsupported, "%s and %s are on different file systems", from, to).
			WithHint("copy it with a command: mv %s %s", from, to)
	case errors.Is(err, syscall.EINVAL):
		return fault.InvalidField("to", "%s lies inside %s", to, from)
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return fault.Wrap(err, api.CodeConflict, "%s cannot be replaced by %s", to, from)
	}
	return Explain(err, "to", to)
}

func moveAcross(from, to string, src fs.FileInfo) error {
	f, _, err := Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := Write(to, f, src.Mode().Perm(), true); err != nil {
		return err
	}
	return Explain(os.Remove(from), "from", from)
}

// Explain turns what the system says about a path into an error for the user.
func Explain(err error, field, path string) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		e := fault.Wrap(err, api.CodeNotFound, "there is no %s in the sandbox", path)
		e.Field = field
		if hint := nearest(path); hint != "" {
			return e.WithHint("%s", hint)
		}
		return e
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fault.Wrap(err, api.CodeNoSpace, "the disk of the sandbox is full").
			WithHint("remove files, or create the sandbox with a larger disk_mb")
	case errors.Is(err, syscall.ENOTDIR):
		e := fault.Wrap(err, api.CodeInvalid, "a part of %s is a file, not a folder", path)
		e.Field = field
		return e
	case errors.Is(err, syscall.ENAMETOOLONG):
		e := fault.Wrap(err, api.CodeInvalid, "a name in the %s is longer than 255 bytes", field)
		e.Field = field
		return e
	case errors.Is(err, syscall.ELOOP):
		e := fault.Wrap(err, api.CodeInvalid, "%s is a link that leads to itself", path)
		e.Field = field
		return e
	case errors.Is(err, syscall.EISDIR):
		e := fault.Wrap(err, api.CodeInvalid, "%s is a folder, not a file", path)
		e.Field = field
		return e
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EBUSY):
		return fault.Wrap(err, api.CodeDenied, "%s cannot be changed: %v", path, cause(err))
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
