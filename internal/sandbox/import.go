package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// imageOverhead is what an image may have beyond the memory and the disk of its
// sandbox: the state of its kernel.
const imageOverhead = 1 << 30

// Import says how an archive is taken in.
type Import struct {
	Name string // "": as it was called
	// Admin is whether who asks may take in more than what this server has
	// exported itself for the same workspace.
	Admin bool
}

// ImportSnapshot reads an archive and keeps it as a snapshot of the owner's,
// whole or not at all. Everything that can be refused is refused before its files
// are read.
func (m *Manager) ImportSnapshot(ctx context.Context, owner string, how Import, in io.Reader) (api.SnapshotImport, error) {
	if err := checkSnapshotName(how.Name); err != nil {
		return api.SnapshotImport{}, err
	}
	if err := m.started(ctx); err != nil {
		return api.SnapshotImport{}, err
	}
	carrier, err := m.carrier("importing a snapshot")
	if err != nil {
		return api.SnapshotImport{}, err
	}
	done, err := m.work()
	if err != nil {
		return api.SnapshotImport{}, err
	}
	defer done()
	came, err := m.transfer(owner)
	if err != nil {
		return api.SnapshotImport{}, err
	}
	defer came()
	r, err := archive.Open(in, m.trusts)
	if err != nil {
		return api.SnapshotImport{}, err
	}
	defer r.Close()
	if err := m.mayBring(r, owner, how.Admin); err != nil {
		return api.SnapshotImport{}, err
	}
	sn, err := m.admit(ctx, carrier, owner, how.Name, r)
	if err != nil {
		return api.SnapshotImport{}, err
	}
	give, err := m.takeDisk(r.Manifest.Bytes)
	if err != nil {
		return api.SnapshotImport{}, err
	}
	defer give()
	var missing []api.SnapshotMissing
	if sn.SizeBytes, err = m.receive(ctx, r, sn.ID); err == nil {
		missing, err = m.keepImported(context.WithoutCancel(ctx), &sn, r.Manifest)
	}
	if err != nil {
		m.removeImage(m.imageDir(sn.ID))
		return api.SnapshotImport{}, err
	}
	m.log.InfoContext(ctx, "snapshot imported", "snapshot", sn.ID, "bytes", sn.SizeBytes, "from", sn.Origin.SnapshotID, "key", sn.Origin.Key)
	return api.SnapshotImport{Snapshot: describeSnapshot(sn), Missing: missing}, nil
}

// trusts says why an archive of this signature is not taken in. What is in an image
// becomes the state of the sandbox's kernel, so whoever made it is
// believed more than whoever runs code in a sandbox.
func (m *Manager) trusts(key archive.Key) error {
	if m.isOwn(key) || slices.Contains(m.cfg.TrustedKeys, key) {
		return nil
	}
	return fault.New(api.CodeDenied, "the archive is signed by %s, and this server does not trust that key", key).
		WithHint("the operator may add the key to the setting snapshot_trusted_keys, if whoever runs the server that it is of may attack this one; pandastack version shows a server's key")
}

func (m *Manager) isOwn(key archive.Key) bool { return key == archive.KeyOf(m.cfg.Signer) }

// mayBring says why a workspace may not take in an archive whose key is trusted.
func (m *Manager) mayBring(r *archive.Reader, owner string, admin bool) error {
	if admin || m.isOwn(r.Key) && r.Manifest.Workspace == owner {
		return nil
	}
	return fault.New(api.CodeDenied, "the archive is from the workspace %s of the server %s, and this key lacks the scope admin for it", r.Manifest.Workspace, r.Key).
		WithHint("use a key with the scope admin; with others a workspace takes in again what it exported here itself")
}

// admit makes the row of a snapshot from its manifest, if it can be restored here.
func (m *Manager) admit(ctx context.Context, carrier driver.Carrier, owner, name string, r *archive.Reader) (store.Snapshot, error) {
	f := r.Manifest
	if f.Driver.Name != m.cfg.Driver.Name() {
		return store.Snapshot{}, fault.New(api.CodeConflict, "the snapshot was made with the driver %s, and this server has %s", f.Driver.Name, m.cfg.Driver.Name())
	}
	if err := carrier.Fits(ctx, driver.Needs{Made: f.Driver.Made, Arch: f.Driver.Arch, Features: f.Driver.Features}); err != nil {
		return store.Snapshot{}, err
	}
	if most := int64(m.cfg.MaxMemoryMB+m.cfg.MaxDiskMB)<<20 + imageOverhead; f.Bytes > most {
		return store.Snapshot{}, fault.New(api.CodeTooLarge, "the snapshot has %d MB; with the memory and the disk that a sandbox may have here it has at most %d MB", f.Bytes>>20, most>>20).
			WithHint("the server's settings max_memory_mb and max_disk_mb say how much a sandbox may have")
	}
	if err := checkSnapshotName(f.Snapshot.Name); err != nil {
		return store.Snapshot{}, err
	}
	if err := checkPairs("metadata", f.Snapshot.Metadata); err != nil {
		return store.Snapshot{}, err
	}
	// What a snapshot has is not looked at again when a sandbox is made from it.
	if f.Tools != nil {
		if m.cfg.Tools == nil {
			return store.Snapshot{}, errUnsupported("tools", "tools")
		}
		if err := m.cfg.Tools.Check(f.Tools); err != nil {
			return store.Snapshot{}, err
		}
	}
	t, err := m.templateFor(ctx, f.Template)
	if err != nil {
		return store.Snapshot{}, err
	}
	sn := store.Snapshot{
		ID: newID("sn-"), Owner: owner, Name: f.Snapshot.Name, SandboxID: f.Snapshot.SandboxID, ParentID: f.Snapshot.ParentID,
		Template: t.Info.Name, Digest: t.Info.Digest, Driver: f.Driver.Name,
		// More than this server gives anybody is not given because it was elsewhere.
		CPU: min(f.Limits.CPU, m.cfg.MaxCPU), MemoryMB: min(f.Limits.MemoryMB, m.cfg.MaxMemoryMB), DiskMB: min(f.Limits.DiskMB, m.cfg.MaxDiskMB), PIDs: min(f.Limits.PIDs, m.cfg.MaxPIDs),
		Metadata: f.Snapshot.Metadata, Generation: f.Snapshot.Generation, DurationMS: f.Snapshot.DurationMS, CreatedAt: m.cfg.Now(), Tools: f.Tools,
		Contexts: f.Snapshot.Contexts,
		Origin: &api.SnapshotOrigin{
			SnapshotID: f.Snapshot.ID, Workspace: f.Workspace, Key: string(r.Key), Version: f.Version, ExportedAt: f.ExportedAt, ImportedAt: m.cfg.Now().UTC(),
		},
	}
	if name != "" {
		sn.Name = name
	}
	return sn, nil
}

