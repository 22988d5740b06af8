package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// keyStore keeps API keys in the daemon's store.
type keyStore struct{ store *store.Store }

var _ auth.Store = keyStore{}

// Keys implements auth.Store.
func (s keyStore) Keys(ctx context.Context) ([]auth.Key, error) {
	rows, err := s.store.Keys(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]auth.Key, len(rows))
	for i, r := range rows {
		if len(r.Hash) != sha256.Size {
			return nil, fmt.Errorf("the hash of key %s has %d bytes", r.Prefix, len(r.Hash))
		}
		out[i] = auth.Key{
			Prefix: r.Prefix, Owner: r.Owner, Label: r.Label, Scope: auth.Scope(r.Scope), Hash: [sha256.Size]byte(r.Hash),
			CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, UsedAt: r.UsedAt,
		}
	}
	return out, nil
}

// AddKey implements auth.Store.
func (s keyStore) AddKey(ctx context.Context, k auth.Key) error {
	return s.store.AddKey(ctx, store.Key{
		Prefix: k.Prefix, Owner: k.Owner, Label: k.Label, Scope: string(k.Scope), Hash: k.Hash[:],
		CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, UsedAt: k.UsedAt,
	})
}

// DeleteKey implements auth.Store.
func (s keyStore) DeleteKey(ctx context.Context, prefix string) error {
	return s.store.DeleteKey(ctx, prefix)
}

// TouchKeys implements auth.Store.
func (s keyStore) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	return s.store.TouchKeys(ctx, used)
}

// HideKeys gives a writer for logs in which no API key can be read.
func HideKeys(w io.Writer) io.Writer { return auth.HideKeys(w) }

// tidyKeys keeps the keys tidy until the context ends.
func tidyKeys(ctx context.Context, keys *auth.Keys, log *slog.Logger) {
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-t.C:
		}
		if err := keys.Tidy(context.WithoutCancel(ctx)); err != nil {
			log.Error("tidying API keys", "error", err)
		}
	}
}

// CreateKey makes an administrator's key in the data directory, for a host
// whose keys are all lost. The daemon must not run.
func CreateKey(ctx context.Context, cfg *config.Config, label string) (k api.NewKey, err error) {
	if _, err := os.Stat(cfg.DataDir); err != nil { // a new one would make a key that opens nothing
		return k, fault.Wrap(err, api.CodeNotFound, "there is no data directory %s", cfg.DataDir).WithHint("name the daemon's own with --data-dir")
	}
	st, err := store.Open(ctx, cfg.DataDir)
	if err != nil {
		return k, err
	}
	defer closing(&err, st.Close)
	keys, err := auth.Open(ctx, keyStore{st}, time.Now)
	if err != nil {
		return k, err
	}
	secret, key, err := keys.Create(ctx, auth.Host, auth.Grant{Label: label, Scope: auth.Admin})
	if err != nil {
		return k, err
	}
	return api.NewKey{Token: secret, KeyInfo: api.KeyInfo{
		Prefix: key.Prefix, Label: key.Label, Scopes: key.Scope.Words(), Workspace: key.Owner, CreatedAt: key.CreatedAt,
	}}, nil
}
