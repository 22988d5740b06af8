package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

var signer = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func sample() Manifest {
	return Manifest{
		Version: "v1", ExportedAt: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Workspace: "ann",
		Snapshot: Snapshot{ID: "sn-1", Name: "evening", SandboxID: "sb-1", Metadata: map[string]string{"a": "b"}, Generation: 3, Contexts: []string{"default"}},
		Template: Template{Name: "base", Digest: "d", Rootfs: "r", Programs: "p", Contents: "c"},
		Driver:   Driver{Name: "fake", Made: "fake 1", Arch: "amd64", Features: []string{"fpu"}},
		Limits:   Limits{CPU: 1, MemoryMB: 256, DiskMB: 256, PIDs: 64},
		Network:  Network{Secrets: map[string]api.SecretShown{"example.com": {Header: "Authorization", Ref: "r"}}, Names: []string{"example.com"}},
	}
}

// folder makes a snapshot's folder: one file of this size is mostly zeros.
func folder(t testing.TB, size int) (contents map[string][]byte, files []*os.File, described []File) {
	t.Helper()
	dir := t.TempDir()
	pages := make([]byte, size)
	copy(pages[size/2:], "in the middle")
	contents = map[string][]byte{"complete.json": []byte(`{"made":"x"}`), "empty": {}, "pages.img": pages}
	for _, name := range []string{"complete.json", "empty", "pages.img"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, contents[name], 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		sum, err := Sum(context.Background(), name, f)
		if err != nil {
			t.Fatal(err)
		}
		files, described = append(files, f), append(described, sum)
	}
	return contents, files, described
}

func written(t testing.TB, size int) (archive []byte, contents map[string][]byte, m Manifest) {
	t.Helper()
	contents, files, described := folder(t, size)
	m = sample()
	m.Files = described
	for _, f := range described {
		m.Bytes += f.Bytes
	}
	var out bytes.Buffer
	if err := Write(context.Background(), &out, signer, m, files); err != nil {
		t.Fatal(err)
	}
	m.Format = Format
	return out.Bytes(), contents, m
}

func anyone(Key) error { return nil }

