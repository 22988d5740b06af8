package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/sdk/go/tree"
)

// Options say how a file is written. The zero value replaces it.
type Options struct {
	Perm   fs.FileMode // of a new file, 0644 when 0
	Force  bool        // an old file gets Perm, too, even 0
	Append bool        // to what is there
}

func (o Options) perm() fs.FileMode {
	if o.Perm == 0 && !o.Force {
		return 0o644
	}
	return o.Perm
}

// Write replaces or makes a file with what r gives, and the folders above it,
// and returns how many bytes that were. Until all has come the old file stays as
// it is; when r fails it stays for good. A file that exists keeps its mode and
// owner; other names of it, hard links, keep the old content.
func Write(path string, r io.Reader, o Options) (written int64, err error) {
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
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return 0, Explain(err, "path", path)
	}
	if o.Append && old != nil {
		written, err = extend(target, r, o)
	} else {
		written, err = replace(target, old, r, o)
	}
	return written, Explain(err, "path", path)
}

// replace writes beside the file and then takes its place.
func replace(target string, old fs.FileInfo, r io.Reader, o Options) (written int64, err error) {
	prefix := tree.TempNew
	if old != nil {
		prefix = tree.TempOld
	}
	tmp, err := os.CreateTemp(filepath.Dir(target), prefix+"*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			written = 0
			_ = os.Remove(tmp.Name())
		}
	}()
	written, err = pour(tmp, r)
	if err == nil {
		err = dress(tmp, old, o)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), target)
	}
	return written, err
}

// extend appends to a file. When not all comes, what had come is taken away
// again, unless others have appended to it meanwhile.
func extend(target string, r io.Reader, o Options) (written int64, err error) {
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	before, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if err := regular(before.Mode(), target); err != nil { // it has become something else
		return 0, err
	}
	if written, err = pour(f, r); err == nil {
		if o.Force {
			err = f.Chmod(o.Perm)
		}
		return written, err
	}
	if after, statErr := f.Stat(); statErr == nil && after.Size() == before.Size()+written {
		_ = f.Truncate(before.Size())
	}
	return 0, err
}

// pour copies through a buffer of ours; the file's own ReadFrom would not.
func pour(f *os.File, r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{f}, r, make([]byte, 256<<10))
}

// dress gives the new file the looks of the one that it replaces.
func dress(tmp *os.File, old fs.FileInfo, o Options) error {
	perm := o.perm()
	if old != nil {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			if err := tmp.Chown(int(st.Uid), int(st.Gid)); err != nil {
				return err
			}
		}
		if !o.Force {
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
	return "", Explain(syscall.ELOOP, "path", path)
}
