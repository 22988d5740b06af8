package httpapi_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestFoldersAsTarStreams(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range map[string]string{"x": "1", "sub/y": strings.Repeat("22", 1<<20)} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var res api.TarResult
	l.into(&res, 200, "PUT", path+"/fs/tar?path=/w", b.String(), "Content-Type", "application/x-tar")
	if res.Files != 2 || res.Bytes != 1+2<<20 {
		t.Errorf("%+v", res)
	}
	if got := l.host.Guest(id).File("/w/x"); got != "1" {
		t.Errorf("%q", got)
	}
	files := map[string]int{}
	for tr := tar.NewReader(strings.NewReader(l.do(200, "GET", path+"/fs/tar?path=/w", ""))); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		n, _ := io.Copy(io.Discard, tr)
		files[h.Name] = int(n)
	}
	if len(files) != 2 || files["x"] != 1 || files["sub/y"] != 2<<20 {
		t.Errorf("%v", files)
	}
	l.do(404, "GET", path+"/fs/tar?path=/none", "")
	l.do(400, "GET", path+"/fs/tar?path=rel", "")
	l.do(400, "PUT", path+"/fs/tar?path=/w", "no tar")
}
