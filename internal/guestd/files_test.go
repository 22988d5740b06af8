package guestd_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
)

func at(route, path string) string { return route + "?path=" + url.QueryEscape(path) }

func (s *sandbox) put(path string, content []byte) api.WriteResult {
	s.Helper()
	var r api.WriteResult
	s.do("PUT", at("/files", path), bytes.NewReader(content), &r)
	return r
}

func (s *sandbox) get(path string) []byte {
	s.Helper()
	var b []byte
	s.do("GET", at("/files", path), nil, &b)
	return b
}

func TestFilesGoBothWaysAtAnySize(t *testing.T) {
	s := start(t)
	for _, size := range []int{0, 1, 18 << 10, 97 << 10, 1 << 20, 33 << 20} {
		path := filepath.Join(s.dir, "made", "on the way", fmt.Sprint("日本 ", size))
		content := randomBytes(size)
		if r := s.put(path, content); r.Bytes != int64(size) || r.Path != path {
			t.Errorf("got %+v", r)
		}
		if !bytes.Equal(s.get(path), content) {
			t.Errorf("%d bytes changed on the way", size)
		}
	}
}

func TestRanges(t *testing.T) {
	s := start(t)
	path := filepath.Join(s.dir, "f")
	s.put(path, []byte("0123456789"))
	for _, c := range []struct {
		header string
		status int
		body   string
		ranged string
	}{
		{"bytes=0-3", 206, "0123", "bytes 0-3/10"},
		{"bytes=8-", 206, "89", "bytes 8-9/10"},
		{"bytes=8-100", 206, "89", "bytes 8-9/10"},
		{"bytes=-3", 206, "789", "bytes 7-9/10"},
		{"bytes=-30", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=10-", 416, "", "bytes */10"},
		{"bytes=-0", 416, "", "bytes */10"},
		{"bytes=5-2", 200, "0123456789", ""},
		{"bytes=0-1,4-5", 200, "0123456789", ""},
		{"lines=1-2", 200, "0123456789", ""},
		{"bytes=a-b", 200, "0123456789", ""},
	} {
		req, _ := http.NewRequest("GET", "http://guest"+at("/files", path), nil)
		req.Header.Set("Range", c.header)
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || (c.status != 416 && string(body) != c.body) || resp.Header.Get("Content-Range") != c.ranged {
			t.Errorf("%s: got %d %q %q", c.header, resp.StatusCode, body, resp.Header.Get("Content-Range"))
		}
	}
}

func TestWriteKeepsModeAndOwnerOfTheOldFile(t *testing.T) {
	s := start(t)
	path := filepath.Join(s.dir, "script")
	write(t, path, "old")
	_ = os.Chown(path, 12, 34)
	_ = unix.Chmod(path, 0o4750)
	s.put(path, []byte("new"))
	var fi api.FileInfo
	s.do("GET", at("/files/stat", path), nil, &fi)
	if fi.Permissions != "4750" || fi.UID != 12 || fi.GID != 34 || fi.Size != 3 {
		t.Errorf("got %+v", fi)
	}
	s.do("PUT", at("/files", path)+"&mode=0600", strings.NewReader("x"), nil)
	s.do("GET", at("/files/stat", path), nil, &fi)
	if fi.Permissions != "0600" {
		t.Errorf("got %+v", fi)
	}
	s.put(filepath.Join(s.dir, "fresh"), []byte("x"))
	s.do("GET", at("/files/stat", filepath.Join(s.dir, "fresh")), nil, &fi)
	if fi.Permissions != "0644" {
		t.Errorf("got %+v", fi)
	}
	if e := s.fails("PUT", at("/files", path)+"&mode=9", strings.NewReader("x"), 400, api.CodeInvalid); e.Field != "mode" {
		t.Errorf("field %q", e.Field)
	}
}

func TestWriteThroughALink(t *testing.T) {
	s := start(t)
	target, link := filepath.Join(s.dir, "target"), filepath.Join(s.dir, "link")
	_ = os.Symlink("target", link)
	s.put(link, []byte("through"))
	if b, _ := os.ReadFile(target); string(b) != "through" {
		t.Errorf("got %q", b)
	}
	var fi api.FileInfo
	s.do("GET", at("/files/stat", link), nil, &fi)
	if fi.Mode != "l" || fi.Target != "target" || fi.IsDir {
		t.Errorf("the link is told as %+v", fi)
	}
	loop := filepath.Join(s.dir, "loop")
	_ = os.Symlink("loop", loop)
	s.fails("PUT", at("/files", loop), strings.NewReader("x"), 400, api.CodeInvalid)
	s.fails("GET", at("/files", loop), nil, 400, api.CodeInvalid)
}

// A client that goes away in the middle leaves the old file, and nothing else.
func TestHalfAnUploadLeavesTheOldFile(t *testing.T) {
	s := start(t)
	dir := filepath.Join(s.dir, "d")
	path := filepath.Join(dir, "f")
	s.put(path, []byte("old"))
	r, w := io.Pipe()
	req, _ := http.NewRequest("PUT", "http://guest"+at("/files", path), r)
	sent := make(chan struct{})
	go func() {
		_, _ = w.Write(make([]byte, 1<<20))
		close(sent)
		w.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if resp, err := s.client.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode == 200 {
			t.Error("half an upload was taken for the whole")
		}
	}
	<-sent
	eventually(t, "nothing is left of it", func() bool {
		list, _ := os.ReadDir(dir)
		return len(list) == 1
	})
	if got := s.get(path); string(got) != "old" {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestUnfitThingsDoNotHang(t *testing.T) {
	s := start(t)
	fifo, dir := filepath.Join(s.dir, "fifo"), filepath.Join(s.dir, "dir")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Mkdir(dir, 0o755)
	for _, path := range []string{fifo, dir, "/dev/zero"} {
		if e := s.fails("GET", at("/files", path), nil, 400, api.CodeInvalid); e.Field != "path" {
			t.Errorf("%s: field %q", path, e.Field)
		}
		s.fails("PUT", at("/files", path), strings.NewReader("x"), 400, api.CodeInvalid)
	}
	s.fails("PUT", at("/files", dir+"/"), strings.NewReader("x"), 400, api.CodeInvalid)
	s.fails("PUT", at("/files", filepath.Join(s.dir, "new")+"/"), strings.NewReader("x"), 400, api.CodeInvalid)
	if got := s.get("/proc/self/status"); !bytes.Contains(got, []byte("Pid:")) {
		t.Errorf("a file without a size reads as %q", got)
	}
	var fi api.FileInfo
	s.do("GET", at("/files/stat", fifo), nil, &fi)
	if fi.Mode != "p" {
		t.Errorf("got %+v", fi)
	}
}

func TestPathsAreChecked(t *testing.T) {
	s := start(t)
	for _, path := range []string{"", "relative", "./x", "~/x", "/a\x00b", "/" + strings.Repeat("a/", 3000)} {
		for _, c := range []struct{ method, route string }{
			{"GET", "/files"}, {"PUT", "/files"}, {"DELETE", "/files"}, {"GET", "/files/stat"}, {"GET", "/files/dir"},
		} {
			if e := s.fails(c.method, at(c.route, path), nil, 400, api.CodeInvalid); e.Field != "path" {
				t.Errorf("%s %s %q: field %q", c.method, c.route, path, e.Field)
			}
		}
		s.fails("POST", "/files/dir", api.MkdirRequest{Path: path}, 400, api.CodeInvalid)
		if e := s.fails("POST", "/files/move", api.MoveRequest{From: "/x", To: path}, 400, api.CodeInvalid); e.Field != "to" {
			t.Errorf("field %q", e.Field)
		}
	}
	s.fails("PUT", at("/files", filepath.Join(s.dir, strings.Repeat("n", 300))), nil, 400, api.CodeInvalid)
	write(t, filepath.Join(s.dir, "file"), "x")
	s.fails("PUT", at("/files", filepath.Join(s.dir, "file", "below")), nil, 400, api.CodeInvalid)
	s.fails("GET", at("/files", filepath.Join(s.dir, "file", "below")), nil, 400, api.CodeInvalid)
}

func TestMissingFilesHaveNeighbours(t *testing.T) {
	s := start(t)
	write(t, filepath.Join(s.dir, "sales.csv"), "x")
	e := s.fails("GET", at("/files", filepath.Join(s.dir, "Sale.csv")), nil, 404, api.CodeNotFound)
	if !strings.Contains(e.Hint, "sales.csv") || e.Field != "path" {
		t.Errorf("got %+v", e)
	}
	e = s.fails("GET", at("/files/stat", filepath.Join(s.dir, "no", "such", "file")), nil, 404, api.CodeNotFound)
	if !strings.Contains(e.Hint, filepath.Join(s.dir, "no")+" does not exist") {
		t.Errorf("got %+v", e)
	}
	s.fails("GET", at("/files/dir", filepath.Join(s.dir, "nothing")), nil, 404, api.CodeNotFound)
	s.fails("DELETE", at("/files", filepath.Join(s.dir, "nothing")), nil, 404, api.CodeNotFound)
}

func TestFullDisk(t *testing.T) {
	s := start(t)
	small := filepath.Join(s.dir, "small")
	_ = os.Mkdir(small, 0o755)
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no tmpfs can be mounted here:", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	path := filepath.Join(small, "f")
	s.put(path, []byte("old"))
	e := s.fails("PUT", at("/files", path), bytes.NewReader(make([]byte, 1<<20)), 507, api.CodeNoSpace)
	if e.Hint == "" {
		t.Error("no hint")
	}
	if got := s.get(path); string(got) != "old" {
		t.Errorf("the old file is gone: %q", got)
	}
	if list, _ := os.ReadDir(small); len(list) != 1 {
		t.Errorf("something is left: %v", list)
	}
	// A move to another file system works, too.
	s.put(filepath.Join(s.dir, "from"), []byte("moved"))
	s.do("POST", "/files/move", api.MoveRequest{From: filepath.Join(s.dir, "from"), To: filepath.Join(small, "to")}, nil)
	if got := s.get(filepath.Join(small, "to")); string(got) != "moved" {
		t.Errorf("got %q", got)
	}
	// What does not fit is not appended in part.
	s.fails("PUT", at("/files", path)+"&append=1", bytes.NewReader(make([]byte, 1<<20)), 507, api.CodeNoSpace)
	if got := s.get(path); string(got) != "old" {
		t.Errorf("%d bytes are left of an append that failed", len(got))
	}
}

func TestFolders(t *testing.T) {
	s := start(t)
	deep := filepath.Join(s.dir, "a", "b", "c")
	s.do("POST", "/files/dir", api.MkdirRequest{Path: deep}, nil)
	s.do("POST", "/files/dir", api.MkdirRequest{Path: deep}, nil)
	write(t, filepath.Join(deep, "file"), "12345")
	_ = os.Symlink("/etc", filepath.Join(deep, "link"))
	var list api.DirListing
	s.do("GET", at("/files/dir", deep), nil, &list)
	if len(list.Entries) != 2 || list.Entries[0].Name != "file" || list.Entries[0].Size != 5 || list.Entries[0].Path != filepath.Join(deep, "file") ||
		list.Entries[1].Mode != "l" || list.Entries[1].Target != "/etc" || list.Truncated {
		t.Errorf("got %+v", list)
	}
	s.fails("GET", at("/files/dir", filepath.Join(deep, "file")), nil, 400, api.CodeInvalid)
	s.fails("POST", "/files/dir", api.MkdirRequest{Path: filepath.Join(deep, "file")}, 409, api.CodeConflict)
	s.fails("POST", "/files/dir", api.MkdirRequest{Path: filepath.Join(deep, "file", "x")}, 409, api.CodeConflict)

	s.fails("DELETE", at("/files", filepath.Join(s.dir, "a")), nil, 409, api.CodeConflict)
	s.fails("DELETE", at("/files", "/")+"&recursive=1", nil, 400, api.CodeInvalid)
	s.do("DELETE", at("/files", filepath.Join(deep, "link"))+"&recursive=1", nil, nil)
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Fatal("a link was followed")
	}
	s.do("DELETE", at("/files", filepath.Join(s.dir, "a"))+"&recursive=1", nil, nil)
	s.fails("GET", at("/files/stat", filepath.Join(s.dir, "a")), nil, 404, api.CodeNotFound)
}

// In gVisor the links of /proc can be walked through even when they are not to
// be followed: removing /proc emptied the root.
func TestNothingIsRemovedThroughProc(t *testing.T) {
	s := start(t)
	link := filepath.Join(s.dir, "link")
	if err := os.Symlink("/proc", link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/proc/self/root", "/proc/self/cwd", "/proc/1", filepath.Join(link, "1", "root")} {
		e := s.fails("DELETE", at("/files", path)+"&recursive=1", nil, 403, api.CodeDenied)
		if !strings.Contains(e.Message, "cannot be removed") {
			t.Errorf("%s: %q", path, e.Message)
		}
	}
	s.do("DELETE", at("/files", link)+"&recursive=1", nil, nil)
	if _, err := os.Lstat(link); err == nil {
		t.Error("a link to /proc cannot be removed")
	}
}

// pages lists a folder page by page.
func (s *sandbox) pages(dir, limit string) (names []string, pages int) {
	s.Helper()
	after := ""
	for {
		var list api.DirListing
		s.do("GET", at("/files/dir", dir)+"&limit="+limit+"&after="+url.QueryEscape(after), nil, &list)
		pages++
		for _, e := range list.Entries {
			after = e.Name
			if e.RawName != nil {
				after = string(e.RawName)
			}
			names = append(names, after)
		}
		if !list.Truncated {
			return names, pages
		}
	}
}

func TestLargeFoldersAreListedInPages(t *testing.T) {
	s := start(t)
	dir := filepath.Join(s.dir, "many")
	_ = os.Mkdir(dir, 0o755)
	for i := range 25_000 {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprintf("f%05d", i))); err != nil {
			t.Fatal(err)
		}
	}
	names, pages := s.pages(dir, "")
	if len(names) != 25_000 || pages != 3 || !slices.IsSorted(names) || names[24_999] != "f24999" {
		t.Errorf("%d names in %d pages", len(names), pages)
	}
	var list api.DirListing
	s.do("GET", at("/files/dir", dir)+"&limit=3&after=f00009", nil, &list)
	if len(list.Entries) != 3 || list.Entries[0].Name != "f00010" || !list.Truncated {
		t.Errorf("got %+v", list)
	}
	s.fails("GET", at("/files/dir", dir)+"&limit=few", nil, 400, api.CodeInvalid)
}

