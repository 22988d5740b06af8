package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/pandastack/pandastack/internal/auth"
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
		out[i] = auth.Key{Prefix: r.Prefix, Owner: r.Owner, Label: r.Label, Hash: [sha256.Size]byte(r.Hash), CreatedAt: r.CreatedAt}
	}
	return out, nil
}

// AddKey implements auth.Store.
func (s keyStore) AddKey(ctx context.Context, k auth.Key) error {
	return s.store.AddKey(ctx, store.Key{Prefix: k.Prefix, Owner: k.Owner, Label: k.Label, Hash: k.Hash[:], CreatedAt: k.CreatedAt})
}

// DeleteKey implements auth.Store.
func (s keyStore) DeleteKey(ctx context.Context, prefix string) error {
	return s.store.DeleteKey(ctx, prefix)
}
