package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

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
	if ShownByKernel(filepath.Dir(path)) {
		return true
	}
	st, err := os.Lstat(path)
	return err == nil && st.Mode()&fs.ModeSymlink == 0 && ShownByKernel(path) // of a link only where it lies counts
}

// Move renames a file or folder, and makes the folders above its new place.
// What is there is a conflict, or with overwrite replaced: a file or link by a
// file or link, an empty folder by a folder.
func Move(from, to string, overwrite bool) error {
	src, err := os.Lstat(from)
	switch {
	case err != nil:
		return Explain(err, "from", from)
	case from == "/":
		return fault.InvalidField("from", "the root folder cannot be moved")
	case ofKernel(from):
		return fault.New(api.CodeDenied, "%s cannot be moved: it is not on a disk, the kernel shows it", from)
	case src.IsDir() && strings.HasPrefix(to, from+"/"):
		return fault.InvalidField("to", "%s lies inside %s", to, from)
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
	switch err := rename(from, to, overwrite); {
	case errors.Is(err, syscall.EXDEV) && src.Mode().IsRegular():
		return moveAcross(from, to, src)
	case errors.Is(err, syscall.EXDEV):
		return fault.Wrap(err, api.CodeUnsupported, "%s and %s are on different file systems", from, to).
			WithHint("copy it with a command: mv %s %s", from, to)
	case errors.Is(err, syscall.EINVAL): // through a link
		return fault.InvalidField("to", "%s lies inside %s", to, from)
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		return fault.Wrap(err, api.CodeConflict, "%s cannot be replaced by %s", to, from).
			WithHint("a file replaces a file, a folder an empty folder: remove what is there first")
	default:
		return Explain(err, "to", to)
	}
}

func rename(from, to string, overwrite bool) error {
	if !overwrite {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
			return err
		}
	}
	return unix.Rename(from, to) // os.Rename would not replace an empty folder
}

// moveAcross moves a file to another file system, as mv does.
func moveAcross(from, to string, src fs.FileInfo) error {
	f, err := Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := Write(to, f, Options{Perm: src.Mode() & (fs.ModePerm | fs.ModeSticky), Force: true}); err != nil {
		return err
	}
	if st, ok := src.Sys().(*syscall.Stat_t); ok {
		err = os.Lchown(to, int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = os.Chtimes(to, src.ModTime(), src.ModTime())
	}
	if err != nil {
		return Explain(err, "to", to)
	}
	return Explain(os.Remove(from), "from", from)
}
