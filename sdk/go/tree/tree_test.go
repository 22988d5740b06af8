package tree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/sdk/go/tree"
)

var then = time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC)

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// state is what lies in a folder, a line each.
func state(t *testing.T, dir string) []string {
	t.Helper()
	var lines []string
	check(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		check(t, err)
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			return nil
		}
		info, err := d.Info()
		check(t, err)
		line := info.Mode().String() + " " + rel
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			check(t, err)
			line += " -> " + target
		case info.Mode().IsRegular():
			raw, err := os.ReadFile(p)
			check(t, err)
			line += " " + info.ModTime().UTC().Format(time.RFC3339Nano) + " " + string(raw)
		default:
			line += " " + info.ModTime().UTC().Format(time.RFC3339Nano)
		}
		lines = append(lines, line)
		return nil
	}))
	slices.Sort(lines)
	return lines
}

func TestAFolderComesOutAsItWentIn(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	check(t, os.MkdirAll(filepath.Join(from, "a/b/ü \xff"), 0o755))
	check(t, os.Mkdir(filepath.Join(from, "closed"), 0o700))
	for name, mode := range map[string]fs.FileMode{"a/run": 0o750, "a/b/" + strings.Repeat("long", 40): 0o644, "a/b/ü \xff/e": 0o600, "empty": 0o444, "set": 0o755 | fs.ModeSetuid} {
		check(t, os.WriteFile(filepath.Join(from, name), []byte("in "+name), 0o600))
		check(t, os.Chmod(filepath.Join(from, name), mode))
		check(t, os.Chtimes(filepath.Join(from, name), then, then))
	}
	check(t, os.Truncate(filepath.Join(from, "empty"), 0))
	check(t, os.Chtimes(filepath.Join(from, "empty"), then, then))
	check(t, os.Symlink("../a/run", filepath.Join(from, "a/link")))
	check(t, os.Symlink("/etc/passwd", filepath.Join(from, "out")))
	check(t, syscall.Mkfifo(filepath.Join(from, "fifo"), 0o600))
	for _, dir := range []string{"a/b/ü \xff", "a/b", "a", "closed"} {
		check(t, os.Chtimes(filepath.Join(from, dir), then, then))
	}
	var stream bytes.Buffer
	var left []string
	leave := func(name, _ string) { left = append(left, name) }
	packed, err := tree.Pack(&stream, open(t, from), tree.Options{LeftOut: leave})
	check(t, err)
	whole := stream.Bytes()
	unpacked, err := tree.Unpack(bytes.NewReader(whole), open(t, to), tree.Options{LeftOut: leave})
	check(t, err)
	want := slices.DeleteFunc(state(t, from), func(l string) bool { return strings.HasPrefix(l, "p") }) // the FIFO
	if got := state(t, to); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if packed.Files != 5 || packed.Folders != 4 || packed.Links != 2 || packed.LeftOut != 1 || unpacked.Bytes != packed.Bytes || !slices.Equal(left, []string{"fifo"}) {
		t.Errorf("%+v %+v, left out %q", packed, unpacked, left)
	}
	// Of somebody else's the link that leads out and the set-user-id bit do not come.
	foreign := t.TempDir()
	got, err := tree.Unpack(bytes.NewReader(whole), open(t, foreign), tree.Options{Foreign: true, LeftOut: leave})
	check(t, err)
	if got.LeftOut != 1 || left[len(left)-1] != "out" {
		t.Errorf("%+v %q", got, left)
	}
	if info, err := os.Stat(filepath.Join(foreign, "set")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	// Again over what is there: the same.
	_, err = tree.Unpack(bytes.NewReader(whole), open(t, to), tree.Options{})
	check(t, err)
	if got := state(t, to); !slices.Equal(got, want) {
		t.Errorf("the second time %q", got)
	}
	// A part of it is not taken for the whole.
	for _, n := range []int{1, 700, len(whole) / 2} {
		if _, err := tree.Unpack(bytes.NewReader(whole[:n]), open(t, t.TempDir()), tree.Options{}); !errors.Is(err, tree.ErrFormat) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

type entry struct {
	kind       byte
	name, link string
}

func stream(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: 0o644, ModTime: then}
		if e.kind == tar.TypeReg {
			h.Size = 4
		}
		check(t, w.WriteHeader(h))
		if e.kind == tar.TypeReg {
			_, err := io.WriteString(w, "evil")
			check(t, err)
		}
	}
	check(t, w.Close())
	return &b
}

// Whatever a stream says, nothing outside of the folder is touched, and through
// what comes from somebody else nothing can be reached there either.
func TestNothingLeavesTheFolder(t *testing.T) {
	const file, link, hard, dir = tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeDir
	for name, entries := range map[string][]entry{
		"above":                           {{file, "../victim", ""}},
		"above, later":                    {{dir, "a/", ""}, {file, "a/../../victim", ""}},
		"absolute":                        {{file, "/victim", ""}},
		"through a link":                  {{link, "a", ".."}, {file, "a/victim", ""}},
		"through an absolute link":        {{link, "a", "OUT"}, {file, "a/victim", ""}},
		"onto a link":                     {{link, "a", "../victim"}, {file, "a", ""}},
		"a folder onto a link":            {{link, "a", ".."}, {dir, "a/", ""}, {file, "a/victim", ""}},
		"a hard link to what is out":      {{hard, "a", "../victim"}, {file, "a", ""}},
		"a hard link through a link":      {{link, "l", ".."}, {hard, "a", "l/victim"}, {file, "a", ""}},
		"links that add up":               {{dir, "sub/", ""}, {link, "sub/b", ".."}, {link, "a", "sub/b/.."}, {file, "a/victim", ""}},
		"a link below a link":             {{dir, "d/", ""}, {link, "d/up", ".."}, {link, "d/up/x", "../victim"}, {file, "d/up/x", ""}},
		"a device":                        {{tar.TypeChar, "dev", ""}, {tar.TypeBlock, "disk", ""}, {tar.TypeFifo, "fifo", ""}},
		"a link in place of a folder":     {{dir, "a/", ""}, {file, "a/x", ""}, {link, "a", ".."}, {file, "a/victim", ""}},
		"a name that is all dots":         {{file, "..", ""}},
		"a name with a link in its midst": {{link, "a", "."}, {file, "a/a/../../victim", ""}},
	} {
		for _, foreign := range []bool{false, true} {
			above := t.TempDir()
			in := filepath.Join(above, "in")
			check(t, os.Mkdir(in, 0o755))
			check(t, os.WriteFile(filepath.Join(above, "victim"), []byte("good"), 0o600))
			for i := range entries {
				entries[i].link = strings.Replace(entries[i].link, "OUT", above, 1)
			}
			_, err := tree.Unpack(stream(t, entries...), open(t, in), tree.Options{Foreign: foreign})
			if raw, rerr := os.ReadFile(filepath.Join(above, "victim")); rerr != nil || string(raw) != "good" {
				t.Errorf("%s (foreign %v): %q %v", name, foreign, raw, rerr)
			}
			if list, _ := os.ReadDir(above); len(list) != 2 {
				t.Errorf("%s: %v was made outside; %v", name, list, err)
			}
			if !foreign {
				continue
			}
			// Through no name in it can anybody come out.
			check(t, filepath.WalkDir(in, func(p string, d fs.DirEntry, err error) error {
				check(t, err)
				real, err := filepath.EvalSymlinks(p)
				if err == nil && real != in && !strings.HasPrefix(real, in+"/") {
					t.Errorf("%s: %s leads to %s", name, p, real)
				}
				if d.Type()&(fs.ModeDevice|fs.ModeNamedPipe) != 0 {
					t.Errorf("%s: %s is %s", name, p, d.Type())
				}
				return nil
			}))
		}
	}
}

func TestWhatIsThereAlready(t *testing.T) {
	dir := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(dir, "folder/sub"), 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "file"), []byte("old"), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "folder/stays"), []byte("old"), 0o600))
	root := open(t, dir)
	done, err := tree.Unpack(stream(t, entry{tar.TypeDir, "folder/", ""}, entry{tar.TypeReg, "file", ""}, entry{tar.TypeReg, "folder/new", ""}), root, tree.Options{})
	check(t, err)
	if raw, _ := os.ReadFile(filepath.Join(dir, "file")); string(raw) != "evil" || done.Files != 2 {
		t.Errorf("%q %+v", raw, done)
	}
	if _, err := os.Stat(filepath.Join(dir, "folder/stays")); err != nil {
		t.Error(err)
	}
	var at *tree.Error
	_, err = tree.Unpack(stream(t, entry{tar.TypeReg, "first", ""}, entry{tar.TypeReg, "folder", ""}), root, tree.Options{})
	if !errors.As(err, &at) || !errors.Is(err, syscall.EISDIR) || at.Name != "folder" || at.Done.Files != 1 || at.Done.Bytes != 4 {
		t.Errorf("%v", err)
	}
	if _, err = tree.Unpack(stream(t, entry{tar.TypeDir, "file/", ""}), root, tree.Options{}); err == nil {
		t.Error("a folder took the place of a file")
	}
	if list, _ := filepath.Glob(filepath.Join(dir, ".pandastack*")); len(list) > 0 {
		t.Errorf("left behind: %q", list)
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../victim"})
	_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "a/../b", Size: 1})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		above := t.TempDir()
		in := filepath.Join(above, "in")
		check(t, os.Mkdir(in, 0o755))
		_, _ = tree.Unpack(bytes.NewReader(raw), open(t, in), tree.Options{Foreign: true})
		if list, _ := os.ReadDir(above); len(list) != 1 {
			t.Errorf("%v was made outside", list)
		}
	})
}