// Long names and targets do not make a listing larger than the host reads.
func TestListingIsBoundedInBytes(t *testing.T) {
	s := start(t)
	dir := filepath.Join(s.dir, "long")
	_ = os.Mkdir(dir, 0o755)
	for i := range 1500 {
		name := fmt.Sprintf("%s%04d", strings.Repeat("\x01", 240), i)
		if err := os.Symlink(strings.Repeat("\x01", 4000), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if names, pages := s.pages(dir, ""); len(names) != 1500 || pages < 2 {
		t.Errorf("%d names in %d pages", len(names), pages)
	}
}

// Names are bytes: what is not UTF-8 is shown as such, and can be asked for.
func TestNamesThatAreNotUTF8(t *testing.T) {
	s := start(t)
	dir := filepath.Join(s.dir, "latin")
	path := filepath.Join(dir, "caf\xe9")
	s.put(path, []byte("au lait"))
	if b, err := os.ReadFile(path); err != nil || string(b) != "au lait" {
		t.Fatalf("%q, %v", b, err)
	}
	var list api.DirListing
	s.do("GET", at("/files/dir", dir), nil, &list)
	if len(list.Entries) != 1 || list.Entries[0].Name != "caf\uFFFD" || string(list.Entries[0].RawName) != "caf\xe9" {
		t.Errorf("got %+v", list)
	}
	if got := s.get(path); string(got) != "au lait" {
		t.Errorf("got %q", got)
	}
	s.do("DELETE", at("/files", path), nil, nil)
	s.fails("GET", at("/files/stat", path), nil, 404, api.CodeNotFound)
}

func TestPermissionsAreToldInNumbersLettersAndNames(t *testing.T) {
	s := start(t)
	path := filepath.Join(s.dir, "f")
	write(t, path, "x")
	_ = os.Chown(path, 1234, 4321)
	for mode, want := range map[uint32]string{0o640: "-rw-r-----", 0o4755: "-rwsr-xr-x", 0o2644: "-rw-r-Sr--", 0o1777: "-rwxrwxrwt", 0: "----------"} {
		_ = unix.Chmod(path, mode)
		var fi api.FileInfo
		s.do("GET", at("/files/stat", path), nil, &fi)
		if fi.Symbolic != want || fi.Permissions != fmt.Sprintf("%04o", mode) || fi.Owner != "panda" || fi.Group != "" || fi.GID != 4321 {
			t.Errorf("%o: got %+v", mode, fi)
		}
	}
	var fi api.FileInfo
	s.do("GET", at("/files/stat", s.dir), nil, &fi)
	if fi.Mode != "d" || fi.Symbolic[0] != 'd' || fi.Group != "root" {
		t.Errorf("got %+v", fi)
	}
}

func TestAppend(t *testing.T) {
	s := start(t)
	path := filepath.Join(s.dir, "new", "log")
	add := func(b string) { s.do("PUT", at("/files", path)+"&append=1", strings.NewReader(b), nil) }
	add("one\n")
	_ = unix.Chmod(path, 0o600)
	add("two\n")
	if got := s.get(path); string(got) != "one\ntwo\n" {
		t.Errorf("got %q", got)
	}
	var fi api.FileInfo
	s.do("PUT", at("/files", path)+"&append=1&mode=0640", strings.NewReader(""), nil)
	if s.do("GET", at("/files/stat", path), nil, &fi); fi.Permissions != "0640" {
		t.Errorf("got %+v", fi)
	}
	// Half of it is none of it.
	req, _ := http.NewRequest("PUT", "http://guest"+at("/files", path)+"&append=1", io.MultiReader(strings.NewReader("half"), failing{}))
	if resp, err := s.client.Do(req); err == nil {
		resp.Body.Close()
	}
	eventually(t, "what had come is taken away", func() bool { return string(s.get(path)) == "one\ntwo\n" })
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A file that has no content is not read to an end that flees before us.
func TestOnlyFilesOfTheKernelHaveNoSize(t *testing.T) {
	s := start(t)
	path := filepath.Join(s.dir, "empty")
	write(t, path, "")
	for path, want := range map[string]int{path: 416, "/proc/self/status": 200} {
		req, _ := http.NewRequest("GET", "http://guest"+at("/files", path), nil)
		req.Header.Set("Range", "bytes=0-")
		resp, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

func TestMove(t *testing.T) {
	s := start(t)
	a, b := filepath.Join(s.dir, "a"), filepath.Join(s.dir, "new", "b")
	s.put(a, []byte("A"))
	s.do("POST", "/files/move", api.MoveRequest{From: a, To: b}, nil)
	if string(s.get(b)) != "A" {
		t.Error("it is not there")
	}
	s.put(a, []byte("A2"))
	s.fails("POST", "/files/move", api.MoveRequest{From: a, To: b}, 409, api.CodeConflict)
	s.do("POST", "/files/move", api.MoveRequest{From: a, To: b, Overwrite: true}, nil)
	if string(s.get(b)) != "A2" {
		t.Error("it was not replaced")
	}
	s.do("POST", "/files/move", api.MoveRequest{From: b, To: b, Overwrite: true}, nil)
	if e := s.fails("POST", "/files/move", api.MoveRequest{From: a, To: b}, 404, api.CodeNotFound); e.Field != "from" {
		t.Errorf("field %q", e.Field)
	}
	dir := filepath.Join(s.dir, "dir")
	s.do("POST", "/files/dir", api.MkdirRequest{Path: dir}, nil)
	s.fails("POST", "/files/move", api.MoveRequest{From: dir, To: filepath.Join(dir, "in", "itself")}, 400, api.CodeInvalid)
	if _, err := os.Stat(filepath.Join(dir, "in")); err == nil {
		t.Error("a move that failed has made folders")
	}
	s.fails("POST", "/files/move", api.MoveRequest{From: b, To: dir, Overwrite: true}, 409, api.CodeConflict)
	s.fails("POST", "/files/move", api.MoveRequest{From: dir, To: b, Overwrite: true}, 409, api.CodeConflict)
	// A folder moves with what is in it, and replaces an empty one only.
	full := filepath.Join(s.dir, "full")
	s.put(filepath.Join(full, "f"), []byte("in it"))
	s.fails("POST", "/files/move", api.MoveRequest{From: dir, To: full, Overwrite: true}, 409, api.CodeConflict)
	s.do("POST", "/files/move", api.MoveRequest{From: full, To: dir, Overwrite: true}, nil)
	if string(s.get(filepath.Join(dir, "f"))) != "in it" {
		t.Error("the folder did not take along what is in it")
	}
	// A link is moved itself.
	link := filepath.Join(s.dir, "link")
	_ = os.Symlink("nowhere", link)
	s.do("POST", "/files/move", api.MoveRequest{From: link, To: link + "2"}, nil)
	if to, err := os.Readlink(link + "2"); to != "nowhere" {
		t.Errorf("%q, %v", to, err)
	}
	s.fails("POST", "/files/move", api.MoveRequest{From: "/proc/version", To: link + "3"}, 403, api.CodeDenied)
	s.fails("POST", "/files/move", api.MoveRequest{From: "/", To: link + "3"}, 400, api.CodeInvalid)
}
