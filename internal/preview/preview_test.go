package preview_test

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/preview"
)

var key = []byte("0123456789abcdef0123456789abcdef")

func TestTokens(t *testing.T) {
	now := time.Unix(1700000000, 0)
	s := preview.NewSigner(key, func() time.Time { return now })
	want := preview.Claims{SandboxID: "sb-1", Port: 80, Owner: "ann", Key: "pds_1", Expires: now.Unix() + 60, Paths: []string{"/a"}}
	token := s.Sign(want)
	got, err := s.Verify(token)
	if err != nil || got.SandboxID != "sb-1" || got.Port != 80 || got.Owner != "ann" || got.Key != "pds_1" || len(got.Paths) != 1 || !got.ExpiresAt().Equal(now.Add(time.Minute)) {
		t.Fatalf("%+v, %v", got, err)
	}
	if !preview.HoldsToken("http://x/v1/p/" + token + "/y") {
		t.Errorf("%s is not known for a token in an address", token)
	}
	payload, sum, _ := strings.Cut(token, ".")
	raw, _ := base64.RawURLEncoding.DecodeString(payload)
	other := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(raw), `"p":80`, `"p":81`, 1)))
	for name, bad := range map[string]string{
		"nothing": "", "no sum": payload, "an empty sum": payload + ".", "another port": other + "." + sum, "half a sum": token[:len(token)-10],
		"more behind it": token + "A", "more parts": token + "." + sum, "not base64": "!." + sum, "too long": strings.Repeat("a", 9000) + "." + sum,
		"another key": preview.NewSigner([]byte("another"), time.Now).Sign(want),
	} {
		if _, err := s.Verify(bad); !errors.Is(err, preview.ErrToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The last character of a sum has bits that mean nothing. They must be as they were.
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		if twin := token[:len(token)-1] + string(c); twin != token {
			if _, err := s.Verify(twin); err == nil {
				t.Errorf("a token that ends with %c is taken, too", c)
			}
		}
	}
	now = now.Add(time.Minute)
	if _, err := s.Verify(token); !errors.Is(err, preview.ErrExpired) {
		t.Errorf("at its end: %v", err)
	}
}

func TestNames(t *testing.T) {
	for host, want := range map[string]preview.Name{
		"80-sb-0123456789abcdef.localhost:8080":      {Port: 80, SandboxID: "sb-0123456789abcdef"},
		"65535-sb-0123456789abcdef.localhost":        {Port: 65535, SandboxID: "sb-0123456789abcdef"},
		"80-SB-0123456789ABCDEF.LocalHost.":          {Port: 80, SandboxID: "sb-0123456789abcdef"},
		"80-sb-0123456789abcdef.preview.example:443": {Port: 80, SandboxID: "sb-0123456789abcdef"},
		"localhost:8080":                             {},
		"127.0.0.1:8080":                             {},
		"80-sb-1.localhost.evil.example":             {},
		"80-sb-1.evil.example":                       {},
		"80-sb-1.xpreview.example":                   {},
		"80-sb-1.x.preview.example":                  {},
		"65536-sb-1.localhost":                       {},
		"0-sb-1.localhost":                           {},
		"080-sb-1.localhost":                         {},
		"-1-sb-1.localhost":                          {},
		"80-sb-.localhost":                           {},
		"80-sb-1_2.localhost":                        {},
		"80.localhost":                               {},
		"sb-1.localhost":                             {},
		"x.localhost":                                {},
		"":                                           {},
	} {
		got, is := preview.ParseHost(host, "Preview.example")
		if got != want || is != (want.Port != 0) {
			t.Errorf("%s: %+v, %v", host, got, is)
		}
	}
	if _, is := preview.ParseHost("80-sb-1.", ""); is {
		t.Error("a name below nothing is taken where there is no domain")
	}
	if n := (preview.Name{Port: 80, SandboxID: "sb-1"}); n.Host("localhost:8080") != "80-sb-1.localhost:8080" {
		t.Error(n.Host("localhost:8080"))
	}
}

