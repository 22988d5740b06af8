package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// by sends a request with a link alone: no key, as whoever was sent the link.
func (l *live) by(url, method, body string, header ...string) (*http.Response, string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return res, string(raw)
}

func (l *live) link(path, body string) api.FileLink {
	l.t.Helper()
	var link api.FileLink
	l.into(&link, 200, "POST", path+"/fs/link", body)
	return link
}

func TestFileLinks(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	l.do(200, "PUT", path+"/fs?path=/w/page.html", "<script>alert(1)</script>")

	down := l.link(path, `{"path":"/w/./page.html"}`)
	if !strings.HasPrefix(down.URL, l.url+"/v1/f/") || down.Path != "/w/page.html" || down.Method != "GET" || down.SandboxID != id || down.MaxBytes != 0 ||
		time.Until(down.ExpiresAt) > time.Hour || time.Until(down.ExpiresAt) < 50*time.Minute {
		t.Errorf("%+v", down)
	}
	res, body := l.by(down.URL, "GET", "", "Accept", "text/html", "Origin", "https://other.example", "Sec-Fetch-Site", "cross-site")
	if res.StatusCode != 200 || body != "<script>alert(1)</script>" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	// What is in the file never becomes a page of ours.
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment; filename=page.html",
		"Content-Security-Policy": "sandbox; default-src 'none'", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if res, body := l.by(down.URL, "GET", "", "Range", "bytes=1-6"); res.StatusCode != 206 || body != "script" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if res, body := l.by(down.URL, "HEAD", ""); res.StatusCode != 200 || body != "" || res.ContentLength != 25 {
		t.Errorf("%d %q %d", res.StatusCode, body, res.ContentLength)
	}

	up := l.link(path, `{"path":"/w/up","method":"PUT","max_bytes":10,"ttl_seconds":60}`)
	if up.MaxBytes != 10 || time.Until(up.ExpiresAt) > time.Minute {
		t.Errorf("%+v", up)
	}
	if res, body := l.by(up.URL, "PUT", "0123456789", "Origin", "null", "Content-Type", "text/plain"); res.StatusCode != 200 || body != `{"path":"/w/up","bytes":10}`+"\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if res, body := l.by(up.URL, "POST", "x"); res.StatusCode != 200 || l.host.Guest(id).File("/w/up") != "x" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	if d := l.link(path, `{"path":"/w/up","method":"PUT"}`); d.MaxBytes != 1<<30 {
		t.Errorf("%+v", d)
	}
	// More than it may be leaves the file as it was, said beforehand or not.
	for _, body := range []io.Reader{strings.NewReader("0123456789+"), io.MultiReader(strings.NewReader("0123456789"), strings.NewReader("+"))} {
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", up.URL, body)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != 413 || !strings.Contains(string(raw), "10 bytes") || l.host.Guest(id).File("/w/up") != "x" {
			t.Errorf("%d %s %q", res.StatusCode, raw, l.host.Guest(id).File("/w/up"))
		}
	}

	// Before a page's request.
	res, _ = l.by(up.URL, "OPTIONS", "", "Origin", "https://other.example", "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "content-type")
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(res.Header.Get("Access-Control-Allow-Methods"), "PUT") ||
		!strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Content-Type") {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}

	for body, field := range map[string]string{
		`{}`: "path", `{"path":"w"}`: "path", `{"path":"/w/"}`: "path", `{"path":"/"}`: "path", `{"path":"/a\u0000"}`: "path", `{"path":"/` + strings.Repeat("a", 1100) + `"}`: "path",
		`{"path":"/w","method":"DELETE"}`: "method", `{"path":"/w","ttl_seconds":0}`: "ttl_seconds", `{"path":"/w","ttl_seconds":604801}`: "ttl_seconds",
		`{"path":"/w","max_bytes":5}`: "max_bytes", `{"path":"/w","method":"PUT","max_bytes":0}`: "max_bytes", `{"path":"/w","method":"PUT","max_bytes":2000000000000}`: "max_bytes",
	} {
		if got := l.do(400, "POST", path+"/fs/link", body); !strings.Contains(got, `"field":"`+field+`"`) {
			t.Errorf("%s: %s", body, got)
		}
	}
	l.do(404, "POST", "/v1/sandboxes/sb-none/fs/link", `{"path":"/w"}`)
}

