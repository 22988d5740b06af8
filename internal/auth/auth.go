// Package auth makes and checks API keys. A key is "pds_" and 32 hex digits of
// randomness; only its SHA-256 is kept, so that a stolen store opens nothing.
// Package httpapi asks it who a request is from.
//
// It never stores anything itself: its Store does.
package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	keyStart  = "pds_"
	keyLen    = len(keyStart) + 32
	prefixLen = len(keyStart) + 8 // what is shown of a key, and its name
	maxLabel  = 100
)

// Key is what is kept of an API key.
type Key struct {
	Prefix    string // the key's first characters: shown to users, unique
	Owner     string // whose sandboxes it reaches
	Label     string
	Hash      [sha256.Size]byte
	CreatedAt time.Time
}

// Identity is who a request is from.
type Identity struct {
	Owner  string
	Prefix string // of the key
	Label  string
}

// Store keeps keys.
type Store interface {
	Keys(ctx context.Context) ([]Key, error)
	AddKey(ctx context.Context, k Key) error
	DeleteKey(ctx context.Context, prefix string) error
}

// Keys checks, makes and revokes keys. It answers from memory; the store is
// read once and written through.
type Keys struct {
	store Store
	now   func() time.Time

	mu       sync.RWMutex
	byPrefix map[string]Key
}

// Open reads the keys.
func Open(ctx context.Context, store Store, now func() time.Time) (*Keys, error) {
	list, err := store.Keys(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	k := &Keys{store: store, now: now, byPrefix: map[string]Key{}}
	for _, key := range list {
		k.byPrefix[key.Prefix] = key
	}
	return k, nil
}

// Check says whose key this is. It takes the same time for a wrong key as for
// a right one, and for a prefix that exists as for one that does not.
func (k *Keys) Check(secret string) (Identity, bool) {
	sum := sha256.Sum256([]byte(secret))
	var key Key
	if len(secret) == keyLen {
		k.mu.RLock()
		key = k.byPrefix[secret[:prefixLen]]
		k.mu.RUnlock()
	}
	if subtle.ConstantTimeCompare(sum[:], key.Hash[:]) != 1 {
		return Identity{}, false
	}
	return Identity{Owner: key.Owner, Prefix: key.Prefix, Label: key.Label}, true
}

// Create makes a key. Its secret is returned once and kept nowhere.
func (k *Keys) Create(ctx context.Context, owner, label string) (secret string, key Key, err error) {
	if len(label) > maxLabel {
		return "", Key{}, fault.InvalidField("label", "label is longer than %d bytes", maxLabel)
	}
	if strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", Key{}, fault.InvalidField("label", "label holds a control character")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		raw := make([]byte, 16)
		rand.Read(raw) // never fails
		secret = keyStart + hex.EncodeToString(raw)
		if _, taken := k.byPrefix[secret[:prefixLen]]; !taken {
			break
		}
	}
	key = Key{
		Prefix: secret[:prefixLen], Owner: owner, Label: label,
		Hash: sha256.Sum256([]byte(secret)), CreatedAt: k.now().UTC().Truncate(time.Second),
	}
	if err := k.store.AddKey(ctx, key); err != nil {
		return "", Key{}, fmt.Errorf("storing an API key: %w", err)
	}
	k.byPrefix[key.Prefix] = key
	return secret, key, nil
}

// List gives an owner's keys, oldest first.
func (k *Keys) List(owner string) []Key {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out []Key
	for _, key := range k.byPrefix {
		if key.Owner == owner {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, func(a, b Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Prefix, b.Prefix))
	})
	return out
}

// Revoke ends an owner's key at once.
func (k *Keys) Revoke(ctx context.Context, owner, prefix string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, ok := k.byPrefix[prefix]
	if !ok || key.Owner != owner {
		return fault.New(api.CodeNotFound, "there is no key %q", prefix)
	}
	if err := k.store.DeleteKey(ctx, prefix); err != nil {
		return fmt.Errorf("deleting an API key: %w", err)
	}
	delete(k.byPrefix, prefix)
	return nil
}