func TestPathsThatALinkIsLimitedTo(t *testing.T) {
	if err := preview.CheckPaths([]string{"/", "/a", "/a/b/", "/a b", "/ä", "/.well-known", "/a..b"}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "a", "/a|b", "/a,b", "/a?b", "/a#b", "/a\\b", "/a%2fb", "/a//b", "/a/../b", "/..", "/.", "/a;b", "/a\nb", "/" + strings.Repeat("a", 600)} {
		if err := preview.CheckPaths([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if err := preview.CheckPaths(make([]string, 33)); err == nil {
		t.Error("33 paths are taken")
	}
	for _, tc := range []struct {
		paths string
		path  string
		want  bool
	}{
		{"", "/anything/../at//all%2f", true},
		{"/", "/", true},
		{"/", "/a/b", true},
		{"/api", "/api", true},
		{"/api", "/api/", true},
		{"/api", "/api/x/y.json", true},
		{"/api/", "/api", true},
		{"/api", "/apix", false},
		{"/api", "/", false},
		{"/api", "/API", false},
		{"/api /b", "/b/c", true},
		{"/api", "/api/a%20b", true},
		{"/api", "/%61pi/x", true},
		{"/api", "/api/100%25", true},
		{"/api", "/api/..", false},
		{"/api", "/api/../admin", false},
		{"/api", "/api/%2e%2e/admin", false},
		{"/api", "/api/%2E./admin", false},
		{"/api", "/api/%252e%252e/admin", false},
		{"/api", "/api/%25252e%25252e/admin", false},
		{"/api", "/api/..;x=1/admin", false},
		{"/api", "/api/.%2e;/admin", false},
		{"/api", "/api%2f..%2fadmin", false},
		{"/api", "/api/a%2Fb", false},
		{"/api", "/api/a%252fb/../../../admin", false},
		{"/api", "/api\\..\\admin", false},
		{"/api", "/api/%5c..%5cadmin", false},
		{"/api", "/api//admin", false},
		{"/api", "//api/x", false},
		{"/api", "/admin/../api", false},
		{"/api", "/api/%00", false},
		{"/api", "/api/%zz", false},
		{"/api", "api", false},
		{"/a b", "/a%20b/c", true},
	} {
		var paths []string
		if tc.paths == "/a b" {
			paths = []string{"/a b"}
		} else {
			paths = strings.Fields(tc.paths)
		}
		if got := preview.Allowed(paths, tc.path); got != tc.want {
			t.Errorf("a link for %q opens %q: %v", tc.paths, tc.path, got)
		}
	}
}

// Whatever a link is limited to, nothing that a server could take for another
// place is opened.
func FuzzAllowed(f *testing.F) {
	f.Add("/api/../x")
	f.Add("/api/%2e%2e%2fx")
	f.Add("/api;/..;/x")
	f.Fuzz(func(t *testing.T, path string) {
		if !preview.Allowed([]string{"/api"}, path) {
			return
		}
		if path != "/api" && !strings.HasPrefix(path, "/api/") && !strings.Contains(path, "%") {
			t.Errorf("%q is open", path)
		}
		for part := range strings.SplitSeq(path, "/") {
			if part == ".." || part == "." {
				t.Errorf("%q is open", path)
			}
		}
	})
}

// Whatever host is asked for, a name of a port is one, and stays the same.
func FuzzParseHost(f *testing.F) {
	for _, host := range []string{"80-sb-0123456789abcdef.localhost:8080", "80-SB-1.Preview.Example.", "80-sb-1.localhost.evil.example", "[::1]:80", "80-sb-1.localhost:8080:9", "080-sb-1.localhost"} {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, is := preview.ParseHost(host, "preview.example")
		if !is {
			return
		}
		lower := strings.ToLower(host)
		if !strings.Contains(lower, ".localhost") && !strings.Contains(lower, ".preview.example") || name.Port < 1 || name.Port > 65535 {
			t.Errorf("%q is %+v", host, name)
		}
		if again, is := preview.ParseHost(name.Host("localhost:1"), ""); !is || again != name {
			t.Errorf("%q is %+v, and then %+v", host, name, again)
		}
	})
}

// Wherever a visit of a signed link leads on to, it is this server, and the token
// is not there.
func FuzzWithoutToken(f *testing.F) {
	for _, target := range []string{
		"/a?b=c&pandastack_token=x", "//evil.example?pandastack_token=x", "/\\evil.example?pandastack%5Ftoken=x", "/%2F/evil?a=1;pandastack_token=x&%70andastack_token=y", "/?pandastack_token", "/?=pandastack_token=",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || u.Scheme != "" {
			return
		}
		to, err := url.Parse(preview.WithoutToken(u))
		if err != nil || to.Host != "" || to.Scheme != "" || strings.HasPrefix(to.EscapedPath(), "//") {
			t.Fatalf("%q leads to %q, %v", target, preview.WithoutToken(u), err)
		}
		if to.Query().Get(preview.TokenParam) != "" {
			t.Errorf("%q leads to %q, with the token", target, preview.WithoutToken(u))
		}
	})
}