// templateFor finds the template that a snapshot from elsewhere lies on top of.
// It need not be the same snapshot, which is of one kind of processor, but the
// same files.
func (m *Manager) templateFor(ctx context.Context, want archive.Template) (Template, error) {
	t, err := m.cfg.Templates.ByDigest(ctx, want.Digest)
	if errors.Is(err, fault.NotFound) {
		t, err = m.templateLike(ctx, want)
	}
	if err != nil {
		return t, err
	}
	if t.Missing != "" {
		return t, errMissing(t)
	}
	contents, err := t.contents(ctx)
	if err != nil {
		return t, err
	}
	if want.Contents != "" && contents != "" && contents != want.Contents {
		return t, fault.New(api.CodeConflict, "the template %s was built of the same recipe here, but has other files: %s here, and the snapshot needs %s", want.Name, contents, want.Contents).
			WithHint("the distribution has other packages now than when the other server built it; copy the folders templates and programs of its data directory here")
	}
	return t, nil
}

// templateLike finds one that was made of the same parts.
func (m *Manager) templateLike(ctx context.Context, want archive.Template) (Template, error) {
	list, err := m.cfg.Templates.Templates(ctx)
	if err != nil {
		return Template{}, err
	}
	here := "there is none of this name here"
	for _, t := range list {
		if want.Rootfs != "" && t.RootfsDigest == want.Rootfs && t.ProgramsDigest == want.Programs {
			return t, nil
		}
		if t.Info.Name == want.Name {
			here = fmt.Sprintf("here it is %s (root filesystem %s, programs %s)", t.Info.Digest, t.RootfsDigest, t.ProgramsDigest)
		}
	}
	return Template{}, fault.New(api.CodeConflict, "the snapshot needs the template %s, %s (root filesystem %s, programs %s), and %s", want.Name, want.Digest, want.Rootfs, want.Programs, here).
		WithHint("build it from the recipe and with the version that the other server has: pandastack template build %s", want.Name)
}

// receive writes the files of an archive and puts them in their place, when they
// are whole and the driver finds nothing wrong with them.
func (m *Manager) receive(ctx context.Context, r *archive.Reader, id string) (bytes int64, err error) {
	tmp, err := os.MkdirTemp(m.cfg.ImageDir, ".import-") // goes when a daemon starts, too
	if err != nil {
		return 0, fmt.Errorf("making a folder for a snapshot: %w", err)
	}
	defer func() { m.removeImage(tmp) }()
	if err := r.Extract(ctx, tmp); err != nil {
		if errors.Is(err, unix.ENOSPC) {
			return 0, fault.Wrap(err, api.CodeNoSpace, "the disk of the server is full")
		}
		return 0, err
	}
	img, err := m.inspect(ctx, tmp)
	if err != nil {
		return 0, err
	}
	if err := syncDir(tmp); err != nil {
		return 0, err
	}
	if err := os.Rename(tmp, m.imageDir(id)); err != nil {
		return 0, fmt.Errorf("putting a snapshot in its place: %w", err)
	}
	return img.Bytes, syncDir(m.cfg.ImageDir)
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// keepImported writes the row of a snapshot whose files are there, and says what
// its sandbox had that is not here.
func (m *Manager) keepImported(ctx context.Context, sn *store.Snapshot, f archive.Manifest) ([]api.SnapshotMissing, error) {
	missing := append([]api.SnapshotMissing{}, f.LeftOut...)
	if m.cfg.Policies != nil {
		network, lacks, err := m.cfg.Policies.Admit(ctx, sn.Owner, sn.ID, f.Network)
		if err != nil {
			return nil, err
		}
		sn.Network, missing = network, append(missing, lacks...)
		for _, ref := range toolRefs(sn.Tools) {
			known, err := m.cfg.Policies.HasSecret(ctx, sn.Owner, ref.Name)
			if err != nil {
				return nil, err
			}
			if !known {
				missing = append(missing, ref)
			}
		}
	}
	if sn.Tools != nil && m.cfg.Tools != nil {
		for _, space := range sn.Tools.Use {
			if !m.cfg.Tools.Declares(space) {
				missing = append(missing, api.SnapshotMissing{Kind: api.MissingTools, Name: space})
			}
		}
	}
	return missing, m.cfg.Store.AddSnapshot(ctx, *sn)
}
