package guestd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestd/files"
)

func pathOf(r *http.Request) (string, error) { return files.Clean("path", r.URL.Query().Get("path")) }

func (a *Agent) readFile(w http.ResponseWriter, r *http.Request) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	f, size, err := files.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if size < 0 {
		return copyOut(w, f)
	}
	start, length, partial, ok := files.ParseRange(r.Header.Get("Range"), size)
	if !ok {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return withStatus{fault.InvalidField("range", "the range begins behind the end of the file, which has %d bytes", size),
			http.StatusRequestedRangeNotSatisfiable}
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	if !partial {
		return copyOut(w, io.LimitReader(f, length))
	}
	if _, err := f.Seek(start, io.SeekStart); err != nil {
		return files.Explain(err, "path", path)
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, start+length-1, size))
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

func (a *Agent) writeFile(w http.ResponseWriter, r *http.Request) error {
	raw := r.URL.Query().Get("path")
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	if raw[len(raw)-1] == '/' {
		path += "/" // it says that a folder was meant
	}
	perm, force := fs.FileMode(0o644), false
	if s := r.URL.Query().Get("mode"); s != "" {
		n, err := strconv.ParseUint(s, 8, 32)
		if err != nil || n > 0o7777 {
			return fault.InvalidField("mode", "mode must be octal, as 0644, not %q", s)
		}
		perm, force = modeOf(uint32(n)), true
	}
	n, err := files.Write(path, r.Body, perm, force)
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

func (a *Agent) removeFile(w http.ResponseWriter, r *http.Request) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	if err := files.Remove(path, r.URL.Query().Get("recursive") == "1"); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) statFile(w http.ResponseWriter, r *http.Request) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	info, err := files.Stat(path)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, info)
}

func (a *Agent) listDir(w http.ResponseWriter, r *http.Request) error {
	path, err := pathOf(r)
	if err != nil {
		return err
	}
	list, err := files.List(path)
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
	if err := files.MakeDir(path); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
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
	if err := files.Move(from, to, req.Overwrite); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
