package fake

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// fileRoutes serve files in memory. Folders are what the files' names imply,
// and those that were made.
func (g *Guest) fileRoutes(handle func(string, func(http.ResponseWriter, *http.Request) error)) {
	handle("GET /files", func(w http.ResponseWriter, r *http.Request) error {
		g.mu.Lock()
		b, ok := g.files[r.FormValue("path")]
		g.mu.Unlock()
		if !ok {
			return noFile(r.FormValue("path"))
		}
		var first int
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &first); n == 1 && first >= len(b) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(b)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return json.NewEncoder(w).Encode(api.Error{Message: "the range begins behind the end", Code: api.CodeInvalid, Field: "Range"})
		}
		http.ServeContent(w, r, "x.bin", time.Unix(1_800_000_000, 0), bytes.NewReader(b))
		return nil
	})
	handle("PUT /files", func(w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil // gone
		}
		p := r.URL.Query().Get("path")
		g.mu.Lock()
		kind := api.FileCreate
		if _, there := g.files[p]; there {
			kind = api.FileWrite
		}
		if r.URL.Query().Get("append") == "1" {
			b = slices.Concat(g.files[p], b)
		}
		g.files[p] = b
		g.mu.Unlock()
		g.changed(kind, p)
		g.changed(api.FileClose, p)
		return answer(w, api.WriteResult{Path: p, Bytes: int64(len(b))})
	})
	handle("DELETE /files", func(w http.ResponseWriter, r *http.Request) error {
		p := r.FormValue("path")
		var gone []string
		defer func() { g.changed(api.FileRemove, gone...) }()
		g.mu.Lock()
		defer g.mu.Unlock()
		found := false
		for name := range g.files {
			if name == p || r.FormValue("recursive") == "1" && strings.HasPrefix(name, p+"/") {
				delete(g.files, name)
				found, gone = true, append(gone, name)
			}
		}
		if !found {
			return noFile(p)
		}
		return answer(w, nil)
	})
	handle("GET /files/stat", func(w http.ResponseWriter, r *http.Request) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		info, ok := g.stat(r.FormValue("path"))
		if !ok {
			return noFile(r.FormValue("path"))
		}
		return answer(w, info)
	})
	handle("GET /files/dir", func(w http.ResponseWriter, r *http.Request) error {
		p := strings.TrimSuffix(r.FormValue("path"), "/")
		g.mu.Lock()
		defer g.mu.Unlock()
		names := map[string]bool{}
		for name := range g.files {
			if rest, ok := strings.CutPrefix(name, p+"/"); ok {
				first, _, _ := strings.Cut(rest, "/")
				names[first] = true
			}
		}
		out := api.DirListing{Path: p, Entries: []api.FileInfo{}}
		after, limit := r.FormValue("after"), int(number(r, "limit"))
		for name := range names {
			if info, ok := g.stat(p + "/" + name); ok && name > after {
				out.Entries = append(out.Entries, info)
			}
		}
		slices.SortFunc(out.Entries, func(a, b api.FileInfo) int { return strings.Compare(a.Name, b.Name) })
		if limit > 0 && len(out.Entries) > limit {
			out.Entries, out.Truncated = out.Entries[:limit], true
		}
		return answer(w, out)
	})
	handle("GET /files/tar", func(w http.ResponseWriter, r *http.Request) error {
		dir := strings.TrimSuffix(r.FormValue("path"), "/") + "/"
		g.mu.Lock()
		defer g.mu.Unlock()
		if info, ok := g.stat(r.FormValue("path")); !ok || !info.IsDir {
			return noFile(r.FormValue("path"))
		}
		tw := tar.NewWriter(w)
		for _, name := range slices.Sorted(maps.Keys(g.files)) {
			if rest, ok := strings.CutPrefix(name, dir); ok {
				h := &tar.Header{Typeflag: tar.TypeReg, Name: rest, Size: int64(len(g.files[name])), Mode: 0o644, ModTime: time.Unix(1_800_000_000, 0)}
				if err := tw.WriteHeader(h); err != nil {
					return nil // gone
				}
				_, _ = tw.Write(g.files[name]) // gone, too
			}
		}
		_ = tw.Close()
		return nil
	})
	handle("PUT /files/tar", func(w http.ResponseWriter, r *http.Request) error {
		out := api.TarResult{Path: r.URL.Query().Get("path")}
		for tr := tar.NewReader(r.Body); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				return answer(w, out)
			}
			if err != nil {
				return fault.New(api.CodeInvalid, "the stream cannot be unpacked: %v", err)
			}
			switch h.Typeflag {
			case tar.TypeDir:
				out.Folders++
			case tar.TypeReg:
				b, err := io.ReadAll(tr)
				if err != nil {
					return nil // gone
				}
				g.mu.Lock()
				g.files[path.Join(out.Path, h.Name)] = b
				g.mu.Unlock()
				out.Files++
				out.Bytes += int64(len(b))
			default:
				out.LeftOut++
			}
		}
	})
	handle("POST /files/dir", func(w http.ResponseWriter, r *http.Request) error { return answer(w, nil) })
	handle("POST /files/move", func(w http.ResponseWriter, r *http.Request) error {
		var req api.MoveRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		b, ok := g.files[req.From]
		if !ok {
			return noFile(req.From)
		}
		delete(g.files, req.From)
		g.files[req.To] = b
		return answer(w, nil)
	})
}

func (g *Guest) stat(p string) (api.FileInfo, bool) {
	info := api.FileInfo{Name: path.Base(p), Path: p, Mode: "f", Permissions: "0644", MTime: 1_800_000_000, ModifiedAt: time.Unix(1_800_000_000, 0)}
	if b, ok := g.files[p]; ok {
		info.Size = int64(len(b))
		return info, true
	}
	info.IsDir, info.Mode, info.Permissions = true, "d", "0755"
	for name := range g.files {
		if strings.HasPrefix(name, strings.TrimSuffix(p, "/")+"/") {
			return info, true
		}
	}
	return info, false
}

func noFile(p string) error { return fault.New(api.CodeNotFound, "there is no file %q", p) }
