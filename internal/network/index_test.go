package network_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/network"
	"github.com/pandastack/pandastack/internal/store"
)

// withIndexes is a service whose machine is set to what the test says.
func withIndexes(t *testing.T, pip, npm func() (network.Index, error)) *network.Service {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	ca, err := egress.LoadCA(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := network.New(network.Options{
		Store: st, Key: key, CA: ca, Named: map[string]api.NetworkPolicy{"packages": *policy("pypi", "npm")},
		PyPI: func(context.Context) (network.Index, error) { return pip() },
		NPM:  func(context.Context) (network.Index, error) { return npm() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const passwordOfIndex = "s3cret of the index"

func private() (network.Index, error) {
	return network.Index{
		URLs:      []string{"https://ann:s3cret%20of%20the%20index@packages.corp.example:8443/simple/", "http://open.corp.example/simple/"},
		FindLinks: []string{"https://links.corp.example/"}, Files: true, Default: "https://index.example/simple",
	}, nil
}

func registry() (network.Index, error) {
	return network.Index{URLs: []string{"https://npm.corp.example/"}, Authorization: map[string]string{"npm.corp.example": "Bearer token-of-npm"}}, nil
}

func TestWordsStandForWhatTheMachineIsSetTo(t *testing.T) {
	s := withIndexes(t, private, registry)
	for name, p := range map[string]*api.NetworkPolicy{"in allow": policy("pypi", "npm"), "in a named policy": {Policy: "packages"}, "beside mode open": {Mode: api.NetworkOpen, Allow: policy("pypi", "npm").Allow}} {
		n, err := s.Plan(t.Context(), "ann", p, nil, store.Network{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		row := store.Sandbox{ID: "sb-1", Owner: "ann", Network: n}
		got, err := s.Packages(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got) != "{[https://packages.corp.example:8443/simple/ http://open.corp.example/simple/] [https://links.corp.example/]  https://npm.corp.example/}" {
			t.Errorf("%s: %v", name, got)
		}
		if pem, err := s.Certificate(t.Context(), row); err != nil || len(pem) == 0 {
			t.Errorf("%s: the sandbox gets no certificate: %v", name, err)
		}
		if shown := fmt.Sprint(s.Show(row)); strings.Contains(shown, "s3cret") || strings.Contains(shown, "token") {
			t.Errorf("%s: %s", name, shown)
		}
		g, err := s.Open(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"packages.corp.example", "open.corp.example", "links.corp.example", "npm.corp.example"} {
			if addressIn(g.Resolve(t.Context(), query(host), false)) == "" {
				t.Errorf("%s: %s is not known", name, host)
			}
		}
		s.Close(row)
	}
}

func TestPackagesThatAreClosed(t *testing.T) {
	s := withIndexes(t, private, registry)
	for name, tc := range map[string]struct {
		policy *api.NetworkPolicy
		closed bool
	}{
		"nothing is open":           {nil, true},
		"mode deny":                 {&api.NetworkPolicy{Mode: api.NetworkDeny}, true},
		"something else is open":    {policy("api.example"), true},
		"pip's own host is open":    {policy("index.example"), false},
		"everything is open":        {&api.NetworkPolicy{Mode: api.NetworkOpen}, false},
		"a host that is named pypi": {&api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "pypi"}}}, true},
	} {
		n, err := s.Plan(t.Context(), "ann", tc.policy, nil, store.Network{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Packages(t.Context(), store.Sandbox{Owner: "ann", Network: n})
		if err != nil || (got.Closed != "") != tc.closed || len(got.Indexes) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if tc.closed && !strings.Contains(got.Closed, `network={"allow": ["pypi"]}`) {
			t.Errorf("%s: it does not say what to do: %s", name, got.Closed)
		}
	}
}

func TestIndexesThatCannotBe(t *testing.T) {
	for name, tc := range map[string]struct {
		index network.Index
		err   error
		says  string
	}{
		"no pip":              {err: errors.New("the program python3 is not there"), says: "python3 is not there"},
		"no index":            {says: "no index"},
		"on this machine":     {index: network.Index{URLs: []string{"http://localhost:3141/simple"}}, says: "localhost:3141"},
		"an address":          {index: network.Index{URLs: []string{"https://ann:s3cret@10.0.0.1/"}}, says: "name its host"},
		"a password in clear": {index: network.Index{URLs: []string{"http://ann:s3cret@a.example/"}}, says: "https alone"},
		"a file":              {index: network.Index{URLs: []string{"file:///srv/simple"}}, says: "only http and https"},
		"no URL":              {index: network.Index{URLs: []string{"https://ann:s3cret@[::"}}, says: "cannot be read"},
		"no authority":        {index: network.Index{URLs: []string{"https://a.example/"}, CA: "/nonexistent"}, says: "/nonexistent"},
	} {
		s := withIndexes(t, func() (network.Index, error) { return tc.index, tc.err }, registry)
		_, err := s.Plan(t.Context(), "ann", policy("a.example", "pypi"), nil, store.Network{})
		var f *fault.Error
		if !errors.As(err, &f) || f.Field != "network.allow[1]" || !strings.Contains(f.Message, tc.says) || strings.Contains(f.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What pip on this machine is set to, by its files, the environment and .netrc.
func TestPipSaysWhatItIsSetTo(t *testing.T) {
	if exec.Command("python3", "-m", "pip", "--version").Run() != nil {
		t.Skip("there is no pip")
	}
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "PIP_") || strings.HasSuffix(name, "_CA_BUNDLE") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{
		"pip.conf": "[global]\nindex-url = https://ann:s3cret%20of@a.example/simple\nextra-index-url =\n    https://b.example/simple\n    https://c.example:444/simple\ncert = /etc/own.pem\n[install]\nfind-links = /srv/wheels https://d.example/links\n",
		"netrc":    "machine b.example login bob password of-netrc\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PIP_CONFIG_FILE", filepath.Join(dir, "pip.conf"))
	t.Setenv("NETRC", filepath.Join(dir, "netrc"))
	got, err := network.PipIndex(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.URLs) != "[https://ann:s3cret%20of@a.example/simple https://bob:of-netrc@b.example/simple https://c.example:444/simple]" ||
		fmt.Sprint(got.FindLinks) != "[https://d.example/links]" || got.CA != "/etc/own.pem" || len(got.Hosts) != 0 || got.Default == "" {
		t.Errorf("%+v", got)
	}
	// The environment wins; a machine that is set to nothing uses pip's default, with the host of its files.
	t.Setenv("PIP_INDEX_URL", "https://env.example/simple")
	if got, err = network.PipIndex(t.Context()); err != nil || got.URLs[0] != "https://env.example/simple" {
		t.Errorf("%+v, %v", got, err)
	}
	t.Setenv("PIP_INDEX_URL", "")
	t.Setenv("PIP_CONFIG_FILE", os.DevNull)
	if got, err = network.PipIndex(t.Context()); err != nil || len(got.URLs) != 1 || got.URLs[0] != got.Default || len(got.Hosts) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	t.Setenv("PIP_NO_INDEX", "1")
	if got, err = network.PipIndex(t.Context()); err != nil || len(got.URLs) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNpmSaysWhatItIsSetTo(t *testing.T) {
	if exec.Command("npm", "--version").Run() != nil {
		t.Skip("there is no npm")
	}
	file := filepath.Join(t.TempDir(), "npmrc")
	t.Setenv("npm_config_userconfig", file)
	t.Setenv("TOKEN_OF_TEST", "from-the-environment")
	for content, want := range map[string]string{
		"//a.example/npm/:_authToken=${TOKEN_OF_TEST}\n":                                "Bearer from-the-environment",
		"//a.example/:_auth=\"YW5uOng=\"\n":                                             "Basic YW5uOng=",
		"; a comment\n//a.example/npm/:username=ann\n//a.example/npm/:_password=eA==\n": "Basic YW5uOng=",
		"//other.example/:_authToken=x\n":                                               "",
	} {
		if err := os.WriteFile(file, []byte("registry=https://a.example/npm/\ncafile=/etc/own.pem\n"+content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := network.NpmIndex(os.LookupEnv)(t.Context())
		if err != nil || fmt.Sprint(got.URLs) != "[https://a.example/npm/]" || got.CA != "/etc/own.pem" || got.Authorization["a.example"] != want {
			t.Errorf("%q: %+v, %v", content, got, err)
		}
	}
}
