package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
)

// readFile streams a file, or the range of it that was asked for.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		f, err := g.ReadFile(ctx, path, singleRange(r))
		if err != nil {
			return err
		}
		defer f.Body.Close()
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("X-Content-Type-Options", "nosniff") // the content is the sandbox's: no browser is to run it
		h.Set("Content-Disposition", "attachment")
		h.Set("Cache-Control", "no-store")
		h.Set("Accept-Ranges", "bytes")
		if f.Size >= 0 {
			h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
		}
		if !f.ModTime.IsZero() {
			h.Set("Last-Modified", f.ModTime.UTC().Format(http.TimeFormat))
		}
		status := http.StatusOK
		if f.Partial {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", f.Start, f.Start+f.Size-1, f.Total))
			status = http.StatusPartialContent
		}
		w.WriteHeader(status)
		if r.Method == http.MethodHead {
			return nil
		}
		return send(w, f.Body, f.Size)
	})
}

// send copies a file's content, exactly size bytes unless that is negative.
// When it breaks off, so does the connection: a short body must not look whole.
func send(w http.ResponseWriter, from io.Reader, size int64) error {
	rc := http.NewResponseController(w)
	buf := make([]byte, 256<<10)
	for sent := int64(0); sent != size; {
		chunk := buf
		if size >= 0 {
			chunk = buf[:min(int64(len(buf)), size-sent)]
		}
		n, err := from.Read(chunk)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(streamStall))
			if _, werr := w.Write(chunk[:n]); werr != nil {
				return http.ErrAbortHandler // the client is gone
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF) && (size < 0 || sent == size):
			return nil
		case err != nil:
			return fmt.Errorf("reading a file from the guest: %w", err)
		}
	}
	return nil
}

// singleRange gives the Range header when it asks for one range of bytes. For
// anything else the whole file is a permitted answer.
func singleRange(r *http.Request) string {
	v := r.Header.Get("Range")
	if !strings.HasPrefix(v, "bytes=") || strings.Contains(v, ",") {
		return ""
	}
	return v
}

// writeFile streams the body into a file of any size. Parents are made, and
// the file is there whole or not at all.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) error {
	body := flowing{http.NewResponseController(w), r.Body}
	err := s.upload(w, r, body)
	if err != nil {
		drain(body)
	}
	return err
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, body io.Reader) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	mode := q.Get("mode")
	if mode != "" {
		if n, err := strconv.ParseUint(mode, 8, 32); err != nil || n > 0o7777 {
			return fault.InvalidField("mode", "mode must be octal, as in 0644, but is %s", shown(mode))
		}
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		res, err := g.WriteFile(ctx, path, mode, body)
		if err != nil {
			return err
		}
		return ok(w, res)
	})
}

// maxDrain is how much of an upload that failed is still taken in.
const maxDrain = 256 << 20

// drain takes in the rest of an upload that was refused: many clients read no
// answer while they are still sending.
func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, maxDrain) }

func (s *Server) removeFile(w http.ResponseWriter, r *http.Request) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	recursive, err := truth(q.Get("recursive"), "recursive")
	if err != nil {
		return err
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		if err := g.RemoveFile(ctx, path, recursive); err != nil {
			return err
		}
		return noContent(w)
	})
}

func truth(v, field string) (bool, error) {
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fault.InvalidField(field, "%s must be true or false, but is %s", field, shown(v))
	}
	return b, nil
}

func (s *Server) statFile(w http.ResponseWriter, r *http.Request) error {
	path, err := queryPath(r)
	if err != nil {
		return err
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		info, err := g.Stat(ctx, path)
		if err != nil {
			return err
		}
		return ok(w, info)
	})
}

// listDir lists "/" when no path is given, as published clients expect.
func (s *Server) listDir(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	path := "/"
	if q.Has("path") {
		if path, err = absolute("path", q.Get("path")); err != nil {
			return err
		}
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		list, err := g.ListDir(ctx, path)
		if err != nil {
			return err
		}
		if list.Entries == nil {
			list.Entries = []api.FileInfo{}
		}
		return ok(w, list)
	})
}

func (s *Server) makeDir(w http.ResponseWriter, r *http.Request) error {
	var req api.MkdirRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	path, err := absolute("path", req.Path)
	if err != nil {
		return err
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		if err := g.Mkdir(ctx, path); err != nil {
			return err
		}
		return noContent(w)
	})
}

func (s *Server) moveFile(w http.ResponseWriter, r *http.Request) error {
	var req api.MoveRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	var err error
	if req.From, err = absolute("from", req.From); err != nil {
		return err
	}
	if req.To, err = absolute("to", req.To); err != nil {
		return err
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		if err := g.Move(ctx, req); err != nil {
			return err
		}
		return noContent(w)
	})
}
