package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// ofPath serves a route whose query names a path. It need not be UTF-8: any
// byte but NUL may be given as %XX.
func ofPath(h func(w http.ResponseWriter, r *http.Request, path string, q url.Values) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := query(r)
		if err != nil {
			return err
		}
		path, err := absolute("path", q.Get("path"))
		if err != nil {
			return err
		}
		return h(w, r, path, q)
	}
}

// readFile streams a file, or the range of it that was asked for.
func (s *Server) readFile(w http.ResponseWriter, r *http.Request, path string, _ url.Values) error {
	return s.sendFile(w, r, path, "attachment")
}

func (s *Server) sendFile(w http.ResponseWriter, r *http.Request, path, disposition string) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		f, err := g.ReadFile(ctx, path, singleRange(r))
		if err != nil {
			return outOfRange(err)
		}
		defer f.Body.Close()
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("X-Content-Type-Options", "nosniff") // the content is the sandbox's: no browser is to run it
		h.Set("Content-Disposition", disposition)
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

// outOfRange gives a range that begins behind the end of a file its status.
func outOfRange(err error) error {
	var behind *guest.RangeError
	if !errors.As(err, &behind) {
		return err
	}
	return &withStatus{err, http.StatusRequestedRangeNotSatisfiable, "Content-Range", fmt.Sprintf("bytes */%d", behind.Size)}
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

// readTar streams what is in a folder.
func (s *Server) readTar(w http.ResponseWriter, r *http.Request, path string, _ url.Values) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		stream, err := g.ReadTar(ctx, path)
		if err != nil {
			return err
		}
		defer stream.Close()
		h := w.Header()
		h.Set("Content-Type", "application/x-tar")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Disposition", "attachment")
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodHead {
			return nil
		}
		return send(w, stream, -1)
	})
}

// writeTar makes what is in a tar stream in a folder.
func (s *Server) writeTar(w http.ResponseWriter, r *http.Request) error {
	body := flowing{http.NewResponseController(w), r.Body}
	err := ofPath(func(w http.ResponseWriter, r *http.Request, path string, _ url.Values) error {
		return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
			res, err := g.WriteTar(ctx, path, body)
			return answer(w, res, err)
		})
	})(w, r)
	if err != nil {
		drain(body)
	}
	return err
}

// writeFile streams the body into a file of any size. Parents are made, and
// the file is there whole or not at all.
func (s *Server) writeFile(w http.ResponseWriter, r *http.Request) error {
	return s.takeIn(w, r, guest.WriteOptions{})
}

// appendFile adds the body to a file. It is a method of its own because HTTP
// clients may send a PUT again by themselves.
func (s *Server) appendFile(w http.ResponseWriter, r *http.Request) error {
	return s.takeIn(w, r, guest.WriteOptions{Append: true})
}

func (s *Server) takeIn(w http.ResponseWriter, r *http.Request, o guest.WriteOptions) error {
	body := flowing{http.NewResponseController(w), r.Body}
	err := s.upload(w, r, o, body)
	if err != nil {
		drain(body)
	}
	return err
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, o guest.WriteOptions, body io.Reader) error {
	return ofPath(func(w http.ResponseWriter, r *http.Request, path string, q url.Values) error {
		if o.Mode = q.Get("mode"); o.Mode != "" {
			if n, err := strconv.ParseUint(o.Mode, 8, 32); err != nil || n > 0o7777 {
				return fault.InvalidField("mode", "mode must be octal, as in 0644, but is %s", shown(o.Mode))
			}
		}
		return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
			res, err := g.WriteFile(ctx, path, o, body)
			return answer(w, res, err)
		})
	})(w, r)
}

// maxDrain is how much of an upload that failed is still taken in.
const maxDrain = 256 << 20

// drain takes in the rest of an upload that was refused: many clients read no
// answer while they are still sending.
func drain(body io.Reader) { _, _ = io.CopyN(io.Discard, body, maxDrain) }

func (s *Server) removeFile(w http.ResponseWriter, r *http.Request, path string, q url.Values) error {
	recursive, err := truth(q, "recursive")
	if err != nil {
		return err
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.RemoveFile(ctx, path, recursive))
	})
}

func (s *Server) statFile(w http.ResponseWriter, r *http.Request, path string, _ url.Values) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		info, err := g.Stat(ctx, path)
		return answer(w, info, err)
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
	limit, err := upTo(q, "limit", 0, guestapi.MaxEntries)
	if err != nil {
		return err
	}
	after := q.Get("after")
	if len(after) > maxPath || strings.ContainsAny(after, "/\x00") {
		return fault.InvalidField("after", "after must be the name of an entry, but is %s", shown(after))
	}
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		list, err := g.ListDir(ctx, path, after, int(limit))
		list.Entries = orEmpty(list.Entries)
		return answer(w, list, err)
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
		return done(w, g.Mkdir(ctx, path))
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
		return done(w, g.Move(ctx, req))
	})
}
