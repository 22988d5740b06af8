package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type createSandboxIn struct {
	Template     string `json:"template,omitempty" jsonschema:"default code-interpreter; list_templates names all"`
	FromSnapshot string `json:"from_snapshot,omitempty" jsonschema:"id of a snapshot: variables, files and processes come back as they were"`
	TTLSeconds   int    `json:"ttl_seconds,omitempty" jsonschema:"seconds to live"`
	Keep         bool   `json:"keep,omitempty" jsonschema:"let it live on when the session ends, until its time is over"`
}

func (s *Session) createSandbox(ctx context.Context, req *mcp.CallToolRequest, in createSandboxIn) (*mcp.CallToolResult, any, error) {
	o := pandastack.CreateOptions{Template: in.Template, FromSnapshot: in.FromSnapshot}
	if in.Template == "" && in.FromSnapshot == "" {
		o.Template = s.opts.Template
	}
	if in.TTLSeconds != 0 {
		o.TTLSeconds = &in.TTLSeconds
	}
	s.making.Lock()
	defer s.making.Unlock()
	sb, err := s.make(ctx, req, o, in.Keep)
	if err != nil {
		return nil, nil, err
	}
	return place{}.answer("%s\ncalls without sandbox_id work in it from now on", describe(sb.Info))
}

func describe(i api.SandboxInfo) string {
	words := []string{i.ID, i.Template, string(i.Status), fmt.Sprintf("%g cores", i.CPU), fmt.Sprintf("%d MB memory", i.MemoryMB)}
	if !i.ExpiresAt.IsZero() {
		words = append(words, "until "+i.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if i.EndReason != "" {
		words = append(words, i.EndReason)
	}
	return strings.Join(words, ", ")
}

type none struct{}

func (s *Session) listSandboxes(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
	list, err := s.client.List(ctx, pandastack.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	var b strings.Builder
	for _, i := range list[:min(len(list), maxEntries)] {
		b.WriteString(describe(i))
		if i.ID == current {
			b.WriteString(", this session's")
		}
		b.WriteByte('\n')
	}
	if len(list) > maxEntries {
		fmt.Fprintf(&b, "[%d more]\n", len(list)-maxEntries)
	}
	return place{}.answer("%s", firstOf(b.String(), "no sandboxes"))
}

type sandboxIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"which one"`
}

func (s *Session) deleteSandbox(ctx context.Context, _ *mcp.CallToolRequest, in sandboxIn) (*mcp.CallToolResult, any, error) {
	if in.SandboxID == "" {
		return nil, nil, errors.New("sandbox_id is empty; list_sandboxes names all")
	}
	if err := s.client.Sandbox(in.SandboxID).Kill(ctx); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.own, in.SandboxID)
	words := in.SandboxID + " is gone, with its files and variables"
	if s.current == in.SandboxID {
		s.current = ""
		words += "; the next call makes a fresh one"
	}
	return place{}.answer("%s", words)
}

type forkSandboxIn struct {
	Count     int    `json:"count,omitempty" jsonschema:"copies, 1 to 16; default 1"`
	Keep      bool   `json:"keep,omitempty" jsonschema:"let them live on when the session ends, until their time is over"`
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"which one; default: this session's sandbox"`
}

func (s *Session) forkSandbox(ctx context.Context, req *mcp.CallToolRequest, in forkSandboxIn) (*mcp.CallToolResult, any, error) {
	count := max(in.Count, 1)
	if in.Count < 0 {
		return nil, nil, fmt.Errorf("count must lie between 1 and 16, not %d", in.Count)
	}
	if !in.Keep {
		if err := s.room(count); err != nil {
			return nil, nil, err
		}
	}
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	forked, err := p.Fork(ctx, api.ForkRequest{Count: &count, TTLSeconds: new(int(s.opts.TTL.Seconds()))})
	if err != nil {
		return nil, nil, err
	}
	var b strings.Builder
	var failed []error
	for _, child := range forked.Sandboxes {
		failed = append(failed, s.adopt(ctx, child, false, in.Keep))
		fmt.Fprintln(&b, child.ID)
	}
	for _, e := range forked.Errors {
		fmt.Fprintf(&b, "copy %d was not made: %s\n", e.Index+1, e.Message)
	}
	if err := errors.Join(failed...); err != nil {
		return nil, nil, err
	}
	return p.answer("copies of %s, each with its variables, files and processes:\n%sgive one as sandbox_id to work in it", p.ID, b.String())
}

type snapshotSandboxIn struct {
	Name      string `json:"name,omitempty" jsonschema:"for lists, at most 128 bytes"`
	SandboxID string `json:"sandbox_id,omitempty" jsonschema:"which one; default: this session's sandbox"`
}

func (s *Session) snapshotSandbox(ctx context.Context, req *mcp.CallToolRequest, in snapshotSandboxIn) (*mcp.CallToolResult, any, error) {
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	snap, err := p.Snapshot(ctx, api.SnapshotRequest{Name: in.Name})
	if err != nil {
		return nil, nil, err
	}
	return p.answer("snapshot %s of %s, %.1f MB; create_sandbox with from_snapshot brings it back, with variables", snap.ID, p.ID, float64(snap.SizeBytes)/1e6)
}

func (s *Session) listTemplates(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
	list, err := s.client.Templates(ctx)
	if err != nil {
		return nil, nil, err
	}
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, "%s: %s (%g cores, %d MB memory, %d MB disk)\n", t.Name, firstOf(t.Description, "no description"), t.CPU, t.MemoryMB, t.DiskMB)
	}
	return place{}.answer("%s", firstOf(b.String(), "no templates: whoever runs the server builds one with `pandastack template build code-interpreter`"))
}
