package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// How many snapshots may be on their way at once, in both directions: each takes
// some memory and a processor.
const (
	maxTransfers         = 8
	maxTransfersPerOwner = 4
)

// transfer counts a snapshot that goes out or comes in, until done is called.
func (m *Manager) transfer(owner string) (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := 0
	for _, n := range m.transfers {
		all += n
	}
	if all >= maxTransfers || m.transfers[owner] >= maxTransfersPerOwner {
		return nil, fault.New(api.CodeNoCapacity, "%d snapshots are being exported and imported, %d of this workspace; that is the most at once", all, m.transfers[owner]).
			WithHint("wait until one is done").After(retryAfter)
	}
	m.transfers[owner]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.transfers[owner]--; m.transfers[owner] == 0 {
			delete(m.transfers, owner)
		}
	}, nil
}

// carrier is the driver, if its snapshots can go to other servers, and this one
// can sign them.
func (m *Manager) carrier(what string) (driver.Carrier, error) {
	c, ok := m.cfg.Driver.(driver.Carrier)
	if !ok || m.cfg.Signer == nil {
		return nil, errUnsupported("", what)
	}
	return c, nil
}

// ExportSnapshot writes a snapshot as an archive, to what begin gives, which is
// called once, when nothing can be refused any more. A snapshot that is deleted
// meanwhile is written to its end.
func (m *Manager) ExportSnapshot(ctx context.Context, owner, id string, begin func() io.Writer) error {
	sn, err := m.findSnapshot(ctx, owner, id)
	if err != nil {
		return err
	}
	carrier, err := m.carrier("exporting a snapshot")
	if err != nil {
		return err
	}
	done, err := m.work()
	if err != nil {
		return err
	}
	defer done()
	sent, err := m.transfer(sn.Owner)
	if err != nil {
		return err
	}
	defer sent()
	files, closeAll, err := m.openImage(sn.ID)
	if err != nil {
		return m.ofDeleted(ctx, owner, id, err)
	}
	defer closeAll()
	manifest, err := m.manifest(ctx, carrier, sn)
	if err != nil {
		return m.ofDeleted(ctx, owner, id, err)
	}
	for _, f := range files {
		sum, err := archive.Sum(ctx, filepath.Base(f.Name()), f)
		if err != nil {
			return fmt.Errorf("reading snapshot %s: %w", sn.ID, err)
		}
		manifest.Files = append(manifest.Files, sum)
		manifest.Bytes += sum.Bytes
	}
	if err := archive.Write(ctx, begin(), m.cfg.Signer, manifest, files); err != nil {
		return fmt.Errorf("exporting snapshot %s: %w", sn.ID, err)
	}
	m.log.InfoContext(ctx, "snapshot exported", "snapshot", sn.ID, "bytes", manifest.Bytes)
	return nil
}

// manifest describes a snapshot, but for its files.
func (m *Manager) manifest(ctx context.Context, carrier driver.Carrier, sn store.Snapshot) (archive.Manifest, error) {
	needs, err := carrier.Needs(ctx, m.imageDir(sn.ID))
	if err != nil {
		return archive.Manifest{}, fmt.Errorf("snapshot %s: %w", sn.ID, err)
	}
	t, err := m.templateOf(ctx, sn.Template, sn.Digest)
	if err != nil {
		return archive.Manifest{}, err
	}
	contents, err := t.contents(ctx)
	if err != nil {
		return archive.Manifest{}, err
	}
	out := archive.Manifest{
		Version: m.cfg.Version, ExportedAt: m.cfg.Now().UTC(), Workspace: sn.Owner,
		Snapshot: archive.Snapshot{
			ID: sn.ID, Name: sn.Name, SandboxID: sn.SandboxID, ParentID: sn.ParentID, Metadata: sn.Metadata, Generation: sn.Generation,
			CreatedAt: sn.CreatedAt, DurationMS: sn.DurationMS, Contexts: sn.Contexts,
		},
		Template: archive.Template{Name: sn.Template, Digest: sn.Digest, Rootfs: t.RootfsDigest, Programs: t.ProgramsDigest, Contents: contents},
		Driver:   archive.Driver{Name: sn.Driver, Made: needs.Made, Arch: needs.Arch, Features: needs.Features},
		Limits:   archive.Limits{CPU: sn.CPU, MemoryMB: sn.MemoryMB, DiskMB: sn.DiskMB, PIDs: sn.PIDs},
	}
	if m.cfg.Policies != nil {
		if out.Network, out.LeftOut, err = m.cfg.Policies.Carry(ctx, sn); err != nil {
			return out, err
		}
	}
	tools, left, err := carriedTools(sn.Tools)
	out.Tools, out.LeftOut = tools, append(out.LeftOut, left...)
	return out, err
}

