package guestd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/files"
	"github.com/pandastack/pandastack/sdk/go/tree"
)

// withPath serves a route whose query names a path.
func withPath(h func(w http.ResponseWriter, r *http.Request, path string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		path, err := files.Clean("path", r.URL.Query().Get("path"))
		if err != nil {
			return err
		}
		return h(w, r, path)
	}
}

func (a *Agent) readFile(w http.ResponseWriter, r *http.Request, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if f.Size < 0 {
		return copyOut(w, f)
	}
	start, length, partial, ok := files.ParseRange(r.Header.Get("Range"), f.Size)
	if !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", f.Size))
		return withStatus{fault.InvalidField("Range", "the range begins behind the end of the file, which has %d bytes", f.Size),
			http.StatusRequestedRangeNotSatisfiable}
	}
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", f.ModTime.UTC().Format(http.TimeFormat))
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	if !partial {
		return copyOut(w, io.LimitReader(f, length))
	}
	if _, err := f.Seek(start, io.SeekStart); err != nil {
		return files.Explain(err, "path", path)
	}
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+length-1, f.Size))
	w.WriteHeader(http.StatusPartialContent)
	return copyOut(w, io.LimitReader(f, length))
}

// copyOut sends a file. An error in its midst breaks the stream, so that half
// a file is never taken for the whole.
func copyOut(w http.ResponseWriter, r io.Reader) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, make([]byte, 256<<10)); err != nil {
		return errors.Join(err, http.ErrAbortHandler)
	}
	return nil
}

func (a *Agent) writeFile(w http.ResponseWriter, r *http.Request, path string) error {
	q := r.URL.Query()
	o := files.Options{Append: q.Get("append") == "1"}
	if s := q.Get("mode"); s != "" {
		n, err := strconv.ParseUint(s, 8, 32)
		if err != nil || n > 0o7777 {
			return fault.InvalidField("mode", "mode must be octal, as 0644, not %q", s)
		}
		o.Perm, o.Force = modeOf(uint32(n)), true
	}
	named := path
	if strings.HasSuffix(q.Get("path"), "/") {
		named += "/" // it says that a folder was meant
	}
	n, err := files.Write(named, r.Body, o)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, api.WriteResult{Path: path, Bytes: n})
}

func modeOf(n uint32) fs.FileMode {
	mode := fs.FileMode(n & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			mode |= flag
		}
	}
	return mode
}

// readTar sends what is in a folder.
func (a *Agent) readTar(w http.ResponseWriter, _ *http.Request, path string) error {
	root, err := openFolder(path)
	if err != nil {
		return err
	}
	defer root.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	if _, err := tree.Pack(struct{ io.Writer }{w}, root, tree.Options{}); err != nil {
		a.log.Warn("a folder could not be sent", "error", short(err.Error()))
		return errors.Join(err, http.ErrAbortHandler)
	}
	return nil
}

// writeTar makes what comes in a folder, and says what it has made when it
// cannot make it all.
func (a *Agent) writeTar(w http.ResponseWriter, r *http.Request, path string) error {
	if err := files.MakeDir(path); err != nil {
		return err
	}
	root, err := openFolder(path)
	if err != nil {
		return err
	}
	defer root.Close()
	done, err := tree.Unpack(r.Body, root, tree.Options{})
	if err != nil {
		return brokenOff(err, path)
	}
	return writeJSON(w, http.StatusOK, api.TarResult{
		Path: path, Files: done.Files, Folders: done.Folders, Links: done.Links, Bytes: done.Bytes, LeftOut: done.LeftOut,
	})
}

func openFolder(path string) (*os.Root, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return nil, fault.InvalidField("path", "%s is a file, not a folder", path)
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(path)
	}
	return root, files.Explain(err, "path", path)
}

// brokenOff says why a tar stream was not unpacked to its end, and what was.
func brokenOff(err error, dir string) error {
	var at *tree.Error
	if !errors.As(err, &at) {
		return err
	}
	where := filepath.Join(dir, at.Name)
	var f *fault.Error
	switch explained := files.Explain(at.Err, "path", where); {
	case errors.Is(err, tree.ErrFormat):
		f = fault.Wrap(err, api.CodeInvalid, "the stream cannot be unpacked: %v", err)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		f = fault.Wrap(err, api.CodeConflict, "%s is a file where a folder should be, or the other way round", where)
	case strings.Contains(at.Err.Error(), "path escapes from parent"): // of os.Root, which has no name for it
		f = fault.Wrap(err, api.CodeConflict, "a link at or above %s leads out of %s", where, dir)
	case !errors.As(explained, &f):
		return err
	}
	e := *f
	e.Message = fmt.Sprintf("%s; by then %d files with %d bytes were written", e.Message, at.Done.Files, at.Done.Bytes)
	return &e
}

func (a *Agent) removeFile(w http.ResponseWriter, r *http.Request, path string) error {
	return noContent(w, files.Remove(path, r.URL.Query().Get("recursive") == "1"))
}

func (a *Agent) statFile(w http.ResponseWriter, _ *http.Request, path string) error {
	info, err := files.Stat(path, child.ReadNames(a.cfg.Etc))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, info)
}

func (a *Agent) listDir(w http.ResponseWriter, r *http.Request, path string) error {
	q := r.URL.Query()
	limit := 0
	if s := q.Get("limit"); s != "" {
		var err error
		if limit, err = strconv.Atoi(s); err != nil || limit < 0 {
			return fault.InvalidField("limit", "limit must be a whole number, not %q", s)
		}
	}
	list, err := files.List(path, q.Get("after"), limit, child.ReadNames(a.cfg.Etc))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

func (a *Agent) makeDir(w http.ResponseWriter, r *http.Request) error {
	var req api.MkdirRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	path, err := files.Clean("path", req.Path)
	if err != nil {
		return err
	}
	return noContent(w, files.MakeDir(path))
}

func (a *Agent) moveFile(w http.ResponseWriter, r *http.Request) error {
	var req api.MoveRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	from, err := files.Clean("from", req.From)
	if err != nil {
		return err
	}
	to, err := files.Clean("to", req.To)
	if err != nil {
		return err
	}
	return noContent(w, files.Move(from, to, req.Overwrite))
}
