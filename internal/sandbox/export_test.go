package sandbox_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// signs gives a daemon a key of its own, and the keys that it trusts.
func signs(n byte, trusted ...archive.Key) func(*sandbox.Config) {
	return func(c *sandbox.Config) { c.Signer, c.TrustedKeys, c.Version = signer(n), trusted, "v1" }
}

func signer(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

// exported is a snapshot of a sandbox that has a = 7.
func (r *rig) exported() (sn api.Snapshot, file []byte) {
	r.t.Helper()
	info := r.create(api.CreateSandboxRequest{MemoryMB: ptr(700)})
	r.cell(info.ID, "e1", "a = 7")
	sn = r.snapshot(info.ID, api.SnapshotRequest{Name: "seven", Metadata: map[string]string{"k": "v"}})
	return sn, r.export(sn.ID)
}

func anyone(archive.Key) error { return nil }

func (r *rig) export(id string) []byte {
	r.t.Helper()
	var out bytes.Buffer
	if err := r.ExportSnapshot(context.Background(), "ann", id, func() io.Writer { return &out }); err != nil {
		r.t.Fatalf("ExportSnapshot: %v", err)
	}
	return out.Bytes()
}

// notImported tries to import and says why it was refused. Nothing is left of it.
func (r *rig) notImported(file []byte, how sandbox.Import, want error) string {
	r.t.Helper()
	rows := func() int {
		list, err := r.Snapshots(context.Background(), "ann", "")
		if err != nil {
			r.t.Fatal(err)
		}
		return len(list)
	}
	images, had := r.images(), rows()
	_, err := r.ImportSnapshot(context.Background(), "ann", how, bytes.NewReader(file))
	if !errors.Is(err, want) {
		r.t.Errorf("imported: %v; it should be %v", err, want)
	}
	if now := r.images(); !slices.Equal(images, now) || rows() != had {
		r.t.Errorf("of images %q became %q, of %d rows %d", images, now, had, rows())
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		return ""
	}
	return f.Message + " " + f.Hint
}

func TestExportAndImport(t *testing.T) {
	one := newRig(t, signs(1))
	two := newRig(t, signs(2, archive.KeyOf(signer(1))))
	ctx := context.Background()
	sn, file := one.exported()

	done, err := two.ImportSnapshot(ctx, "ann", sandbox.Import{Admin: true}, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	got := done.Snapshot
	if got.ID == sn.ID || got.Name != "seven" || got.Workspace != "ann" || got.Metadata["k"] != "v" || got.MemoryMB != 700 || got.SizeBytes != sn.SizeBytes || got.SandboxID != sn.SandboxID {
		t.Errorf("of %+v became %+v", sn, got)
	}
	if o := got.Origin; o == nil || o.SnapshotID != sn.ID || o.Workspace != "ann" || o.Key != string(archive.KeyOf(signer(1))) || o.Version != "v1" {
		t.Errorf("it is from %+v", o)
	}
	if len(done.Missing) != 0 {
		t.Errorf("missing: %+v", done.Missing)
	}
	two.restart() // what is imported is kept
	if kept, err := two.GetSnapshot(ctx, "ann", got.ID); err != nil || kept.Origin == nil || *kept.Origin != *got.Origin {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	made := two.create(api.CreateSandboxRequest{FromSnapshot: got.ID})
	if out := two.cell(made.ID, "e1", "print(a)"); out != "7\n" {
		t.Errorf("the copy has %q", out)
	}
	if images := two.images(); !slices.Equal(images, []string{got.ID}) {
		t.Errorf("images: %q", images)
	}

	// It can go on from there, and its name can be another one.
	again, err := two.ImportSnapshot(ctx, "ann", sandbox.Import{Name: "eight"}, bytes.NewReader(two.export(got.ID)))
	if err != nil || again.Snapshot.Name != "eight" || again.Snapshot.Origin.SnapshotID != got.ID {
		t.Errorf("imported again: %+v, %v", again, err)
	}
}

func TestExportIsOfTheOwner(t *testing.T) {
	r := newRig(t, signs(1))
	sn, _ := r.exported()
	begun := false
	begin := func() io.Writer { begun = true; return io.Discard }
	for _, id := range []string{sn.ID, "sn-none"} {
		if err := r.ExportSnapshot(context.Background(), "bob", id, begin); !errors.Is(err, fault.NotFound) {
			t.Errorf("bob exports %s: %v", id, err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "images", sn.ID, "image.json"), []byte("x\n{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.ExportSnapshot(context.Background(), "ann", sn.ID, begin); !errors.Is(err, fault.Conflict) {
		t.Errorf("a damaged one is exported: %v", err)
	}
	if begun {
		t.Error("an answer was begun that is an error")
	}
	none := newRig(t, nil)
	info := none.create(api.CreateSandboxRequest{})
	if err := none.ExportSnapshot(context.Background(), "ann", none.snapshot(info.ID, api.SnapshotRequest{}).ID, begin); !errors.Is(err, fault.Unsupported) {
		t.Errorf("exported without a key: %v", err)
	}
}

// What a server exported itself, a workspace takes in again. Everything else needs
// a key that the server trusts, and an administrator.
func TestTrust(t *testing.T) {
	one := newRig(t, signs(1))
	_, file := one.exported()
	ctx := context.Background()
	if _, err := one.ImportSnapshot(ctx, "ann", sandbox.Import{}, bytes.NewReader(file)); err != nil {
		t.Errorf("its own: %v", err)
	}
	if _, err := one.ImportSnapshot(ctx, "bob", sandbox.Import{}, bytes.NewReader(file)); !errors.Is(err, fault.Denied) {
		t.Errorf("another workspace's: %v", err)
	}
	if _, err := one.ImportSnapshot(ctx, "bob", sandbox.Import{Admin: true}, bytes.NewReader(file)); err != nil {
		t.Errorf("another workspace's, by an administrator: %v", err)
	}
	stranger := newRig(t, signs(2))
	said := stranger.notImported(file, sandbox.Import{Admin: true}, fault.Denied)
	if key := string(archive.KeyOf(signer(1))); !strings.Contains(said, key) || !strings.Contains(said, "snapshot_trusted_keys") {
		t.Errorf("it says %q, and not how to trust %s", said, key)
	}
	trusting := newRig(t, signs(2, archive.KeyOf(signer(1))))
	if said := trusting.notImported(file, sandbox.Import{}, fault.Denied); !strings.Contains(said, "admin") {
		t.Errorf("it says %q", said)
	}
}

// signedAs changes what an archive says, and signs it as the first server does.
func signedAs(t *testing.T, r *rig, sn api.Snapshot, change func(*archive.Manifest)) []byte {
	t.Helper()
	in, err := archive.Open(bytes.NewReader(r.export(sn.ID)), anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir := t.TempDir()
	if err := in.Extract(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	m := in.Manifest
	change(&m)
	var files []*os.File
	for _, f := range m.Files {
		file, err := os.Open(filepath.Join(dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		files = append(files, file)
	}
	var out bytes.Buffer
	if err := archive.Write(context.Background(), &out, signer(1), m, files); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What cannot be restored here is refused, and nothing of it stays.
func TestImportRefusals(t *testing.T) {
	one := newRig(t, signs(1))
	sn, file := one.exported()
	free := int64(64 << 30)
	two := newRig(t, func(c *sandbox.Config) {
		signs(2, archive.KeyOf(signer(1)))(c)
		c.DiskAvailable = func() (int64, error) { return free, nil }
		c.MaxMemoryMB, c.MaxDiskMB = 512, 512
	})
	admin := sandbox.Import{Admin: true}
	for name, c := range map[string]struct {
		change func(*archive.Manifest)
		want   error
		says   []string
	}{
		"another driver":       {func(m *archive.Manifest) { m.Driver.Name = "gvisor" }, fault.Conflict, []string{"gvisor"}},
		"another version":      {func(m *archive.Manifest) { m.Driver.Made = "fake 0" }, fault.Conflict, []string{"fake 0"}},
		"another processor":    {func(m *archive.Manifest) { m.Driver.Features = []string{"avx9"} }, fault.Conflict, []string{"avx9"}},
		"another architecture": {func(m *archive.Manifest) { m.Driver.Arch = "mips" }, fault.Conflict, []string{"mips", runtime.GOARCH}},
		"another template":     {func(m *archive.Manifest) { m.Template.Digest, m.Template.Rootfs = "d9", "r9" }, fault.Conflict, []string{"base", "d9", "d1", "pandastack template build base"}},
		"too long a name":      {func(m *archive.Manifest) { m.Snapshot.Name = strings.Repeat("x", 200) }, fault.Invalid, []string{"200 bytes"}},
		"too much metadata":    {func(m *archive.Manifest) { m.Snapshot.Metadata = manyPairs(1000) }, fault.Invalid, []string{"metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := two.notImported(signedAs(t, one, sn, c.change), admin, c.want)
			for _, word := range c.says {
				if !strings.Contains(said, word) {
					t.Errorf("it says %q, and nothing of %s", said, word)
				}
			}
		})
	}
	two.notImported(file, sandbox.Import{Admin: true, Name: strings.Repeat("x", 200)}, fault.Invalid)
	two.notImported(file[:len(file)/2], admin, fault.Invalid)
	two.notImported(file[:len(file)-1], admin, fault.Invalid)
	free = 512 << 20
	two.notImported(file, admin, fault.NoSpace)
	free = 64 << 30
	done, err := two.ImportSnapshot(context.Background(), "ann", admin, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if sn := done.Snapshot; sn.MemoryMB != 512 || sn.DiskMB != 512 {
		t.Errorf("more than this server gives: %+v", sn)
	}
	two.tmpls.lose("/gone")
	two.notImported(file, admin, fault.NotFound)
}

// A template need not be the same snapshot, but the same files.
func TestImportOnAnotherTemplate(t *testing.T) {
	one := newRig(t, signs(1))
	two := newRig(t, signs(2, archive.KeyOf(signer(1))))
	parts := func(r *rig, rootfs, contents string) {
		r.tmpls.mu.Lock()
		defer r.tmpls.mu.Unlock()
		r.tmpls.list[0].RootfsDigest, r.tmpls.list[0].ProgramsDigest = rootfs, "p"
		r.tmpls.list[0].Contents = func(context.Context) (string, error) { return contents, nil }
	}
	parts(one, "r", "c")
	_, file := one.exported()
	two.tmpls.replace("d9")
	two.tmpls.mu.Lock()
	two.tmpls.old = nil
	two.tmpls.mu.Unlock()
	parts(two, "other", "c")
	two.notImported(file, sandbox.Import{Admin: true}, fault.Conflict)
	parts(two, "r", "other")
	if said := two.notImported(file, sandbox.Import{Admin: true}, fault.Conflict); !strings.Contains(said, "other files") {
		t.Errorf("it says %q", said)
	}
	parts(two, "r", "c")
	done, err := two.ImportSnapshot(context.Background(), "ann", sandbox.Import{Admin: true}, bytes.NewReader(file))
	if err != nil || done.Snapshot.Digest != "d9" {
		t.Fatalf("imported %+v, %v", done, err)
	}
	made := two.create(api.CreateSandboxRequest{FromSnapshot: done.Snapshot.ID})
	if out := two.cell(made.ID, "e1", "print(a)"); out != "7\n" {
		t.Errorf("the copy has %q", out)
	}
}

// slow is a stream that waits in its middle.
type slow struct {
	io.Reader
	left    int
	reached chan struct{}
	goOn    chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left == 0 {
		close(s.reached)
		<-s.goOn
		s.left = -1
	}
	if s.left > 0 {
		p = p[:min(len(p), s.left)]
	}
	n, err := s.Reader.Read(p)
	if s.left > 0 {
		s.left -= n
	}
	return n, err
}

// Only so many come at once; who leaves in the middle leaves nothing.
func TestImportsAtOnce(t *testing.T) {
	r := newRig(t, signs(1))
	sn, _ := r.exported()
	noise := make([]byte, 4<<20) // so that its manifest is there long before its end
	rand.Read(noise)
	if err := os.WriteFile(filepath.Join(r.dir, "images", sn.ID, "noise"), noise, 0o600); err != nil {
		t.Fatal(err)
	}
	file := r.export(sn.ID)
	var started []*slow
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan error, 4)
	for _, left := range []int{0, 1, len(file) / 2, len(file) / 2} { // before its manifest was read, and behind it
		s := &slow{Reader: bytes.NewReader(file), left: left, reached: make(chan struct{}), goOn: make(chan struct{})}
		started = append(started, s)
		go func() {
			_, err := r.ImportSnapshot(ctx, "ann", sandbox.Import{}, s)
			ended <- err
		}()
		<-s.reached
	}
	r.notImported(file, sandbox.Import{}, fault.NoCapacity)
	r.notImported([]byte("it is not even looked at"), sandbox.Import{}, fault.NoCapacity)
	leave()
	for _, s := range started {
		close(s.goOn)
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("left, and it ended with %v", err)
		}
	}
	list, err := r.Snapshots(context.Background(), "ann", "")
	if err != nil || len(list) != 1 || len(r.images()) != 1 {
		t.Errorf("left: %+v, images %q, %v", list, r.images(), err)
	}
	if _, err := r.ImportSnapshot(context.Background(), "ann", sandbox.Import{}, bytes.NewReader(file)); err != nil {
		t.Errorf("then: %v", err)
	}
}

// A snapshot that is deleted while it is exported goes out whole.
func TestDeletedWhileExported(t *testing.T) {
	r := newRig(t, signs(1))
	sn, _ := r.exported()
	var out bytes.Buffer
	err := r.ExportSnapshot(context.Background(), "ann", sn.ID, func() io.Writer {
		if err := r.DeleteSnapshot(context.Background(), "ann", sn.ID); err != nil {
			t.Error(err)
		}
		return &out
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ImportSnapshot(context.Background(), "ann", sandbox.Import{}, &out); err != nil {
		t.Error(err)
	}
}

// One whose files are gone is refused before anything is sent.
func TestExportWithoutFiles(t *testing.T) {
	r := newRig(t, signs(1))
	sn, _ := r.exported()
	if err := os.RemoveAll(filepath.Join(r.dir, "images", sn.ID)); err != nil {
		t.Fatal(err)
	}
	err := r.ExportSnapshot(context.Background(), "ann", sn.ID, func() io.Writer {
		t.Error("it began")
		return io.Discard
	})
	if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "are gone") {
		t.Errorf("it was refused with %v", err)
	}
}

// A daemon that was killed in the middle of an import leaves nothing.
func TestKilledWhileImporting(t *testing.T) {
	r := newRig(t, signs(1))
	half := filepath.Join(r.dir, "images", ".import-1")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	r.restart()
	eventually(t, "it is adopted", func() bool { return r.Adopted(context.Background()) == nil })
	if images := r.images(); len(images) != 0 {
		t.Errorf("images: %q", images)
	}
}

// toolCheck is what knows which tools a caller could have given.
type toolCheck struct{ sandbox.Tools }

func (toolCheck) Forget(string) {}

func (toolCheck) Check(t *api.Tools) error {
	for _, m := range t.MCP {
		if len(m.Command) > 0 {
			return fault.InvalidField("tools.mcp", "only the server's settings may start a program")
		}
	}
	return nil
}

// A signature that is trusted starts no programs: what the tools of a snapshot are
// is held against what a caller can give.
func TestImportedToolsAreChecked(t *testing.T) {
	one := newRig(t, signs(1))
	sn, _ := one.exported()
	two := newRig(t, func(c *sandbox.Config) { signs(2, archive.KeyOf(signer(1)))(c); c.Tools = toolCheck{} })
	file := signedAs(t, one, sn, func(m *archive.Manifest) {
		m.Tools = &api.Tools{MCP: map[string]api.ToolMCP{"x": {Command: []string{"touch", "/tmp/x"}}}}
	})
	if said := two.notImported(file, sandbox.Import{Admin: true}, fault.Invalid); !strings.Contains(said, "start a program") {
		t.Errorf("it says %q", said)
	}
	newRig(t, signs(2, archive.KeyOf(signer(1)))).notImported(file, sandbox.Import{Admin: true}, fault.Unsupported) // it has no tools at all
}

// secretKeeper has policies that carry what they are told to.
type secretKeeper struct {
	sandbox.Policies
	has   map[string]bool
	admit archive.Network
}

func (s *secretKeeper) Show(store.Sandbox) api.NetworkInfo                { return api.NetworkInfo{} }
func (s *secretKeeper) Keep(context.Context, store.Sandbox, string) error { return nil }
func (s *secretKeeper) HasSecret(_ context.Context, _, name string) (bool, error) {
	return s.has[name], nil
}
func (s *secretKeeper) Packages(context.Context, store.Sandbox) (guestapi.Packages, error) {
	return guestapi.Packages{}, nil
}
func (s *secretKeeper) Carry(context.Context, store.Snapshot) (archive.Network, []api.SnapshotMissing, error) {
	return archive.Network{Names: []string{"example.com"}}, []api.SnapshotMissing{{Kind: api.MissingValue, Name: "Authorization", For: "example.com"}}, nil
}
func (s *secretKeeper) Admit(_ context.Context, _, _ string, n archive.Network) (store.Network, []api.SnapshotMissing, error) {
	s.admit = n
	return store.Network{}, []api.SnapshotMissing{{Kind: api.MissingPolicy, Name: "p"}}, nil
}

// Secrets stay behind, and what is missing is named.
func TestSecretsStay(t *testing.T) {
	keeper := &secretKeeper{has: map[string]bool{"known": true}}
	r := newRig(t, func(c *sandbox.Config) { signs(1)(c); c.Policies, c.Tools = keeper, toolCheck{} })
	info := r.create(api.CreateSandboxRequest{})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	row, err := r.store.Snapshot(context.Background(), sn.ID)
	if err != nil {
		t.Fatal(err)
	}
	row.ID = "sn-withtools"
	row.Tools = &api.Tools{
		HTTP: map[string]api.ToolHTTP{"crm": {URL: "https://user:pass-in-url@crm.example.com/api?v=2&token=tk", Headers: map[string]api.ToolHeader{
			"A": {Value: "plain-value"}, "B": {Ref: "known", Prefix: "Bearer "}, "C": {Ref: "unknown"},
		}}},
		MCP: map[string]api.ToolMCP{"mail": {URL: "https://mail.example.com", Headers: map[string]api.ToolHeader{"D": {Value: "plain-value"}}}},
	}
	if err := os.CopyFS(filepath.Join(r.dir, "images", row.ID), os.DirFS(filepath.Join(r.dir, "images", sn.ID))); err != nil {
		t.Fatal(err)
	}
	if err := r.store.AddSnapshot(context.Background(), row); err != nil {
		t.Fatal(err)
	}
	file := r.export(row.ID)
	in, err := archive.Open(bytes.NewReader(file), anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	crm := in.Manifest.Tools.HTTP["crm"]
	if len(crm.Headers) != 2 || crm.URL != "https://crm.example.com/api" || len(in.Manifest.Tools.MCP["mail"].Headers) != 0 {
		t.Errorf("exported: %+v", in.Manifest.Tools)
	}
	if kept, err := r.store.Snapshot(context.Background(), row.ID); err != nil || kept.Tools.HTTP["crm"].Headers["A"].Value != "plain-value" {
		t.Errorf("what is here changed: %+v, %v", kept.Tools, err)
	}
	done, err := r.ImportSnapshot(context.Background(), "ann", sandbox.Import{}, bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []api.SnapshotMissing{
		{Kind: "value", Name: "Authorization", For: "example.com"}, {Kind: "value", Name: "A", For: "crm"}, {Kind: "value", Name: "password", For: "crm"},
		{Kind: "value", Name: "?token", For: "crm"}, {Kind: "value", Name: "?v", For: "crm"},
		{Kind: "value", Name: "D", For: "mail"}, {Kind: "policy", Name: "p"}, {Kind: "secret", Name: "unknown", For: "crm"},
	}
	if !slices.Equal(done.Missing, want) {
		t.Errorf("missing:\n%+v\nnot\n%+v", done.Missing, want)
	}
	if !slices.Equal(keeper.admit.Names, []string{"example.com"}) {
		t.Errorf("the network is %+v", keeper.admit)
	}
}
