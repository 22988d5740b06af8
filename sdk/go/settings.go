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
	file := o.file
	if file == "" {
		dir, err := os.UserConfigDir() // XDG_CONFIG_HOME, or .config in the home folder
		if err != nil {
			return first(apiURL, defaultURL), apiKey, nil //nolint:nilerr // no home, no file
		}
		file = filepath.Join(dir, "pandastack", "config.json")
	}
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && o.profile == "" {
		return first(apiURL, defaultURL), apiKey, nil
	}
	if err != nil {
		return "", "", fmt.Errorf("pandastack: reading the client configuration: %w", err)
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

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
