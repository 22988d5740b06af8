package watch_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestd/files"
	"github.com/pandastack/pandastack/internal/guestd/watch"
)

// watching is a folder that is watched.
type watching struct {
	*testing.T
	dir     string
	watcher *watch.Watcher
	events  chan api.FileEvent
	gone    chan bool
}

func begin(t *testing.T, o watch.Options) *watching {
	t.Helper()
	if o.Path == "" {
		o.Path = t.TempDir()
	}
	w, err := watch.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	s := &watching{T: t, dir: o.Path, watcher: w, events: make(chan api.FileEvent, 10_000), gone: make(chan bool, 1)}
	go func() { s.gone <- w.Run(func(e api.FileEvent) { s.events <- e }) }()
	t.Cleanup(w.Close)
	return s
}

// told gives what is told up to an event that this makes, one on a line.
func (s *watching) told() []string {
	s.Helper()
	const last = "the last one"
	if err := os.WriteFile(filepath.Join(s.dir, last), nil, 0o644); err != nil {
		s.Fatal(err)
	}
	var lines []string
	for e := range s.events {
		line := s.line(e)
		if strings.HasSuffix(line, last) {
			if strings.HasPrefix(line, "close") {
				_ = os.Remove(filepath.Join(s.dir, last))
				for e := range s.events {
					if e.Type == api.FileRemove {
						break
					}
				}
				return lines
			}
			continue
		}
		if len(lines) == 0 || lines[len(lines)-1] != line { // writes may be one or two
			lines = append(lines, line)
		}
	}
	return nil
}

func (s *watching) line(e api.FileEvent) string {
	short := func(path string) string {
		return strings.TrimPrefix(strings.TrimPrefix(path, s.dir), "/")
	}
	line := e.Type + " " + short(e.Path)
	if e.IsDir {
		line += "/"
	}
	if e.From != "" {
		line += " from " + short(e.From)
	}
	if e.Reason != "" {
		line += e.Reason
	}
	return line
}

