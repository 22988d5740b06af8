package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/pandastack/pandastack/internal/fault"
)

// ClientEntry is what a daemon contributes to the file that clients read.
type ClientEntry struct {
	APIURL  string `json:"api_url"`
	APIKey  string `json:"api_key"`
	DataDir string `json:"daemon_data_dir"` // which daemon made it
}

// Merged says where the entry of a daemon ended up.
type Merged struct {
	File    string
	Profile string // empty: the entry that clients use without being told
}

// EntryOf finds the entry that the daemon of this data directory made earlier.
func EntryOf(file, dataDir string) (ClientEntry, bool) {
	doc, err := readClientFile(file)
	if err != nil {
		return ClientEntry{}, false
	}
	for _, section := range append([]map[string]any{doc}, profiles(doc)...) {
		if section["daemon_data_dir"] == dataDir {
			e := ClientEntry{DataDir: dataDir}
			e.APIURL, _ = section["api_url"].(string)
			e.APIKey, _ = section["api_key"].(string)
			return e, true
		}
	}
	return ClientEntry{}, false
}

// MergeClient writes the daemon's entry into the file and leaves everything
// else in it as it is. Where clients already have a key that this daemon did
// not make, that key stays and the entry becomes a profile of its own. The file
// is readable by its owner and, when one is given, by a group of the machine.
func MergeClient(file string, e ClientEntry, group string) (Merged, error) {
	doc, err := readClientFile(file)
	if err != nil {
		return Merged{}, err
	}
	m := Merged{File: file}
	section := doc
	if !ours(doc, e.DataDir) && hasKey(doc) {
		all, _ := doc["profiles"].(map[string]any)
		if all == nil {
			all = map[string]any{}
			doc["profiles"] = all
		}
		for n := 1; ; n++ {
			m.Profile = "local"
			if n > 1 {
				m.Profile = fmt.Sprintf("local-%d", n)
			}
			p, taken := all[m.Profile].(map[string]any)
			if !taken {
				p = map[string]any{}
				all[m.Profile] = p
			}
			if !taken || ours(p, e.DataDir) {
				section = p
				break
			}
		}
	}
	section["api_url"], section["api_key"], section["daemon_data_dir"] = e.APIURL, e.APIKey, e.DataDir
	return m, writeClientFile(file, doc, group)
}

func ours(section map[string]any, dataDir string) bool { return section["daemon_data_dir"] == dataDir }

// hasKey tells whether a published client would find a key here.
func hasKey(section map[string]any) bool {
	for _, name := range []string{"token", "apiKey", "api_key"} {
		if s, ok := section[name].(string); ok && s != "" {
			return true
		}
	}
	return false
}

func profiles(doc map[string]any) []map[string]any {
	var out []map[string]any
	all, _ := doc["profiles"].(map[string]any)
	for _, p := range all {
		if section, ok := p.(map[string]any); ok {
			out = append(out, section)
		}
	}
	return out
}

func readClientFile(file string) (map[string]any, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the client configuration: %w", err)
	}
	doc := map[string]any{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("the client configuration %s is not a JSON object: %w", file, err)
	}
	if doc == nil { // the file held null
		doc = map[string]any{}
	}
	return doc, nil
}

// writeClientFile replaces the file in one step.
func writeClientFile(file string, doc map[string]any, group string) error {
	raw, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the client configuration: %w", err)
	}
	// A link stays a link: what it points at is replaced.
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the client configuration's folder: %w", err)
	}
	tmp, err := os.CreateTemp(dir, ".config-*.json") // made with mode 0600
	if err != nil {
		return fmt.Errorf("writing the client configuration: %w", err)
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(append(raw, '\n')); err != nil {
		tmp.Close()
		return fmt.Errorf("writing the client configuration: %w", err)
	}
	if group != "" {
		if err := shareWith(tmp, group); err != nil {
			tmp.Close()
			return err
		}
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("writing the client configuration: %w", err)
	}
	if err := os.Rename(tmp.Name(), file); err != nil {
		return fmt.Errorf("writing the client configuration: %w", err)
	}
	return nil
}

// shareWith lets a group of the machine read a file.
func shareWith(f *os.File, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return fault.InvalidField("client_group", "the group %q cannot be found: %v", group, err).WithHint("make it with: groupadd --system %s", group)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err == nil {
		err = errors.Join(f.Chown(-1, gid), f.Chmod(0o640))
	}
	if err != nil {
		return fmt.Errorf("giving the client configuration to the group %s: %w", group, err)
	}
	return nil
}
