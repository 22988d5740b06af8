package pandastack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	gopath "path"

	"github.com/pandastack/pandastack/api"
)

// FileInfo describes a file or folder in a sandbox.
type FileInfo = api.FileInfo

func pathQuery(path string) url.Values { return url.Values{"path": {path}} }

// Open streams a file. Close it.
func (s *Sandbox) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	res, err := s.client.request(ctx, http.MethodGet, s.path+"/fs", pathQuery(path), nil, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// OpenRange streams a part of a file: length bytes from an offset on, or with a
// length of 0 all that is left; a negative offset counts from the end. Close it.
func (s *Sandbox) OpenRange(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	header := http.Header{}
	switch {
	case offset < 0:
		header.Set("Range", fmt.Sprintf("bytes=%d", offset))
	case length > 0:
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	default:
		header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	res, err := s.client.request(ctx, http.MethodGet, s.path+"/fs", pathQuery(path), nil, header)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// ReadFile reads a whole file.
func (s *Sandbox) ReadFile(ctx context.Context, path string) ([]byte, error) {
	f, err := s.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		return nil, connectionError(ctx, s.client.root, err)
	}
	return raw, nil
}

// WriteFile writes a whole file. Its parents are made.
func (s *Sandbox) WriteFile(ctx context.Context, path string, content []byte) error {
	_, err := s.WriteFrom(ctx, path, bytes.NewReader(content), WriteOptions{})
	return err
}

// WriteOptions say how a file is written. The zero value replaces it and keeps
// its mode, 0644 for a new one.
type WriteOptions struct {
	Mode   fs.FileMode // its permissions, 0 to keep them
	Append bool        // add to what is there
}

// WriteFrom streams a file of any size into the sandbox. It is there whole or
// not at all.
func (s *Sandbox) WriteFrom(ctx context.Context, path string, r io.Reader, o WriteOptions) (api.WriteResult, error) {
	q := pathQuery(path)
	if o.Mode != 0 {
		q.Set("mode", fmt.Sprintf("%04o", o.Mode.Perm()))
	}
	method := http.MethodPut
	if o.Append {
		method = http.MethodPost
	}
	var res api.WriteResult
	err := s.client.send(ctx, method, s.path+"/fs", q, r, &res)
	return res, err
}

// Remove removes a file or an empty folder; with recursive, all in it too.
func (s *Sandbox) Remove(ctx context.Context, path string, recursive bool) error {
	q := pathQuery(path)
	if recursive {
		q.Set("recursive", "1")
	}
	return s.client.call(ctx, http.MethodDelete, s.path+"/fs", q, nil, nil)
}

// Stat describes a file or folder; of a link, the link.
func (s *Sandbox) Stat(ctx context.Context, path string) (FileInfo, error) {
	var info FileInfo
	err := s.client.call(ctx, http.MethodGet, s.path+"/fs/stat", pathQuery(path), nil, &info)
	return named(info, gopath.Dir(path)), err
}

// named gives an entry whose name is not UTF-8 its name, in bytes.
func named(info FileInfo, dir string) FileInfo {
	if info.RawName != nil {
		info.Name = string(info.RawName)
		info.Path = gopath.Join(dir, info.Name)
	}
	return info
}

// Exists tells whether there is something at a path.
func (s *Sandbox) Exists(ctx context.Context, path string) (bool, error) {
	_, err := s.Stat(ctx, path)
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// ReadDir lists a folder of any size, by name.
func (s *Sandbox) ReadDir(ctx context.Context, path string) ([]FileInfo, error) {
	entries := []FileInfo{}
	q := pathQuery(path)
	for {
		var page api.DirListing
		if err := s.client.call(ctx, http.MethodGet, s.path+"/fs/dir", q, nil, &page); err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			entries = append(entries, named(e, path))
		}
		if !page.Truncated || len(page.Entries) == 0 {
			return entries, nil
		}
		q.Set("after", entries[len(entries)-1].Name)
	}
}

// Mkdir makes a folder and its parents.
func (s *Sandbox) Mkdir(ctx context.Context, path string) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/fs/dir", nil, api.MkdirRequest{Path: path}, nil)
}

// Move moves a file or folder to a place of its own, not into a folder. With
// overwrite it replaces what is there: a file a file, a folder an empty folder.
func (s *Sandbox) Move(ctx context.Context, from, to string, overwrite bool) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/fs/move", nil, api.MoveRequest{From: from, To: to, Overwrite: overwrite}, nil)
}

// send streams a body of bytes.
func (c *Client) send(ctx context.Context, method, path string, q url.Values, body io.Reader, out any) error {
	res, err := c.request(ctx, method, path, q, body, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return connectionError(ctx, c.root, fmt.Errorf("reading the answer: %w", err))
	}
	return nil
}