func (s *watching) is(want ...string) {
	s.Helper()
	if got := s.told(); !slices.Equal(got, want) {
		s.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (s *watching) do(what func() error) {
	s.Helper()
	if err := what(); err != nil {
		s.Fatal(err)
	}
}

func (s *watching) at(name string) string { return filepath.Join(s.dir, name) }

func (s *watching) write(name string) {
	s.Helper()
	s.do(func() error { return os.WriteFile(s.at(name), []byte("x"), 0o644) })
}

func TestFilesOfAFolder(t *testing.T) {
	s := begin(t, watch.Options{})
	s.write("a")
	s.is("create a", "write a", "close a")
	s.do(func() error { return os.Chmod(s.at("a"), 0o600) })
	s.is("chmod a")
	s.do(func() error { return os.Rename(s.at("a"), s.at("b")) })
	s.is("rename b from a")
	s.do(func() error { return os.Remove(s.at("b")) })
	s.is("remove b")
	s.do(func() error { return os.Mkdir(s.at("dir"), 0o755) })
	s.write("dir/below")
	s.is("create dir/") // it is not recursive
	outside := t.TempDir()
	s.do(func() error { return os.WriteFile(filepath.Join(outside, "c"), nil, 0o644) })
	s.do(func() error { return os.Rename(filepath.Join(outside, "c"), s.at("c")) })
	s.do(func() error { return os.Rename(s.at("c"), filepath.Join(outside, "d")) })
	s.is("create c", "close c", "remove c")
	s.do(func() error { return os.Symlink("/etc/passwd", s.at("link")) })
	s.is("create link")
	odd := "\xff\n"
	s.write(odd)
	s.do(func() error { return os.Remove(s.at(odd)) })
	if got := s.told(); len(got) != 4 || got[3] != "remove \uFFFD\n" {
		t.Errorf("%q", got)
	}
}

// What the agent writes itself is there at once, under one name.
func TestWritesOfTheAgent(t *testing.T) {
	s := begin(t, watch.Options{Recursive: true})
	s.do(func() error { return os.Mkdir(s.at("new"), 0o755) })
	s.is("create new/")
	for range 2 {
		s.do(func() error {
			_, err := files.Write(s.at("new/a"), strings.NewReader("x"), files.Options{})
			return err
		})
	}
	s.is("create new/a", "close new/a", "write new/a", "close new/a")
	s.do(func() error {
		_, err := files.Write(s.at("new/a"), strings.NewReader("y"), files.Options{Append: true})
		return err
	})
	s.is("write new/a", "close new/a")
}

func TestFoldersThatMove(t *testing.T) {
	s := begin(t, watch.Options{Recursive: true})
	s.do(func() error { return os.MkdirAll(s.at("a/b/c"), 0o755) })
	s.is("create a/", "create a/b/", "create a/b/c/")
	s.do(func() error { return os.Rename(s.at("a/b"), s.at("d")) })
	s.is("rename d/ from a/b")
	s.write("d/c/file")
	s.is("create d/c/file", "write d/c/file", "close d/c/file")
	outside := t.TempDir()
	s.do(func() error { return os.Rename(s.at("d"), filepath.Join(outside, "d")) })
	s.is("remove d/")
	s.do(func() error { return os.WriteFile(filepath.Join(outside, "d/c/more"), nil, 0o644) })
	s.is()
	s.do(func() error { return os.Rename(filepath.Join(outside, "d"), s.at("a/e")) })
	got := s.told()
	slices.Sort(got)
	if want := []string{"close a/e/c/file", "close a/e/c/more", "create a/e/", "create a/e/c/", "create a/e/c/file", "create a/e/c/more"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.write("a/e/c/file")
	s.is("write a/e/c/file", "close a/e/c/file")
	s.do(func() error { return os.RemoveAll(s.at("a")) })
	got = s.told()
	slices.Sort(got)
	if want := []string{"remove a/", "remove a/e/", "remove a/e/c/", "remove a/e/c/file", "remove a/e/c/more"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// A folder over an empty one.
	s.do(func() error { return os.MkdirAll(s.at("x/in"), 0o755) })
	s.do(func() error { return os.Mkdir(s.at("y"), 0o755) })
	s.told()
	s.do(func() error { return unix.Rename(s.at("x"), s.at("y")) })
	s.is("rename y/ from x")
	s.write("y/in/f")
	s.is("create y/in/f", "write y/in/f", "close y/in/f")
}

// What is put into new folders while the watch is only about to look at them is
// told, once.
func TestNothingIsMissedInNewFolders(t *testing.T) {
	s := begin(t, watch.Options{Recursive: true})
	want := map[string]bool{}
	for i := range 300 {
		dir := fmt.Sprintf("d%d/e/f", i)
		s.do(func() error { return os.MkdirAll(s.at(dir), 0o755) })
		s.write(dir + "/file")
		for _, name := range []string{fmt.Sprintf("d%d/", i), fmt.Sprintf("d%d/e/", i), dir + "/", dir + "/file"} {
			want["create "+name] = true
		}
	}
	got := map[string]int{}
	for _, line := range s.told() {
		if strings.HasPrefix(line, "create ") {
			got[line]++
		}
	}
	for line := range want {
		if got[line] != 1 {
			t.Errorf("%q was told %d times", line, got[line])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d things were made, and %d told", len(want), len(got))
	}
}

// Links are not followed: neither into a folder outside, nor in a circle.
func TestLinksBelowAreNotFollowed(t *testing.T) {
	s := begin(t, watch.Options{Recursive: true})
	outside := t.TempDir()
	s.do(func() error { return os.Symlink(outside, s.at("out")) })
	s.do(func() error { return os.Symlink(s.dir, s.at("round")) })
	s.is("create out", "create round")
	s.do(func() error { return os.WriteFile(filepath.Join(outside, "f"), nil, 0o644) })
	s.is()
	// The path itself may be a link: what it led to is watched, under its name.
	link := filepath.Join(t.TempDir(), "link")
	s.do(func() error { return os.Symlink(outside, link) })
	by := begin(t, watch.Options{Path: link, Recursive: true})
	by.write("g")
	by.is("create g", "write g", "close g")
}

func TestAFileThatIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "conf")
	for _, name := range []string{"conf", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := begin(t, watch.Options{Path: path})
	next := func() string { return s.line(<-s.events) }
	s.do(func() error { return os.WriteFile(filepath.Join(dir, "other"), []byte("x"), 0o644) })
	s.do(func() error { return os.Rename(filepath.Join(dir, "other"), path) })
	if got := []string{next(), next()}; !slices.Equal(got, []string{"create ", "close "}) {
		t.Errorf("%q", got)
	}
	s.do(func() error { return os.Remove(path) })
	if got := next(); got != "remove " {
		t.Errorf("%q", got)
	}
	s.do(func() error { _, err := files.Write(path, strings.NewReader("x"), files.Options{}); return err })
	if got := []string{next(), next()}; !slices.Equal(got, []string{"create ", "close "}) {
		t.Errorf("%q", got)
	}
	s.do(func() error { return os.RemoveAll(dir) })
	for next() != "remove " {
	}
	if !<-s.gone {
		t.Error("the folder of the file is gone, and the watch goes on")
	}
}

func TestTheEndOfAWatch(t *testing.T) {
	for name, end := range map[string]func(dir string) error{
		"removed": os.Remove,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".old") },
	} {
		s := begin(t, watch.Options{Path: filepath.Join(mkdir(t, "top"), "top"), Recursive: true})
		s.do(func() error { return end(s.dir) })
		if !<-s.gone {
			t.Errorf("%s: it goes on", name)
		}
	}
	s := begin(t, watch.Options{})
	s.watcher.Close()
	if <-s.gone {
		t.Error("it was closed, and says that what it watches is gone")
	}
}

func mkdir(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatCannotBeWatched(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{filepath.Join(dir, "none"): fault.NotFound, "/proc/self": fault.Invalid, "/proc": fault.Invalid, dir: fault.Invalid} {
		if _, err := watch.Start(watch.Options{Path: path, Recursive: true, Folders: 5}); !errors.Is(err, want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// That many fit. One more is said not to be watched, and is told of itself.
	s := begin(t, watch.Options{Path: dir, Recursive: true, Folders: 6})
	s.do(func() error { return os.MkdirAll(s.at("more/below"), 0o755) })
	s.is("create more/", "overflow more/folders")
	s.write("more/f")
	s.is()
	s.do(func() error { return os.Remove(s.at("0")) })
	s.do(func() error { return os.Mkdir(s.at("fits"), 0o755) })
	s.write("fits/f")
	got := s.told()
	if len(got) < 3 || got[0] != "remove 0/" || !slices.Contains(got, "create fits/f") {
		t.Errorf("%q", got)
	}
}

// Events that came too fast are lost, and that is said; what comes after is told
// again, of folders that came meanwhile too.
func TestTooManyChanges(t *testing.T) {
	w, err := watch.Start(watch.Options{Path: t.TempDir(), Recursive: true, Queue: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := &watching{T: t, dir: w.Path, watcher: w, events: make(chan api.FileEvent, 10_000), gone: make(chan bool, 1)}
	for i := range 2000 {
		s.write(fmt.Sprintf("f%d", i))
	}
	s.do(func() error { return os.MkdirAll(s.at("deep/er"), 0o755) })
	go w.Run(func(e api.FileEvent) { s.events <- e })
	for n := 0; s.line(<-s.events) != "overflow queue"; n++ {
		if n > 5000 {
			t.Fatal("nothing was lost")
		}
	}
	s.told()
	s.write("deep/er/f")
	s.is("create deep/er/f", "write deep/er/f", "close deep/er/f")
}

// The kernel's own word for it.
func TestOverflowOfTheKernel(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Skip("this kernel does not say how many events wait at most")
	}
	var most int
	if _, err := fmt.Sscan(string(raw), &most); err != nil || most > 100_000 {
		t.Skipf("%d events would have to wait: %v", most, err)
	}
	dir := t.TempDir()
	w, err := watch.Start(watch.Options{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, path := range []string{a, b} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range most { // two events each, and none like the one before
		for _, path := range []string{a, b} {
			if err := unix.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	seen := make(chan bool)
	go w.Run(func(e api.FileEvent) {
		if e.Type == api.FileOverflow && e.Reason == api.OverflowQueue {
			close(seen)
		}
	})
	<-seen
}
