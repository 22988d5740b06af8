package guestd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// byUs begins a file that the agent wrote and may write again.
const byUs = "# Written by PandaStack after the network of the sandbox; a file of your own stays.\n"

// The files of package managers that have the least to say, so that whatever a
// user or a template sets wins.
const (
	pipFile = "etc/xdg/pip/pip.conf"
	uvFile  = "etc/xdg/uv/uv.toml"
	npmFile = "root/.npmrc"
)

func (a *Agent) postPackages(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.Packages
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if err := checkPackages(req); err != nil {
		return err
	}
	_, err := a.assignPackages(&req)
	return noContent(w, err)
}

// checkPackages holds what goes into files to one line each.
func checkPackages(p guestapi.Packages) error {
	for _, list := range [][]string{p.Indexes, p.FindLinks, {p.Registry}} {
		for _, u := range list {
			if parsed, err := url.Parse(u); u != "" && (err != nil || parsed.Host == "" || parsed.User != nil || strings.ContainsAny(u, " \t\r\n\"\\")) {
				return fault.InvalidField("packages", "a place of packages is not a plain URL")
			}
		}
	}
	if strings.ContainsAny(p.Closed, "\r\n") {
		return fault.InvalidField("packages", "closed has more than a line")
	}
	return nil
}

// assignPackages tells package managers where they get packages from.
func (a *Agent) assignPackages(p *guestapi.Packages) (string, error) {
	if p == nil {
		return "as they were", nil
	}
	var errs []error
	for path, content := range map[string]string{pipFile: pipSettings(*p), uvFile: uvSettings(*p), npmFile: npmSettings(*p)} {
		errs = append(errs, keepOurs(filepath.Join(a.cfg.Root, path), content))
	}
	return "", errors.Join(errs...)
}

func pipSettings(p guestapi.Packages) string {
	var out strings.Builder
	line := func(key string, values []string) {
		if len(values) > 0 {
			fmt.Fprintf(&out, "%s = %s\n", key, strings.Join(values, "\n    "))
		}
	}
	if p.Closed != "" {
		line("index-url", []string{p.Closed})
		line("retries", []string{"0"})
		return "[global]\n" + out.String()
	}
	if len(p.Indexes) > 0 {
		line("index-url", p.Indexes[:1])
		line("extra-index-url", p.Indexes[1:])
	}
	line("find-links", p.FindLinks)
	var plain []string // pip takes packages over HTTP from those alone that it is told to trust
	for _, list := range [][]string{p.Indexes, p.FindLinks} {
		for _, raw := range list {
			if u, err := url.Parse(raw); err == nil && u.Scheme == "http" {
				plain = append(plain, u.Host)
			}
		}
	}
	line("trusted-host", plain)
	if out.Len() == 0 {
		return ""
	}
	return "[global]\n" + out.String()
}

func uvSettings(p guestapi.Packages) string {
	var out strings.Builder
	for i := len(p.Indexes) - 1; i >= 0; i-- { // the default one is asked last
		fmt.Fprintf(&out, "[[index]]\nurl = %q\ndefault = %t\n", p.Indexes[i], i == 0)
	}
	return out.String()
}

// npmSettings keeps npm, besides, from trying a name that is closed for more than
// a minute: it waits 10 and then 60 seconds before it tries again.
func npmSettings(p guestapi.Packages) string {
	switch {
	case p.Registry != "":
		return "registry=" + p.Registry + "\nfetch-retry-mintimeout=500\nfetch-retry-maxtimeout=2000\n"
	case p.Closed != "" || len(p.Indexes) > 0:
		return "fetch-retries=0\n"
	}
	return ""
}

// keepOurs makes a file hold what we have to say, which may be nothing, unless
// it is somebody else's.
func keepOurs(path, content string) error {
	have, err := os.ReadFile(path)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch {
	case there && !bytes.HasPrefix(have, []byte(byUs)), !there && content == "", string(have) == byUs+content:
		return nil
	case content == "":
		return os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return replaceFile(path, byUs+content, 0o644)
}
