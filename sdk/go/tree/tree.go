// Package tree makes tar streams of folders, and folders of tar streams. Both
// ends of a copy use it: the SDK on this machine, and the agent in the sandbox.
//
// Files, folders and symbolic links travel, with their permissions and times;
// everything else is left out. Nothing is read or written outside of the folder,
// whatever links lie in it and whatever names are in the stream.
package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Options say how a folder is packed or unpacked. The zero value trusts the
// stream as far as the folder goes.
type Options struct {
	// Foreign is for a stream of somebody else's: links that lead out of the
	// folder, hard links, and bits such as set-user-id are left out.
	Foreign bool
	// LeftOut is told of what does not travel.
	LeftOut func(name, why string)
	// Progress is told what was done, after every piece.
	Progress func(Done)
}

// Done is what was packed or unpacked.
type Done struct {
	Files, Folders, Links int
	Bytes                 int64 // of the files
	LeftOut               int
}

// Error says at which entry it broke off, and what was done by then.
type Error struct {
	Name string
	Done Done
	Err  error
}

func (e *Error) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

const (
	piece      = 256 << 10
	batch      = 256     // entries of a folder that are read at once
	maxFolders = 100_000 // whose times and permissions are set in the end
	maxName    = 4096
)

// ErrFormat is in the error of a stream that is no tar stream, or ends early.
var ErrFormat = errors.New("not a whole tar stream")

type work struct {
	Options
	root *os.Root
	done Done
	buf  []byte
}

func newWork(root *os.Root, o Options) *work {
	return &work{Options: o, root: root, buf: make([]byte, piece)}
}

func (w *work) leaveOut(name, why string) {
	w.done.LeftOut++
	if w.Options.LeftOut != nil {
		w.Options.LeftOut(name, why)
	}
}

func (w *work) progress() {
	if w.Progress != nil {
		w.Progress(w.done)
	}
}

func (w *work) fail(name string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{name, w.done, err}
}

// copy copies exactly n bytes of a file.
func (w *work) copy(to io.Writer, from io.Reader, n int64) error {
	for n > 0 {
		chunk := w.buf[:min(n, int64(len(w.buf)))]
		m, err := io.ReadFull(from, chunk)
		if m > 0 {
			if _, werr := to.Write(chunk[:m]); werr != nil {
				return werr
			}
			n -= int64(m)
			w.done.Bytes += int64(m)
			w.progress()
		}
		if errors.Is(err, io.EOF) || err == nil && m == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Pack writes all that is in a folder as a tar stream, a folder before what is
// in it.
func Pack(to io.Writer, root *os.Root, o Options) (Done, error) {
	w := newWork(root, o)
	tw := tar.NewWriter(to)
	err := w.packFolder(tw, ".")
	if err == nil {
		err = tw.Close()
	}
	return w.done, err
}

func (w *work) packFolder(tw *tar.Writer, name string) error {
	f, err := w.root.Open(name)
	if err != nil {
		return w.fail(name, err)
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(batch)
		for _, e := range entries {
			if err := w.pack(tw, path.Join(name, e.Name())); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return w.fail(name, err)
		}
	}
}

func (w *work) pack(tw *tar.Writer, name string) error {
	info, err := w.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has gone since the folder was read
	}
	if err != nil {
		return w.fail(name, err)
	}
	h := &tar.Header{Format: tar.FormatPAX, Name: name, ModTime: info.ModTime(), Mode: int64(info.Mode().Perm())}
	for bit, flag := range special {
		if info.Mode()&flag != 0 {
			h.Mode |= bit
		}
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
		if err := tw.WriteHeader(h); err != nil {
			return w.fail(name, err)
		}
		w.done.Folders++
		return w.packFolder(tw, name)
	case mode&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = w.root.Readlink(name); err == nil {
			err = tw.WriteHeader(h)
		}
		w.done.Links++
		return w.fail(name, err)
	case mode.IsRegular():
		return w.packFile(tw, name, info, h)
	}
	w.leaveOut(name, "it is no file, folder or link")
	return nil
}

func (w *work) packFile(tw *tar.Writer, name string, info fs.FileInfo, h *tar.Header) error {
	// What was a file may be a FIFO by now, which must not be waited for.
	f, err := w.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return w.fail(name, err)
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return w.fail(name, err)
	}
	if !os.SameFile(info, now) {
		w.leaveOut(name, "it was replaced while it was read")
		return nil
	}
	h.Typeflag, h.Size = tar.TypeReg, now.Size()
	if err := tw.WriteHeader(h); err != nil {
		return w.fail(name, err)
	}
	if err := w.copy(tw, f, h.Size); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it became shorter while it was read")
		}
		return w.fail(name, err)
	}
	w.done.Files++
	w.progress()
	return nil
}

var special = map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky}

func (w *work) mode(h *tar.Header) fs.FileMode {
	m := fs.FileMode(h.Mode & 0o777)
	if !w.Foreign {
		for bit, flag := range special {
			if h.Mode&bit != 0 {
				m |= flag
			}
		}
	}
	return m
}

// folder is one whose looks are set when all is in it.
type folder struct {
	name  string
	mode  fs.FileMode
	mtime time.Time
}

