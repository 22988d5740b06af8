package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// File is the content of a file in the guest. Close Body.
type File struct {
	Body    io.ReadCloser
	Size    int64 // of this answer, -1 when the guest did not say
	Start   int64 // offset of the first byte
	Total   int64 // size of the whole file, -1 when the guest did not say
	Partial bool  // a range of it
	ModTime time.Time
}

// ReadFile opens a file, or the part of it that the Range header asks for.
func (c *Client) ReadFile(ctx context.Context, path, rangeHeader string) (*File, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stall := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	in := call{method: http.MethodGet, path: "/files", query: url.Values{"path": {path}}}
	if rangeHeader != "" {
		in.header = http.Header{"Range": {rangeHeader}}
	}
	resp, done, err := c.send(ctx, in)
	if err != nil {
		stall.Stop()
		cancel(nil)
		return nil, err
	}
	stall.Stop() // until somebody reads
	body := &fileBody{client: c, ctx: ctx, cancel: cancel, stall: stall, body: resp.Body, done: done}
	f := &File{Body: body, Size: resp.ContentLength, Total: resp.ContentLength}
	if resp.StatusCode == http.StatusPartialContent {
		f.Partial = true
		if f.Start, f.Total, err = contentRange(resp.Header.Get("Content-Range")); err != nil {
			body.Close()
			return nil, nonsense("%w", err)
		}
	}
	if t, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		f.ModTime = t
	}
	return f, nil
}

// trees is the version of the protocol that brought them.
const trees = 5

// ReadTar opens a tar stream of what is in a folder.
func (c *Client) ReadTar(ctx context.Context, path string) (io.ReadCloser, error) {
	if err := c.needs(trees, "send folders"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stall := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	resp, done, err := c.send(ctx, call{method: http.MethodGet, path: "/files/tar", query: url.Values{"path": {path}}})
	stall.Stop() // until somebody reads
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &fileBody{client: c, ctx: ctx, cancel: cancel, stall: stall, body: resp.Body, done: done}, nil
}

// WriteTar makes what is in a tar stream in a folder.
func (c *Client) WriteTar(ctx context.Context, path string, r io.Reader) (api.TarResult, error) {
	var out api.TarResult
	if err := c.needs(trees, "take folders"); err != nil {
		return out, err
	}
	if err := c.upload(ctx, call{method: http.MethodPut, path: "/files/tar", query: url.Values{"path": {path}}}, r, &out); err != nil {
		return api.TarResult{}, err
	}
	return api.TarResult{
		Path: cut(out.Path, maxPath), Files: atLeast0(out.Files), Folders: atLeast0(out.Folders), Links: atLeast0(out.Links),
		Bytes: atLeast0(out.Bytes), LeftOut: atLeast0(out.LeftOut),
	}, nil
}

// RangeError is in the error of a range that begins behind the end of a file.
type RangeError struct{ Size int64 } // of the file

func (e *RangeError) Error() string { return fmt.Sprintf("the file has %d bytes", e.Size) }

func rangeError(e *fault.Error, header string) error {
	rest, ok := strings.CutPrefix(header, "bytes */")
	size, err := strconv.ParseInt(rest, 10, 64)
	if !ok || err != nil || size < 0 {
		return nonsense("a refused range of %q", cut(header, maxName))
	}
	e.Err = &RangeError{size}
	return e
}

// contentRange reads "bytes 10-19/100".
func contentRange(s string) (start, total int64, err error) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(span, "-")
	a, err1 := strconv.ParseInt(first, 10, 64)
	b, err2 := strconv.ParseInt(last, 10, 64)
	n, err3 := strconv.ParseInt(size, 10, 64)
	if !ok || !ok2 || !ok3 || errors.Join(err1, err2, err3) != nil || a < 0 || b < a || n <= b {
		return 0, 0, fmt.Errorf("content range %q", cut(s, maxName))
	}
	return a, n, nil
}

var errStalled = fault.New(api.CodeTimeout, "the transfer has not moved for %s", stallTime)

// fileBody reads a file with a limit on how long it may stand still.
type fileBody struct {
	client *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  *time.Timer
	body   io.Reader
	done   func()
	once   sync.Once
}

