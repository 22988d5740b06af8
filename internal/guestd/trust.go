package guestd

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	systemBundle = "etc/ssl/certs/ca-certificates.crt"
	ownBundle    = "etc/ssl/certs/pandastack.pem"                   // our authority alone
	localBundle  = "usr/local/share/ca-certificates/pandastack.crt" // from which update-ca-certificates makes the system's anew

	trustTime = 20 * time.Second // for programs that know stores of their own
)

// bundles are files of authorities that programs bring along.
var bundles = []string{
	systemBundle,
	"etc/pki/tls/certs/ca-bundle.crt",
	"opt/venv/lib/python3*/site-packages/certifi/cacert.pem",
	"opt/venv/lib/python3*/site-packages/pip/_vendor/certifi/cacert.pem",
	"usr/lib/python3*/dist-packages/certifi/cacert.pem",
	"usr/lib/python3*/dist-packages/pip/_vendor/certifi/cacert.pem",
	"usr/lib/python3*/site-packages/certifi/cacert.pem",
	"usr/local/lib/python3*/*-packages/certifi/cacert.pem",
	"usr/local/lib/python3*/*-packages/pip/_vendor/certifi/cacert.pem",
}

func (a *Agent) postTrust(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.TrustRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if block, rest := pem.Decode(req.PEM); block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return fault.InvalidField("pem", "pem is not one certificate")
	}
	return noContent(w, a.trust(r.Context(), req.PEM))
}

// trust puts an authority where programs look for those they trust: the
// system's bundle and Python's are files, Node and others are told by variables.
// It may come again.
func (a *Agent) trust(ctx context.Context, authority []byte) error {
	root := a.cfg.Root
	for _, path := range []string{ownBundle, localBundle} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			return err
		}
		if err := replaceFile(filepath.Join(root, path), string(authority), 0o644); err != nil {
			return err
		}
	}
	var found [][]byte
	for _, pattern := range bundles {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			have, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found = append(found, have)
			if err := addAuthority(path, have, authority); err != nil {
				return err
			}
		}
	}
	system := filepath.Join(root, systemBundle)
	if _, err := os.Stat(system); errors.Is(err, fs.ErrNotExist) {
		// A template without the system's own: Python's are as good.
		var have []byte
		if len(found) > 0 {
			have = found[0]
		}
		if err := addAuthority(system, have, authority); err != nil {
			return err
		}
	}
	a.env.addDefaults(map[string]string{
		"SSL_CERT_FILE": "/" + systemBundle, "REQUESTS_CA_BUNDLE": "/" + systemBundle, "CURL_CA_BUNDLE": "/" + systemBundle,
		"GIT_SSL_CAINFO": "/" + systemBundle, "PIP_CERT": "/" + systemBundle, "NODE_EXTRA_CA_CERTS": "/" + ownBundle,
	})
	a.tellStores(ctx)
	return nil
}

// addAuthority writes a bundle with an authority at its end.
func addAuthority(path string, have, authority []byte) error {
	if bytes.Contains(have, bytes.TrimSpace(authority)) {
		return nil
	}
	all := bytes.TrimRight(have, "\n")
	if len(all) > 0 {
		all = append(bytes.Clone(all), '\n')
	}
	return replaceFile(path, string(append(all, authority...)), 0o644)
}

// tellStores has programs take the authority that keep stores in forms of their
// own: OpenSSL finds authorities in a folder by a hash, Java in a key store.
// Where they are not there, there is nothing to tell.
func (a *Agent) tellStores(ctx context.Context) {
	if a.cfg.Root != "/" {
		return // a test
	}
	ctx, cancel := context.WithTimeout(ctx, trustTime)
	defer cancel()
	if openssl, err := exec.LookPath("openssl"); err == nil {
		hash, err := exec.CommandContext(ctx, openssl, "x509", "-noout", "-hash", "-in", "/"+ownBundle).Output()
		name := filepath.Join("/etc/ssl/certs", strings.TrimSpace(string(hash))+".0")
		if err == nil {
			err = os.Symlink("/"+ownBundle, name)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			a.log.Warn("OpenSSL's folder of authorities lacks ours", "error", err)
		}
	}
	if keytool, err := exec.LookPath("keytool"); err == nil {
		if err := tellJava(ctx, keytool, "/"+ownBundle, "-cacerts"); err != nil {
			a.log.Warn("Java's key store lacks our authority", "error", err)
		}
	}
}

// tellJava has keytool take an authority into a key store, which the last
// arguments name. Once is enough.
func tellJava(ctx context.Context, keytool, authority string, store ...string) error {
	args := append([]string{"-importcert", "-noprompt", "-storepass", "changeit", "-alias", "pandastack", "-file", authority}, store...)
	out, err := exec.CommandContext(ctx, keytool, args...).CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("already exists")) {
		return fmt.Errorf("%w: %s", err, short(string(out)))
	}
	return nil
}
