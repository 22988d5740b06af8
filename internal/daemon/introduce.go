package daemon

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
)

// introduce gives clients on this machine the daemon's address and a key: the
// one they have from an earlier start, or a new one.
func introduce(ctx context.Context, cfg *config.Config, keys *auth.Keys, url, file string) (Started, error) {
	s := Started{Version: Version("").Version, URL: url}
	if file == "" {
		return s, nil
	}
	entry := config.ClientEntry{APIURL: url, DataDir: cfg.DataDir}
	fallback := filepath.Join(cfg.DataDir, "client.json")
	for _, f := range []string{file, fallback} {
		if e, ok := config.EntryOf(f, cfg.DataDir); ok {
			if _, valid := keys.Check(e.APIKey); valid {
				entry.APIKey = e.APIKey
				break
			}
		}
	}
	if entry.APIKey == "" {
		secret, _, err := keys.Create(ctx, auth.Host, auth.Grant{Label: "clients on this machine", Scope: auth.Admin})
		if err != nil {
			return s, err
		}
		entry.APIKey = secret
	}
	merged, err := config.MergeClient(file, entry, cfg.ClientGroup)
	if err != nil {
		if errors.Is(err, fault.Invalid) { // a setting
			return s, err
		}
		// A configuration that cannot be read is the user's to mend; the key must
		// not be lost meanwhile.
		s.ClientError = err
		if merged, err = config.MergeClient(fallback, entry, cfg.ClientGroup); err != nil {
			return s, err
		}
	}
	s.ClientFile, s.Profile = merged.File, merged.Profile
	return s, nil
}