// A form is what a page without a script has.
func TestFormsByALink(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	link := l.link(path, `{"path":"/w/up","method":"PUT","max_bytes":100}`)
	form := func(files ...string) (*http.Response, string) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		_ = w.WriteField("comment", "not a file")
		for _, content := range files {
			part, _ := w.CreateFormFile("file", `../../etc/"passwd`)
			_, _ = io.WriteString(part, content)
		}
		_ = w.WriteField("more", "not a file either")
		_ = w.Close()
		return l.by(link.URL, "POST", b.String(), "Content-Type", w.FormDataContentType())
	}
	if res, body := form("content"); res.StatusCode != 200 || l.host.Guest(id).File("/w/up") != "content" {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if res, body := form(strings.Repeat("x", 100)); res.StatusCode != 200 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	for name, files := range map[string][]string{"two": {"a", "b"}, "none": nil, "too large": {strings.Repeat("y", 101)}} {
		want := map[bool]int{true: 413, false: 400}[name == "too large"]
		if res, body := form(files...); res.StatusCode != want || !strings.HasPrefix(l.host.Guest(id).File("/w/up"), "xxx") {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	if res, body := l.by(link.URL, "POST", "no form", "Content-Type", "multipart/form-data; boundary=b"); res.StatusCode != 400 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// What others make of a link opens nothing, and tells nothing.
func TestFileLinksThatAreForged(t *testing.T) {
	var log buffer
	keys := realKeys(t)
	l := newLiveWith(t, keys, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	secret, prefix := newKey(t, keys, auth.Grant{})
	id, other := create(l, secret), create(l, secret)
	path := "/v1/sandboxes/" + id
	for _, p := range []string{path, "/v1/sandboxes/" + other} {
		l.as(secret, 200, "PUT", p+"/fs?path=/w/f", "of "+p)
	}
	link := func(body string) string {
		var made api.FileLink
		if err := json.Unmarshal([]byte(l.as(secret, 200, "POST", path+"/fs/link", body)), &made); err != nil {
			t.Fatal(err)
		}
		return made.URL
	}
	down, up := link(`{"path":"/w/f"}`), link(`{"path":"/w/f","method":"PUT"}`)
	payload, sum, _ := strings.Cut(strings.TrimPrefix(down, l.url+"/v1/f/"), ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		t.Fatal(err)
	}
	forged := func(change ...string) string {
		s := strings.NewReplacer(change...).Replace(string(raw))
		if s == string(raw) {
			t.Fatalf("%v changes nothing in %s", change, raw)
		}
		return l.url + "/v1/f/" + base64.RawURLEncoding.EncodeToString([]byte(s)) + "." + sum
	}
	var port api.PreviewToken
	if err := json.Unmarshal([]byte(l.as(secret, 200, "POST", path+"/preview-token", `{"port":80}`)), &port); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"another path":        forged(`"/w/f"`, `"/etc/shadow"`),
		"another sandbox":     forged(id, other),
		"a later end":         forged(`"e":1`, `"e":2`),
		"the other way":       forged(`"f":`, `"u":true,"f":`),
		"another workspace":   forged(`"w":"`, `"w":"x`),
		"another key":         forged(prefix, "pds_00000000"),
		"no sum":              l.url + "/v1/f/" + payload,
		"an empty sum":        l.url + "/v1/f/" + payload + ".",
		"half a sum":          l.url + "/v1/f/" + payload + "." + sum[:20],
		"nothing":             l.url + "/v1/f/",
		"more behind it":      down + "/../../etc/passwd",
		"encoded slashes":     down + "%2f..%2fx",
		"a link to a port":    l.url + "/v1/f/" + port.Token,
		"its file for a port": l.url + "/v1/p/" + payload + "." + sum + "/",
		"a very long one":     l.url + "/v1/f/" + strings.Repeat("A", 30_000) + "." + sum,
	} {
		res, body := l.by(url, "GET", "")
		if res.StatusCode != 401 || strings.Contains(body, "of /v1") {
			t.Errorf("%s: %d %s", name, res.StatusCode, body)
		}
	}
	// The other direction is not among what it opens.
	for _, o := range []struct{ url, method, allow string }{{down, "PUT", "GET, HEAD, OPTIONS"}, {down, "POST", "GET, HEAD, OPTIONS"}, {up, "GET", "PUT, POST, OPTIONS"}, {up, "HEAD", "PUT, POST, OPTIONS"}, {down, "DELETE", "GET, HEAD, PUT, POST, OPTIONS"}, {up, "PATCH", "GET, HEAD, PUT, POST, OPTIONS"}} {
		if res, body := l.by(o.url, o.method, "evil"); res.StatusCode != 405 || res.Header.Get("Allow") != o.allow {
			t.Errorf("%s: %d %q %s", o.method, res.StatusCode, res.Header.Get("Allow"), body)
		}
	}
	if got := l.as(secret, 200, "GET", path+"/fs?path=/w/f", ""); got != "of "+path {
		t.Errorf("%q", got)
	}
	// The path of the link is the path, whatever the query says.
	if _, body := l.by(down+"?path=/etc/passwd&mode=4777", "GET", ""); body != "of "+path {
		t.Errorf("%q", body)
	}
	// By a foreign name of ours it is refused, as everything.
	if res, _ := l.by(strings.Replace(down, "127.0.0.1", "localhost", 1), "GET", ""); res.StatusCode != 200 {
		t.Errorf("%d", res.StatusCode)
	}

	// With its sandbox, and with its key, it ends.
	l.as(secret, 204, "DELETE", path, "")
	if res, body := l.by(down, "GET", ""); res.StatusCode != 404 || !strings.Contains(body, "has ended") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	path = "/v1/sandboxes/" + other
	down, up = link(`{"path":"/w/f"}`), link(`{"path":"/w/f","method":"PUT"}`)
	if err := keys.Revoke(t.Context(), auth.Host, prefix); err != nil {
		t.Fatal(err)
	}
	for _, o := range []struct{ method, url string }{{"GET", down}, {"PUT", up}} {
		if res, body := l.by(o.url, o.method, "x"); res.StatusCode != 401 || !strings.Contains(body, "expired") {
			t.Errorf("%s: %d %s", o.method, res.StatusCode, body)
		}
	}

	seen := log.String()
	for _, url := range []string{down, up} {
		token := strings.TrimPrefix(url, l.url+"/v1/f/")
		if strings.Contains(seen, token[:40]) || strings.Contains(seen, token[len(token)-20:]) {
			t.Error("a link is in the log")
		}
	}
	if !strings.Contains(seen, `"path":"/v1/f/…"`) {
		t.Error("visits by links are not in the log")
	}
}

// A download that is in progress ends with the key of its link.
func TestATransferEndsWithItsKey(t *testing.T) {
	keys := realKeys(t)
	l := newLiveWith(t, keys, nil)
	secret, prefix := newKey(t, keys, auth.Grant{})
	path := "/v1/sandboxes/" + create(l, secret)
	var made api.FileLink
	if err := json.Unmarshal([]byte(l.as(secret, 200, "POST", path+"/fs/link", `{"path":"/w/f","method":"PUT"}`)), &made); err != nil {
		t.Fatal(err)
	}
	from, to := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", made.URL, from)
	outcome := make(chan string, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			outcome <- err.Error()
			return
		}
		defer res.Body.Close()
		outcome <- fmt.Sprint(res.StatusCode)
	}()
	if _, err := to.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := keys.Revoke(t.Context(), auth.Host, prefix); err != nil {
		t.Fatal(err)
	}
	go func() { // what is left of it is taken in
		_, _ = to.Write(make([]byte, 1<<20))
		to.Close()
	}()
	if got := <-outcome; got == "200" {
		t.Error("an upload went on after its key had ended")
	}
}

func TestNamesOfDownloads(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	for file, want := range map[string]string{
		`/w/a b.csv`:                              "a b.csv",
		`/w/ä"; filename="evil.exe`:               "ä_; filename=_evil.exe",
		"/w/photo\u202Egpj.exe":                   "photo_gpj.exe",
		"/w/two\r\nSet-Cookie: a=b":               "two__Set-Cookie_ a=b",
		`/w/back\slash`:                           "back_slash",
		"/w/" + strings.Repeat("x", 250) + ".txt": strings.Repeat("x", 196) + ".txt",
	} {
		raw, _ := json.Marshal(map[string]string{"path": file})
		put := l.link(path, strings.Replace(string(raw), "{", `{"method":"PUT",`, 1))
		if res, body := l.by(put.URL, "PUT", "x"); res.StatusCode != 200 {
			t.Fatalf("%q: %d %s", file, res.StatusCode, body)
		}
		res, _ := l.by(l.link(path, string(raw)).URL, "GET", "")
		kind, params, err := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
		if err != nil || kind != "attachment" || params["filename"] != want || len(params) != 1 || len(res.Cookies()) != 0 {
			t.Errorf("%q: %q, %v, want %q", file, res.Header.Get("Content-Disposition"), err, want)
		}
	}
}
