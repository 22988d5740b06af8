package network

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// NpmIndex asks the npm of this machine. What npm does not show, tokens and
// passwords, is read from its files, in which variables of env may stand.
// Registries of single scopes are left out.
func NpmIndex(env func(name string) (string, bool)) FindIndex {
	return func(ctx context.Context) (Index, error) { return askNpm(ctx, env) }
}

func askNpm(ctx context.Context, env func(string) (string, bool)) (Index, error) {
	out, err := ask(ctx, "npm", "config", "get", "registry", "cafile", "globalconfig", "userconfig")
	if err != nil {
		return Index{}, err
	}
	set := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value != "null" {
			set[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	registry, err := url.Parse(set["registry"])
	if err != nil || registry.Host == "" {
		return Index{}, errors.New("npm names no registry")
	}
	in := Index{URLs: []string{registry.String()}, CA: set["cafile"]}
	lines := map[string]string{}
	for _, file := range []string{set["globalconfig"], set["userconfig"]} { // the user's wins
		if err := readNPMRC(file, lines, env); err != nil {
			return Index{}, err
		}
	}
	if header := npmAuthorization(registry, lines); header != "" {
		in.Authorization = map[string]string{registry.Host: header}
	}
	return in, nil
}

// readNPMRC adds the settings of a file, which need not be there.
func readNPMRC(file string, to map[string]string, env func(string) (string, bool)) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || file == "" {
		return nil
	}
	if err != nil {
		return fmt.Errorf("npm's settings: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, ";") || strings.HasPrefix(key, "#") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		to[strings.TrimSpace(key)] = variable.ReplaceAllStringFunc(value, func(v string) string {
			if set, ok := env(v[2 : len(v)-1]); ok {
				return set
			}
			return v
		})
	}
	return nil
}

// variable is one of the environment in a setting of npm's.
var variable = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*\}`)

// npmAuthorization gives the header for a registry: settings are for a host and
// a path below which they hold, as in "//host/path/:_authToken".
func npmAuthorization(registry *url.URL, set map[string]string) string {
	path := strings.TrimSuffix(registry.Path, "/")
	for {
		at := "//" + registry.Host + path
		for _, at := range []string{at + "/:", at + ":"} {
			if v := set[at+"_authToken"]; v != "" {
				return "Bearer " + v
			}
			if v := set[at+"_auth"]; v != "" {
				return "Basic " + v
			}
			password, err := base64.StdEncoding.DecodeString(set[at+"_password"])
			if user := set[at+"username"]; user != "" && err == nil && len(password) > 0 {
				return basic(user, string(password))
			}
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return ""
		}
		path = path[:i]
	}
}
