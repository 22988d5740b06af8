package mcpserver

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

const (
	maxRead    = 100_000 // bytes of text that one read_file gives
	maxEntries = 500     // of one list_dir
	sniffed    = 512     // bytes that tell what a file is
)

type readFileIn struct {
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace"`
	Offset    int64  `json:"offset,omitempty" jsonschema:"byte to begin at; default 0"`
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: this session's sandbox"`
}

// absolute makes a path that may be relative to the workspace absolute.
func absolute(name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("path is empty")
	}
	if !path.IsAbs(name) {
		name = path.Join("/workspace", name)
	}
	return path.Clean(name), nil
}

func (s *Session) readFile(ctx context.Context, req *mcp.CallToolRequest, in readFileIn) (*mcp.CallToolResult, any, error) {
	name, err := absolute(in.Path)
	if err != nil {
		return nil, nil, err
	}
	if in.Offset < 0 {
		return nil, nil, fmt.Errorf("offset must not be negative, but is %d", in.Offset)
	}
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	info, err := p.Stat(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case info.IsDir:
		return nil, nil, fmt.Errorf("%s is a folder: use list_dir", name)
	case in.Offset > 0 && in.Offset >= info.Size:
		return nil, nil, fmt.Errorf("%s has %d bytes, and offset is %d", name, info.Size, in.Offset)
	}
	raw, err := readSome(ctx, p.Sandbox, name, in.Offset, maxRead+utf8.UTFMax)
	if err != nil {
		return nil, nil, err
	}
	kind := kindOf(name, raw)
	if slices.Contains(pictures, kind) && in.Offset == 0 && info.Size <= maxImage {
		data, err := p.ReadFile(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: p.told([]mcp.Content{&mcp.ImageContent{Data: data, MIMEType: kind}})}, nil, nil
	}
	words := clip(string(raw), maxRead)
	if !isText(words) {
		return &mcp.CallToolResult{Content: p.told([]mcp.Content{
			text("%s is not text: %d bytes of %s. Work on it with run_code or run_command.", name, info.Size, kind),
			&mcp.ResourceLink{URI: fileURI(p.ID, name), Name: path.Base(name), MIMEType: kind, Size: &info.Size},
		})}, nil, nil
	}
	content := []mcp.Content{&mcp.TextContent{Text: words}}
	if end := in.Offset + int64(len(words)); end < info.Size {
		content = append(content, text("[bytes %d to %d of %d; go on with offset %d]", in.Offset, end, info.Size, end))
	} else if words == "" {
		content = append(content, text("[the file is empty]"))
	}
	return &mcp.CallToolResult{Content: p.told(content)}, nil, nil
}

// readSome reads at most n bytes of a file.
func readSome(ctx context.Context, sb *pandastack.Sandbox, name string, offset int64, n int64) ([]byte, error) {
	open := func() (io.ReadCloser, error) {
		if offset == 0 { // of an empty file there is no range
			return sb.Open(ctx, name)
		}
		return sb.OpenRange(ctx, name, offset, n)
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, n))
}

// isText tells whether a text that may be cut in the middle of a character is
// one.
func isText(s string) bool {
	for i := 0; i < utf8.UTFMax && len(s) > 0 && !utf8.ValidString(s); i++ {
		s = s[:len(s)-1]
	}
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// kindOf is the MIME type of a file.
func kindOf(name string, head []byte) string {
	kind := http.DetectContentType(head[:min(len(head), sniffed)])
	if byName := mime.TypeByExtension(path.Ext(name)); byName != "" && !strings.HasPrefix(kind, "image/") {
		kind = byName
	}
	kind, _, _ = strings.Cut(kind, ";")
	return kind
}

type writeFileIn struct {
	Path      string `json:"path" jsonschema:"absolute, or relative to /workspace; parents are made"`
	Content   string `json:"content" jsonschema:"the text, or with base64 the bytes in base64"`
	Base64    bool   `json:"base64,omitempty"`
	Append    bool   `json:"append,omitempty" jsonschema:"add to what is there; default: replace it"`
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: this session's sandbox"`
}

func (s *Session) writeFile(ctx context.Context, req *mcp.CallToolRequest, in writeFileIn) (*mcp.CallToolResult, any, error) {
	name, err := absolute(in.Path)
	if err != nil {
		return nil, nil, err
	}
	raw := []byte(in.Content)
	if in.Base64 {
		if raw, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, nil, fmt.Errorf("content is not base64: %w", err)
		}
	}
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	res, err := p.WriteFrom(ctx, name, strings.NewReader(string(raw)), pandastack.WriteOptions{Append: in.Append})
	if err != nil {
		return nil, nil, err
	}
	return &mcp.CallToolResult{Content: p.told([]mcp.Content{
		text("wrote %d bytes to %s", res.Bytes, res.Path),
		&mcp.ResourceLink{URI: fileURI(p.ID, name), Name: path.Base(name), MIMEType: kindOf(name, raw)},
	})}, nil, nil
}

type listDirIn struct {
	Path      string `json:"path,omitempty" jsonschema:"default /workspace"`
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"default: this session's sandbox"`
}

func (s *Session) listDir(ctx context.Context, req *mcp.CallToolRequest, in listDirIn) (*mcp.CallToolResult, any, error) {
	name, err := absolute(firstOf(in.Path, "/workspace"))
	if err != nil {
		return nil, nil, err
	}
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	list, err := p.ReadDir(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d entries\n", name, len(list))
	for _, f := range list[:min(len(list), maxEntries)] {
		switch {
		case f.IsDir:
			fmt.Fprintf(&b, "%s/\n", f.Name)
		case f.Target != "":
			fmt.Fprintf(&b, "%s -> %s\n", f.Name, f.Target)
		default:
			fmt.Fprintf(&b, "%s\t%d bytes\t%s\n", f.Name, f.Size, f.ModifiedAt.UTC().Format(time.RFC3339))
		}
	}
	if len(list) > maxEntries {
		fmt.Fprintf(&b, "[%d more; list a folder below, or use run_command]\n", len(list)-maxEntries)
	}
	return p.answer("%s", b.String())
}
