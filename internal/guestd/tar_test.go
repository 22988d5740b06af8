package guestd_test

import (
	"archive/tar"
	"bytes"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestFoldersAsTarStreams(t *testing.T) {
	s := start(t)
	from, to := filepath.Join(s.dir, "from"), filepath.Join(s.dir, "to/deep")
	for _, dir := range []string{"a/b", "empty"} {
		if err := os.MkdirAll(filepath.Join(from, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	big := strings.Repeat("0123456789", 200_000)
	write(t, filepath.Join(from, "a/b/big"), big)
	if err := os.Symlink("b/big", filepath.Join(from, "a/link")); err != nil {
		t.Fatal(err)
	}
	var stream []byte
	s.do("GET", "/files/tar?path="+url.QueryEscape(from), nil, &stream)
	var res api.TarResult
	s.do("PUT", "/files/tar?path="+url.QueryEscape(to), bytes.NewReader(stream), &res)
	if want := (api.TarResult{Path: to, Files: 1, Folders: 3, Links: 1, Bytes: int64(len(big))}); res != want {
		t.Errorf("got %+v, want %+v", res, want)
	}
	if raw, err := os.ReadFile(filepath.Join(to, "a/link")); err != nil || string(raw) != big {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	at := func(p string) string { return "/files/tar?path=" + url.QueryEscape(p) }
	s.fails("GET", at(from+"/none"), nil, 404, api.CodeNotFound)
	s.fails("GET", at(from+"/a/b/big"), nil, 400, api.CodeInvalid)
	s.fails("PUT", at(from+"/a/b/big"), bytes.NewReader(stream), 409, api.CodeConflict)
	s.fails("PUT", at(to), "no tar", 400, api.CodeInvalid)
	s.fails("PUT", at(to), bytes.NewReader(stream[:len(stream)/2]), 400, api.CodeInvalid)
	s.fails("PUT", at(to), nil, 400, api.CodeInvalid)
	// What is refused says how far it came.
	if err := os.Symlink("/", filepath.Join(to, "root")); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string]string{"root/tmp/evil": "leads out", "../evil": "leads out", "a": "a file where a folder should be"} {
		e := s.fails("PUT", at(to), tarOf(t, "first", name), map[bool]int{true: 400, false: 409}[name == "../evil"], map[bool]api.Code{true: api.CodeInvalid, false: api.CodeConflict}[name == "../evil"])
		if !strings.Contains(e.Message, words) || !strings.Contains(e.Message, "1 files with 3 bytes were written") {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if _, err := os.Stat("/tmp/evil"); err == nil {
		t.Error("it got out")
	}
}

// tarOf is a stream of files.
func tarOf(t *testing.T, names ...string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("bad"))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}