// Unpack makes what is in a tar stream in a folder. A file or link takes the
// place of one that is there; what is in folders besides stays. Each file is
// there whole or as it was.
func Unpack(from io.Reader, root *os.Root, o Options) (Done, error) {
	w := newWork(root, o)
	source := &source{Reader: from}
	tr := tar.NewReader(source)
	var folders []folder
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) && !source.ended {
			break
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: %w", ErrFormat, err)
			}
			return w.done, w.fail("the stream", err)
		}
		name := path.Clean(strings.TrimLeft(h.Name, "/"))
		if !filepath.IsLocal(name) || len(name) > maxName || strings.Contains(name, "\x00") {
			return w.done, w.fail(fmt.Sprintf("%.200q", h.Name), fmt.Errorf("%w: the name leads out of the folder", ErrFormat))
		}
		if err := w.unpack(tr, h, name); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: %w", ErrFormat, err)
			}
			return w.done, w.fail(name, err)
		}
		if h.Typeflag == tar.TypeDir && name != "." && len(folders) < maxFolders {
			folders = append(folders, folder{name, w.mode(h), h.ModTime})
		}
	}
	for i := len(folders) - 1; i >= 0; i-- {
		f := folders[i]
		if info, err := root.Lstat(f.name); err != nil || !info.IsDir() {
			continue // a link that was there before, or gone again
		}
		if err := root.Chmod(f.name, f.mode); err != nil {
			return w.done, w.fail(f.name, err)
		}
		if err := root.Chtimes(f.name, f.mtime, f.mtime); err != nil {
			return w.done, w.fail(f.name, err)
		}
	}
	return w.done, nil
}

// source tells whether all was read. A whole tar stream says where it ends, so
// that its reader need not find out.
type source struct {
	io.Reader
	ended bool
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.ended = n == 0 && errors.Is(err, io.EOF)
	return n, err
}

func (w *work) unpack(tr *tar.Reader, h *tar.Header, name string) error {
	if name == "." {
		return nil
	}
	above := path.Dir(name)
	if w.Foreign && !w.plain(above) {
		w.leaveOut(name, "a link leads there")
		return nil
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if w.Foreign && !w.plain(name) {
			w.leaveOut(name, "a link is there")
			return nil
		}
		if err := w.root.MkdirAll(name, 0o755); err != nil {
			return err
		}
		w.done.Folders++
		return nil
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		w.leaveOut(name, "it is no file, folder or link")
		return nil
	}
	if err := w.root.MkdirAll(above, 0o755); err != nil {
		return err
	}
	if info, err := w.root.Lstat(name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "replace", Path: name, Err: syscall.EISDIR}
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		if w.Foreign && !staysInside(above, h.Linkname) {
			w.leaveOut(name, "it is a link that leads out of the folder")
			return nil
		}
		if err := w.replace(name, func(tmp string) error { return w.root.Symlink(h.Linkname, tmp) }); err != nil {
			return err
		}
		w.done.Links++
		return nil
	case tar.TypeLink:
		old := path.Clean(strings.TrimLeft(h.Linkname, "/"))
		if w.Foreign || !filepath.IsLocal(old) {
			w.leaveOut(name, "it is a hard link")
			return nil
		}
		if err := w.replace(name, func(tmp string) error { return w.root.Link(old, tmp) }); err != nil {
			return err
		}
		w.done.Links++
		return nil
	}
	err := w.replace(name, func(tmp string) error { return w.unpackFile(tr, h, tmp) })
	if err == nil {
		w.done.Files++
		w.progress()
	}
	return err
}

func (w *work) unpackFile(tr *tar.Reader, h *tar.Header, tmp string) error {
	f, err := w.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = w.copy(f, tr, h.Size)
	if err == nil {
		err = f.Chmod(w.mode(h))
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = w.root.Chtimes(tmp, h.ModTime, h.ModTime)
	}
	return err
}

// How the names begin under which something is made before it takes its place: of
// one that is new there, and of one that replaces what is there.
const (
	TempNew = ".pandastack-new-"
	TempOld = ".pandastack-old-"
)

// replace has something made beside a name and puts it in its place.
func (w *work) replace(name string, make func(tmp string) error) error {
	prefix := TempNew
	if _, err := w.root.Lstat(name); err == nil {
		prefix = TempOld
	}
	tmp := path.Join(path.Dir(name), fmt.Sprintf("%s%d.part", prefix, time.Now().UnixNano()))
	before := w.done.Bytes
	err := make(tmp)
	if err == nil {
		err = w.root.Rename(tmp, name)
	}
	if err != nil {
		w.done.Bytes = before
		_ = w.root.Remove(tmp) // the reason is in err
	}
	return err
}

// plain tells whether a path has no links in it, as far as it exists.
func (w *work) plain(name string) bool {
	if name == "." {
		return true
	}
	if !w.plain(path.Dir(name)) {
		return false
	}
	info, err := w.root.Lstat(name)
	return err != nil || info.Mode()&fs.ModeSymlink == 0
}

// staysInside tells whether a link in a folder leads to somewhere below the
// root. Above stands no link; and behind a name, ".." may lead elsewhere than it
// looks.
func staysInside(above, target string) bool {
	if target == "" || path.IsAbs(target) {
		return false
	}
	named := false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == ".." && named:
			return false
		case part != ".." && part != "." && part != "":
			named = true
		}
	}
	return filepath.IsLocal(path.Join(above, target))
}