// contents describes the files of a template's root filesystem, "" when that is
// not known.
func (t Template) contents(ctx context.Context) (string, error) {
	if t.Contents == nil {
		return "", nil
	}
	sum, err := t.Contents(ctx)
	if err != nil {
		return "", fmt.Errorf("looking through the files of the template %s: %w", t.Info.Name, err)
	}
	return sum, nil
}

// ofDeleted is why an export failed: of a snapshot that is deleted meanwhile that is all there is to say.
func (m *Manager) ofDeleted(ctx context.Context, owner, id string, err error) error {
	if _, gone := m.findSnapshot(ctx, owner, id); gone != nil {
		return gone
	}
	return err
}

// openImage opens the files of a snapshot, by name. What is open can be read to
// its end, whoever removes it.
func (m *Manager) openImage(id string) (files []*os.File, closeAll func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock() // so that it is deleted before or behind this, never in between
	dir := m.imageDir(id)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Wrap(err, api.CodeConflict, "the files of snapshot %s are gone from the server's disk", id).WithHint("delete it; nothing can be made of it any more")
	}
	if err != nil {
		return nil, nil, err
	}
	closeAll = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		files = append(files, f)
	}
	return files, closeAll, nil
}

// carriedTools gives tools without what may be secret in them: values of headers,
// and passwords and queries of addresses. Names of secrets stay.
func carriedTools(t *api.Tools) (*api.Tools, []api.SnapshotMissing, error) {
	if t == nil {
		return nil, nil, nil
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding tools: %w", err)
	}
	out := &api.Tools{} // a copy: what is changed below must not be the row's
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, nil, fmt.Errorf("encoding tools: %w", err)
	}
	var left []api.SnapshotMissing
	for _, space := range slices.Sorted(maps.Keys(out.HTTP)) {
		h := out.HTTP[space]
		left = append(left, withoutValues(space, h.Headers)...)
		left = append(left, withoutTokens(space, &h.URL)...)
		left = append(left, withoutTokens(space, &h.BaseURL)...)
		out.HTTP[space] = h
	}
	for _, space := range slices.Sorted(maps.Keys(out.MCP)) {
		s := out.MCP[space]
		left = append(left, withoutValues(space, s.Headers)...)
		left = append(left, withoutTokens(space, &s.URL)...)
		s.Command, s.Envs = nil, nil // which only settings can have
		out.MCP[space] = s
	}
	return out, left, nil
}

func withoutValues(space string, headers map[string]api.ToolHeader) (left []api.SnapshotMissing) {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if headers[name].Ref == "" {
			delete(headers, name)
			left = append(left, api.SnapshotMissing{Kind: api.MissingValue, Name: name, For: space})
		}
	}
	return left
}

// withoutTokens takes out of an address what may be one: a password, and all of the query.
func withoutTokens(space string, address *string) (left []api.SnapshotMissing) {
	u, err := url.Parse(*address)
	if err != nil {
		return nil
	}
	if u.User != nil {
		left = append(left, api.SnapshotMissing{Kind: api.MissingValue, Name: "password", For: space})
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		left = append(left, api.SnapshotMissing{Kind: api.MissingValue, Name: "?" + name, For: space})
	}
	if len(left) > 0 {
		u.User, u.RawQuery = nil, ""
		*address = u.String()
	}
	return left
}

// toolRefs are the names of secrets that tools use, with what for.
func toolRefs(t *api.Tools) (out []api.SnapshotMissing) {
	if t == nil {
		return nil
	}
	add := func(space string, headers map[string]api.ToolHeader) {
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			out = append(out, api.SnapshotMissing{Kind: api.MissingSecret, Name: headers[name].Ref, For: space})
		}
	}
	for _, space := range slices.Sorted(maps.Keys(t.HTTP)) {
		add(space, t.HTTP[space].Headers)
	}
	for _, space := range slices.Sorted(maps.Keys(t.MCP)) {
		add(space, t.MCP[space].Headers)
	}
	return out
}

// contextsIn names the code contexts of a running sandbox. It is for people, so
// what fails is not the caller's trouble.
func (m *Manager) contextsIn(ctx context.Context, b *box) []string {
	if b.get().State != store.Running || b.inst == nil {
		return nil
	}
	client, err := m.answering(ctx, b)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.LinkWait)
	defer cancel()
	list, err := client.Contexts(ctx)
	if err != nil {
		m.log.WarnContext(ctx, "the contexts of a sandbox are not noted with its snapshot", "sandbox", b.id, "error", err)
		return nil
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