// read takes an archive in whole and gives its files.
func read(t testing.TB, in io.Reader) (m Manifest, files map[string][]byte, err error) {
	t.Helper()
	r, err := Open(in, anyone)
	if err != nil {
		return m, nil, err
	}
	defer r.Close()
	dir := t.TempDir()
	if err := r.Extract(context.Background(), dir); err != nil {
		return r.Manifest, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return r.Manifest, files, nil
}

func TestRoundTrip(t *testing.T) {
	archive, contents, m := written(t, 8<<20)
	if len(archive) > 16<<10 {
		t.Errorf("8 MiB of zeros became %d bytes", len(archive))
	}
	got, files, err := read(t, bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("the manifest\n%+v became\n%+v", m, got)
	}
	if !reflect.DeepEqual(files, contents) {
		t.Error("the files are not what they were")
	}
	r, err := Open(bytes.NewReader(archive), anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Key != KeyOf(signer) {
		t.Errorf("signed by %s, not %s", r.Key, KeyOf(signer))
	}
}

// Pages of zeros take no disk.
func TestHoles(t *testing.T) {
	archive, _, _ := written(t, 8<<20)
	r, err := Open(bytes.NewReader(archive), anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	if err := r.Extract(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "pages.img"))
	if err != nil {
		t.Fatal(err)
	}
	if used := blocks(info) * 512; info.Size() != 8<<20 || used > 1<<20 {
		t.Errorf("%d bytes take %d on the disk", info.Size(), used)
	}
}

// Wherever it is cut, it is refused.
func TestTruncated(t *testing.T) {
	archive, _, _ := written(t, 8<<10)
	for n := range archive {
		if _, _, err := read(t, bytes.NewReader(archive[:n])); !errors.Is(err, fault.Invalid) {
			t.Fatalf("of %d bytes, cut at %d: %v", len(archive), n, err)
		}
	}
}

// Whatever bit is another one, it is refused.
func TestFlipped(t *testing.T) {
	archive, contents, _ := written(t, 8<<10)
	for n := range archive {
		bad := slices.Clone(archive)
		bad[n] ^= 1 << (n % 8)
		_, files, err := read(t, bytes.NewReader(bad))
		var known *fault.Error
		if err == nil && reflect.DeepEqual(files, contents) {
			continue // a bit that means nothing
		}
		if !errors.As(err, &known) {
			t.Fatalf("a bit of byte %d of %d: %v", n, len(archive), err)
		}
	}
}

func TestFileThatChanges(t *testing.T) {
	_, files, described := folder(t, 8<<10)
	m := sample()
	m.Files, m.Bytes = described, described[0].Bytes+described[1].Bytes+described[2].Bytes
	if err := os.WriteFile(files[0].Name(), []byte(`{"made":"y"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(context.Background(), io.Discard, signer, m, files); !errors.Is(err, fault.Conflict) {
		t.Errorf("it was exported: %v", err)
	}
}

func TestGivenUp(t *testing.T) {
	archive, _, _ := written(t, 8<<10)
	r, err := Open(bytes.NewReader(archive), anyone)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	why := errors.New("the key has ended")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if err := r.Extract(ctx, t.TempDir()); !errors.Is(err, why) {
		t.Errorf("it goes on: %v", err)
	}
}

// member is a member of an archive that is made by hand.
type member struct {
	tar.Header
	content []byte
}

func plain(name string, content []byte) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o600, Format: tar.FormatGNU}, content}
}

// forged makes an archive with a right signature of whatever manifest, and members of any kind.
func forged(t testing.TB, manifest any, members ...member) []byte {
	t.Helper()
	raw, ok := manifest.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(manifest); err != nil {
			t.Fatal(err)
		}
	}
	sig, err := sign(signer, raw)
	if err != nil {
		t.Fatal(err)
	}
	return packed(t, append([]member{plain(manifestName, raw), plain(signatureName, sig)}, members...)...)
}

func packed(t testing.TB, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, m := range members {
		if err := w.WriteHeader(&m.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.content); err != nil && !errors.Is(err, tar.ErrWriteTooLong) {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// with is a manifest of these files.
func with(change func(*Manifest), files ...File) Manifest {
	m := sample()
	m.Format = Format
	m.Files = files
	for _, f := range files {
		m.Bytes += f.Bytes
	}
	if change != nil {
		change(&m)
	}
	return m
}

func sumOf(name string, content []byte) File {
	sum := sha256.Sum256(content)
	return File{name, int64(len(content)), hex.EncodeToString(sum[:])}
}

func TestHostile(t *testing.T) {
	a, b := []byte("aaaa"), []byte("bb")
	fileA, fileB := sumOf("a", a), sumOf("b", b)
	link := member{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd", Format: tar.FormatGNU}, nil}
	dir := member{tar.Header{Typeflag: tar.TypeDir, Name: "a", Format: tar.FormatGNU}, nil}
	pax := plain("a", a)
	pax.Format, pax.PAXRecords = tar.FormatPAX, map[string]string{"PANDASTACK.x": "y"}
	for name, archive := range map[string][]byte{
		"nothing":                  nil,
		"no compression":           []byte(strings.Repeat("x", 4096)),
		"no manifest":              packed(t),
		"another first":            packed(t, plain("a", a)),
		"no signature":             packed(t, plain(manifestName, []byte("{}"))),
		"manifest twice":           packed(t, plain(manifestName, []byte("{}")), plain(manifestName, []byte("{}"))),
		"no JSON":                  forged(t, []byte("x")),
		"no format":                forged(t, []byte("{}")),
		"no files":                 forged(t, with(nil)),
		"a path that leads out":    forged(t, with(nil, File{"../a", 4, fileA.SHA256}), plain("../a", a)),
		"an absolute path":         forged(t, with(nil, File{"/etc/a", 4, fileA.SHA256}), plain("/etc/a", a)),
		"a hidden file":            forged(t, with(nil, File{".a", 4, fileA.SHA256}), plain(".a", a)),
		"a folder":                 forged(t, with(nil, File{"a/b", 4, fileA.SHA256}), plain("a/b", a)),
		"a name with a line end":   forged(t, with(nil, File{"a\n", 4, fileA.SHA256}), plain("a\n", a)),
		"a file twice":             forged(t, with(nil, fileA, fileA), plain("a", a), plain("a", a)),
		"a member twice":           forged(t, with(nil, fileA, fileB), plain("a", a), plain("a", a)),
		"one too many":             forged(t, with(nil, fileA), plain("a", a), plain("b", b)),
		"one missing":              forged(t, with(nil, fileA, fileB), plain("a", a)),
		"another order":            forged(t, with(nil, fileA, fileB), plain("b", b), plain("a", a)),
		"a link":                   forged(t, with(nil, fileA), link),
		"a folder for a file":      forged(t, with(nil, fileA), dir),
		"records of its own":       forged(t, with(nil, fileA), pax),
		"another size":             forged(t, with(nil, fileA), plain("a", b)),
		"another content":          forged(t, with(nil, fileA), plain("a", []byte("aaab"))),
		"a huge size":              forged(t, with(nil, File{"a", 1 << 60, fileA.SHA256}), plain("a", a)),
		"sizes that overflow":      forged(t, with(nil, File{"a", maxBytes, fileA.SHA256}, File{"b", maxBytes, fileA.SHA256})),
		"a size below zero":        forged(t, with(nil, File{"a", -1, fileA.SHA256}), plain("a", a)),
		"a sum that is none":       forged(t, with(func(m *Manifest) { m.Bytes++ }, fileA), plain("a", a)),
		"a hash that is none":      forged(t, with(nil, File{"a", 4, "x"}), plain("a", a)),
		"an id with a path":        forged(t, with(func(m *Manifest) { m.Snapshot.ID = "../x" }, fileA), plain("a", a)),
		"names that are none":      forged(t, with(func(m *Manifest) { m.Network.Names = []string{"a\nb"} }, fileA), plain("a", a)),
		"too many names":           forged(t, with(func(m *Manifest) { m.Network.Names = make([]string, maxNames+1) }, fileA), plain("a", a)),
		"no memory":                forged(t, with(func(m *Manifest) { m.Limits.MemoryMB = 0 }, fileA), plain("a", a)),
		"a manifest too large":     packed(t, plain(manifestName, make([]byte, maxManifest+1))),
		"a signature too large":    packed(t, plain(manifestName, []byte("{}")), plain(signatureName, make([]byte, maxSignature+1))),
		"more after its end":       append(forged(t, with(nil, fileA), plain("a", a)), packed(t, plain("x", make([]byte, 1<<20)))...),
		"names that do not end":    forged(t, with(nil, fileA), plain(strings.Repeat("a", 1<<20-1), a)),
		"a window that is too big": windowed(t, 64<<20),
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(t, bytes.NewReader(archive))
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("it was taken for: %v", err)
			}
		})
	}
}

// windowed is a stream that asks whoever reads it for a lot of memory.
func windowed(t *testing.T, window int) []byte {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithWindowSize(window), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, window+1)
	for i := range noise {
		noise[i] = byte(i * i >> 7)
	}
	if _, err := z.Write(noise); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// endless gives the beginning of an archive, and then the same bytes for ever.
type endless struct {
	start, again *bytes.Reader
	read         int64
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.start.Read(p)
	if n == 0 {
		if n, err = e.again.Read(p); n == 0 {
			_, err = e.again.Seek(0, io.SeekStart)
		}
	}
	e.read += int64(n)
	return n, err
}

// What never ends is given up, whether it is small when compressed or not.
func TestEndless(t *testing.T) {
	a := []byte("aaaa")
	skipped := append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 1, 0}, make([]byte, 1<<16)...) // a frame that decoders jump over
	more := packed(t, plain("x", make([]byte, 8<<20)))
	for name, in := range map[string]*endless{
		"nothing but frames without content": {start: bytes.NewReader(nil), again: bytes.NewReader(skipped)},
		"frames without content at its end":  {start: bytes.NewReader(forged(t, with(nil, sumOf("a", a)), plain("a", a))), again: bytes.NewReader(skipped)},
		"zeros at its end":                   {start: bytes.NewReader(forged(t, with(nil, sumOf("a", a)), plain("a", a))), again: bytes.NewReader(more)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := read(t, in); !errors.Is(err, fault.Invalid) {
				t.Errorf("it was taken for: %v", err)
			}
			if most := int64(maxManifest + 2*slack); in.read > most {
				t.Errorf("%d bytes of it were read", in.read)
			}
		})
	}
}

func TestNewerFormat(t *testing.T) {
	archive := forged(t, []byte(fmt.Sprintf(`{"format": %d, "files": "in another way"}`, Format+1)))
	_, _, err := read(t, bytes.NewReader(archive))
	if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "newer") {
		t.Errorf("it was taken for: %v", err)
	}
}

// A manifest that another key signed, or that was changed, is not of this key.
func TestSignatures(t *testing.T) {
	raw, err := json.Marshal(with(nil, sumOf("a", []byte("aaaa"))))
	if err != nil {
		t.Fatal(err)
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	sig, err := json.Marshal(signature{KeyOf(signer), ed25519.Sign(other, signed(raw))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(raw, sig); !errors.Is(err, fault.Invalid) {
		t.Errorf("another's signature holds: %v", err)
	}
	bare, err := json.Marshal(signature{KeyOf(signer), ed25519.Sign(signer, raw)}) // of something else that this key signs
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(raw, bare); !errors.Is(err, fault.Invalid) {
		t.Errorf("a signature of other things holds: %v", err)
	}
	good, err := sign(signer, raw)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := verify(raw, good); err != nil || key != KeyOf(signer) {
		t.Errorf("the right one: %s, %v", key, err)
	}
}

// Anybody can sign what takes many times its size when it is taken apart.
func TestDistrusted(t *testing.T) {
	const list = `{"format":1,"files":[{}`
	raw := append(append([]byte(list), bytes.Repeat([]byte(",{}"), (maxManifest-len(list)-2)/3)...), "]}"...)
	file := forged(t, raw)
	refused := fault.New("denied", "not by %s", KeyOf(signer))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Open(bytes.NewReader(file), func(Key) error { return refused })
	runtime.ReadMemStats(&after)
	if !errors.Is(err, refused) {
		t.Errorf("it was opened: %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8*maxManifest {
		t.Errorf("refusing %d bytes took %d MB of memory", len(file), took>>20)
	}
}

func TestKeys(t *testing.T) {
	key := KeyOf(signer)
	if got, err := ParseKey(string(key)); err != nil || got != key {
		t.Errorf("%s is %s, %v", key, got, err)
	}
	for _, word := range []string{"", "ed25519:", string(key) + "A", string(key[:len(key)-1]), strings.TrimPrefix(string(key), keyPrefix), "rsa:" + string(key)} {
		if _, err := ParseKey(word); !errors.Is(err, fault.Invalid) {
			t.Errorf("%q is a key: %v", word, err)
		}
	}
}

// FuzzRead reads what may be anything.
func FuzzRead(f *testing.F) {
	archive, _, _ := written(f, 8<<10)
	f.Add(archive)
	f.Add(archive[:len(archive)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		_, _, err := read(t, bytes.NewReader(in))
		var known *fault.Error
		if err != nil && !errors.As(err, &known) {
			t.Errorf("an error without a kind: %v", err)
		}
	})
}

// FuzzSigned reads what somebody signed who must not be believed: any manifest,
// and a tar stream of any kind behind it.
func FuzzSigned(f *testing.F) {
	a := []byte("aaaa")
	raw, err := json.Marshal(with(nil, sumOf("a", a)))
	if err != nil {
		f.Fatal(err)
	}
	var rest bytes.Buffer
	w := tar.NewWriter(&rest)
	m := plain("a", a)
	if err := w.WriteHeader(&m.Header); err != nil {
		f.Fatal(err)
	}
	if _, err := w.Write(a); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(raw, rest.Bytes())
	f.Add([]byte(`{"format":2}`), []byte{})
	f.Fuzz(func(t *testing.T, manifest, rest []byte) {
		sig, err := sign(signer, manifest)
		if err != nil {
			t.Fatal(err)
		}
		var in bytes.Buffer
		z, err := zstd.NewWriter(&in, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(z)
		for _, m := range []member{plain(manifestName, manifest), plain(signatureName, sig)} {
			if err := w.WriteHeader(&m.Header); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(m.content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(rest); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		said, files, err := read(t, &in)
		var known *fault.Error
		if err != nil && !errors.As(err, &known) {
			t.Errorf("an error without a kind: %v", err)
		}
		if err != nil {
			return
		}
		for _, want := range said.Files {
			if got := sumOf(want.Name, files[want.Name]); got != want {
				t.Errorf("%+v was taken in as %+v", want, got)
			}
		}
		if len(files) != len(said.Files) {
			t.Errorf("%d files became %d", len(said.Files), len(files))
		}
	})
}
