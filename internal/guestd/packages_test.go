package guestd_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func TestPackages(t *testing.T) {
	s := start(t)
	file := func(path string) string {
		b, err := os.ReadFile(filepath.Join(s.cfg.Root, path))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
	const mark = "# Written by PandaStack after the network of the sandbox; a file of your own stays.\n"
	const pip, uv, npm = "etc/xdg/pip/pip.conf", "etc/xdg/uv/uv.toml", "root/.npmrc"
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, Packages: &guestapi.Packages{Closed: `closed: say {"allow"}`}}, nil)
	if got := file(pip); got != mark+"[global]\nindex-url = closed: say {\"allow\"}\nretries = 0\n" {
		t.Errorf("closed: %q", got)
	}
	if got := file(npm); got != mark+"fetch-retries=0\n" {
		t.Errorf("closed: %q", got)
	}
	open := guestapi.Packages{Indexes: []string{"https://a.example/simple/", "http://b.example:81/simple/"}, FindLinks: []string{"https://a.example/links"}, Registry: "https://n.example/npm/"}
	s.do("POST", "/packages", open, nil)
	for path, want := range map[string]string{
		pip: "[global]\nindex-url = https://a.example/simple/\nextra-index-url = http://b.example:81/simple/\nfind-links = https://a.example/links\ntrusted-host = b.example:81\n",
		uv:  "[[index]]\nurl = \"http://b.example:81/simple/\"\ndefault = false\n[[index]]\nurl = \"https://a.example/simple/\"\ndefault = true\n",
		npm: "registry=https://n.example/npm/\nfetch-retry-mintimeout=500\nfetch-retry-maxtimeout=2000\n",
	} {
		if got := file(path); got != mark+want {
			t.Errorf("%s: %q", path, got)
		}
	}
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1}, nil) // says nothing of it
	if file(pip) == "" {
		t.Error("an assign that says nothing took the settings away")
	}
	write(t, filepath.Join(s.cfg.Root, npm), "the user's own\n")
	s.do("POST", "/packages", guestapi.Packages{}, nil)
	if file(pip) != "" || file(uv) != "" || file(npm) != "the user's own\n" {
		t.Errorf("left to themselves: %q, %q, %q", file(pip), file(uv), file(npm))
	}
	for _, bad := range []guestapi.Packages{
		{Indexes: []string{"https://ann:secret@a.example/"}}, {Indexes: []string{"https://a.example/\n[install]"}}, {Registry: "a.example"}, {Closed: "two\nlines"},
	} {
		s.fails("POST", "/packages", bad, 400, api.CodeInvalid)
	}
}
