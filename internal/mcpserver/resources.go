package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// What a session keeps of results for those who ask for them by URI.
const (
	shelfItems = 100
	shelfBytes = 32 << 20
	stockBytes = 256 << 20 // of all sessions of a key
)

const (
	scheme      = "sandbox"
	maxResource = 16 << 20 // bytes of a file that is read as a resource
)

// fileURI names a file of a sandbox.
func fileURI(id, name string) string {
	return (&url.URL{Scheme: scheme, Host: id, Path: path.Join("/files", name)}).String()
}

// resultURI names a picture or a table that an execution has shown.
func resultURI(id, execution, name string) string {
	return (&url.URL{Scheme: scheme, Host: id, Path: path.Join("/results", execution, name)}).String()
}

func (s *Session) addResources() {
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: scheme + "://{sandbox}/files/{+path}", Name: "file",
		Description: "A file of a sandbox, by its absolute path; a folder is listed. At most 16 MB.",
	}, s.readFileResource)
	s.server.AddResourceTemplate(&mcp.ResourceTemplate{
		URITemplate: scheme + "://{sandbox}/results/{execution}/{name}", Name: "result",
		Description: "A figure or table that a cell of this session has shown; the last 100 are kept.",
	}, s.readResult)
}

// shelf is the figures and tables that a session has shown, the newest last.
type shelf struct {
	mu    sync.Mutex
	order []string
	items map[string]mcp.ResourceContents
	bytes int
}

// stock counts the bytes on the shelves of several sessions.
type stock struct {
	mu    sync.Mutex
	bytes int
}

// add counts bytes that come, or go, and tells whether there is no room for more.
func (k *stock) add(n int) (full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bytes += n
	return k.bytes > stockBytes
}

// clear takes everything from the shelf of a session that has ended.
func (s *Session) clear() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.opts.stock.add(-s.store.bytes)
	s.store.order, s.store.items, s.store.bytes = nil, nil, 0
}

// shelve keeps a result, lists it as a resource, and gives its URI. The oldest
// make room.
func (s *Session) shelve(uri, mime string, data []byte) string {
	item := mcp.ResourceContents{URI: uri, MIMEType: mime}
	if strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" {
		item.Text = string(data)
	} else {
		item.Blob = data
	}
	size := func(c mcp.ResourceContents) int { return len(c.Text) + len(c.Blob) }
	s.store.mu.Lock()
	if s.life.Err() != nil {
		s.store.mu.Unlock()
		return uri // nobody will ask for it
	}
	if s.store.items == nil {
		s.store.items = map[string]mcp.ResourceContents{}
	}
	s.store.order = append(s.store.order, uri)
	s.store.items[uri] = item
	s.store.bytes += size(item)
	full := s.opts.stock.add(size(item))
	var gone []string
	for len(s.store.order) > 0 && (len(s.store.order) > shelfItems || s.store.bytes > shelfBytes || full) {
		oldest := s.store.order[0]
		gone = append(gone, oldest)
		s.store.order = s.store.order[1:]
		s.store.bytes -= size(s.store.items[oldest])
		full = s.opts.stock.add(-size(s.store.items[oldest]))
		delete(s.store.items, oldest)
	}
	s.store.mu.Unlock()
	if len(gone) > 0 {
		s.server.RemoveResources(gone...)
	}
	if slices.Contains(gone, uri) {
		return uri // reading it says that it is not there
	}
	s.server.AddResource(&mcp.Resource{URI: uri, Name: strings.TrimPrefix(path.Ext(uri), ".") + " of cell " + path.Base(path.Dir(uri)), MIMEType: mime, Size: int64(len(data))}, s.readResult)
	return uri
}

func (s *Session) readResult(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	s.store.mu.Lock()
	item, ok := s.store.items[req.Params.URI]
	s.store.mu.Unlock()
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&item}}, nil
}

func (s *Session) readFileResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	u, err := url.Parse(req.Params.URI)
	if err != nil {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	name, ok := strings.CutPrefix(u.Path, "/files")
	if !ok || u.Host == "" {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	sb := s.client.Sandbox(u.Host)
	name = path.Clean("/" + name)
	info, err := sb.Stat(ctx, name)
	switch {
	case errors.Is(err, pandastack.ErrNotFound):
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	case err != nil:
		return nil, explain(err)
	case info.Size > maxResource && !info.IsDir:
		return nil, fmt.Errorf("%s has %d bytes, and at most %d can be read at once: read a part of it with read_file", name, info.Size, maxResource)
	case info.IsDir:
		list, err := sb.ReadDir(ctx, name)
		if err != nil {
			return nil, explain(err)
		}
		var b strings.Builder
		for _, f := range list[:min(len(list), maxEntries)] {
			b.WriteString(f.Name)
			if f.IsDir {
				b.WriteByte('/')
			}
			b.WriteByte('\n')
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "text/plain", Text: b.String()}}}, nil
	}
	raw, err := readSome(ctx, sb, name, 0, maxResource)
	if err != nil {
		return nil, explain(err)
	}
	item := &mcp.ResourceContents{URI: req.Params.URI, MIMEType: kindOf(name, raw)}
	if isText(string(raw)) {
		item.Text = string(raw)
	} else {
		item.Blob = raw
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{item}}, nil
}
