package pandastack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const defaultURL = "http://127.0.0.1:8080"

// systemFile is where the daemon of a whole machine puts its entry, readable by
// its group. It is looked at when a user has no file of their own.
var systemFile = "/etc/pandastack/client.json"

// clientFile is ~/.config/pandastack/config.json. The daemon merges its entry
// into it; Token and APIKeyCamel are what other clients call the key.
type clientFile struct {
	entry
	Profiles map[string]entry `json:"profiles"`
}

type entry struct {
	APIURL      string `json:"api_url"`
	APIKey      string `json:"api_key"`
	APIKeyCamel string `json:"apiKey"`
	Token       string `json:"token"`
}

func (e entry) key() string { return first(e.Token, e.APIKeyCamel, e.APIKey) }

// find settles address and key.
func find(o options) (apiURL, apiKey string, err error) {
	apiURL, apiKey = o.apiURL, o.apiKey
	if o.profile == "" {
		apiURL = first(apiURL, os.Getenv("PANDASTACK_API"), os.Getenv("PANDASTACK_API_URL"))
		apiKey = first(apiKey, os.Getenv("PANDASTACK_API_KEY"))
	}
	if apiURL != "" && apiKey != "" {
		return apiURL, apiKey, nil
	}
	file, raw, err := readFile(o)
	if err != nil {
		return "", "", err
	}
	if raw == nil && o.profile == "" {
		return first(apiURL, defaultURL), apiKey, nil
	}
	if raw == nil {
		return "", "", fmt.Errorf("pandastack: there is no client configuration to take the profile %q from", o.profile)
	}
	var doc clientFile
	if err := json.Unmarshal(raw, &doc); err != nil {
		return "", "", fmt.Errorf("pandastack: the client configuration %s is not valid: %w", file, err)
	}
	e := doc.entry
	if o.profile != "" {
		p, ok := doc.Profiles[o.profile]
		if !ok {
			return "", "", fmt.Errorf("pandastack: %s has no profile %q", file, o.profile)
		}
		e = p
	}
	return first(apiURL, e.APIURL, defaultURL), first(apiKey, e.key()), nil
}

// readFile gives the file that was named, the user's own, or that of the whole
// machine; nothing when there is none that this user may read.
func readFile(o options) (file string, raw []byte, err error) {
	file = o.file
	if file == "" {
		dir, err := os.UserConfigDir() // XDG_CONFIG_HOME, or .config in the home folder
		if err == nil {
			file = filepath.Join(dir, "pandastack", "config.json")
		}
	}
	if file != "" {
		raw, err = os.ReadFile(file)
		if err == nil {
			return file, raw, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("pandastack: reading the client configuration: %w", err)
		}
	}
	if o.file != "" {
		return "", nil, nil
	}
	raw, err = os.ReadFile(systemFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("pandastack: reading the client configuration: %w", err)
	}
	return systemFile, raw, nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