func (b *fileBody) Read(p []byte) (int, error) {
	b.stall.Reset(stallTime)
	n, err := b.body.Read(p)
	b.stall.Stop()
	if err != nil && err != io.EOF {
		err = b.client.broken(b.ctx, err)
	}
	return n, err
}

func (b *fileBody) Close() error {
	b.once.Do(func() {
		b.stall.Stop()
		b.cancel(context.Canceled)
		b.done()
	})
	return nil
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	Mode   string // octal, "" for that of the old file or 0644
	Append bool   // to what is there
}

// WriteFile writes a file whole: it is there with all of r, or as it was.
func (c *Client) WriteFile(ctx context.Context, path string, o WriteOptions, r io.Reader) (api.WriteResult, error) {
	var out api.WriteResult
	q := url.Values{"path": {path}}
	if o.Mode != "" {
		q.Set("mode", o.Mode)
	}
	if o.Append {
		q.Set("append", "1")
	}
	if err := c.upload(ctx, call{method: http.MethodPut, path: "/files", query: q}, r, &out); err != nil {
		return api.WriteResult{}, err
	}
	out.Path = cut(out.Path, maxPath)
	out.Bytes = atLeast0(out.Bytes)
	return out, nil
}

const longCall = 24 * time.Hour // for one whose length is not ours to say

// upload sends r as the body of a call. How long the source takes is the
// caller's affair; the guest must not stand still for long.
func (c *Client) upload(ctx context.Context, in call, r io.Reader, out any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(stallTime, func() { cancel(errStalled) })
	defer stall.Stop()
	src := &source{r: r, stall: stall}
	in.body, in.time = src, longCall
	err := c.do(ctx, in, out)
	if serr := src.failed(); serr != nil {
		return serr // ours, not the guest's
	}
	return err
}

// source passes a reader on, stops the clock while the reader is waited for,
// if there is one, and keeps its error.
type source struct {
	r     io.Reader
	stall *time.Timer
	mu    sync.Mutex
	err   error
}

func (s *source) Read(p []byte) (int, error) {
	if s.stall != nil {
		s.stall.Stop()
		defer s.stall.Reset(stallTime)
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		err = &sourceError{err}
	}
	return n, err
}

// sourceError marks the error of an upload's source among those of the link.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

func ofSource(err error) bool {
	var s *sourceError
	return errors.As(err, &s)
}

func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// RemoveFile removes a file, or a folder with all in it when recursive.
func (c *Client) RemoveFile(ctx context.Context, path string, recursive bool) error {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "1")
	}
	return c.do(ctx, call{method: http.MethodDelete, path: "/files", query: q, time: slowCallTime}, nil)
}

// Stat describes a file.
func (c *Client) Stat(ctx context.Context, path string) (api.FileInfo, error) {
	var out api.FileInfo
	if err := c.do(ctx, call{method: http.MethodGet, path: "/files/stat", query: url.Values{"path": {path}}}, &out); err != nil {
		return api.FileInfo{}, err
	}
	if err := checkFile(&out); err != nil {
		return api.FileInfo{}, nonsense("%w", err)
	}
	return out, nil
}

// ListDir lists what comes after a name in a folder, at most limit entries; all
// that fit into one listing when that is 0.
func (c *Client) ListDir(ctx context.Context, path, after string, limit int) (api.DirListing, error) {
	var out api.DirListing
	q := url.Values{"path": {path}, "after": {after}, "limit": {strconv.Itoa(limit)}}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/files/dir", query: q, time: slowCallTime}, &out); err != nil {
		return api.DirListing{}, err
	}
	if len(out.Entries) > guestapi.MaxEntries {
		return api.DirListing{}, nonsense("%d files in a listing", len(out.Entries))
	}
	out.Path = cut(out.Path, maxPath)
	for i := range out.Entries {
		if err := checkFile(&out.Entries[i]); err != nil {
			return api.DirListing{}, nonsense("%w", err)
		}
	}
	return out, nil
}

// Mkdir makes a folder and its parents.
func (c *Client) Mkdir(ctx context.Context, path string) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/files/dir", json: api.MkdirRequest{Path: path}}, nil)
}

// Move renames a file or folder.
func (c *Client) Move(ctx context.Context, req api.MoveRequest) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/files/move", json: req, time: slowCallTime}, nil)
}
