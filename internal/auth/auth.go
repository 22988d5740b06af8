// Package auth makes and checks API keys, and says what each may do. A key is
// "pds_" and 32 hex digits of randomness; only its SHA-256 is kept, so that a
// stolen store opens nothing. Package httpapi asks it who a request is from.
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
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Home is the workspace of the keys that the daemon makes itself. Its
// administrators administer the server: they manage the keys of every
// workspace. Those of another workspace manage only its own.
const Home = "local"

const (
	keyStart     = "pds_"
	keyLen       = len(keyStart) + 32
	prefixLen    = len(keyStart) + 8 // what is shown of a key, and its name
	maxLabel     = 100
	maxWorkspace = 64
	maxKeys      = 1000 // of one workspace
	maxLife      = 3650 * 24 * time.Hour
	keepExpired  = 30 * 24 * time.Hour // listed, so that their users can see why they fail
)

// Key is what is kept of an API key.
//
// Hash is a plain SHA-256. Slow hashes exist for passwords, which can be
// guessed; of a key 96 bits are left to guess once its prefix is known, and no
// number of fast guesses gets there.
type Key struct {
	Prefix    string // the key's first characters: shown to users, unique
	Owner     string // the workspace whose sandboxes it reaches
	Label     string
	Scope     Scope
	Hash      [sha256.Size]byte
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedAt    time.Time // zero: never; as of the last minute
}

// Identity is who a request is from.
type Identity struct {
	Owner     string // the workspace
	Prefix    string // of the key
	Label     string
	Scope     Scope
	ExpiresAt time.Time // zero: never

	// Life ends when the key is revoked or expires. What was begun with the key
	// must end then.
	Life context.Context //nolint:containedctx // it is the key's, not a call's
}

// Host is whoever can write to the data directory.
var Host = Identity{Owner: Home, Scope: Admin, Life: context.Background()}

// ErrEnded is the cause with which the Life of an Identity ends.
var ErrEnded = errors.New("the API key was revoked or has expired")

// Require refuses what needs more than the key has.
func (who Identity) Require(need Scope) error {
	if !who.Scope.Covers(need) {
		return errScope(need)
	}
	return nil
}

// everywhere tells whether this is an administrator of the server.
func (who Identity) everywhere() bool { return who.Owner == Home && who.Scope.Covers(Admin) }

// RequireServer refuses all but administrators of the server, for what is about
// every workspace.
func (who Identity) RequireServer() error {
	if who.everywhere() {
		return nil
	}
	return fault.New(api.CodeDenied, "this is about all workspaces").WithHint("use an admin key of the workspace %s", Home)
}

// Store keeps keys.
type Store interface {
	Keys(ctx context.Context) ([]Key, error)
	AddKey(ctx context.Context, k Key) error
	DeleteKey(ctx context.Context, prefix string) error
	// TouchKeys notes when keys were last used, by prefix.
	TouchKeys(ctx context.Context, used map[string]time.Time) error
}

// Keys checks, makes and revokes keys. It answers from memory; the store is
// read once and written through.
type Keys struct {
	store Store
	now   func() time.Time

	change sync.Mutex // held while keys are added, removed and written

	mu       sync.Mutex // never held while the store works
	byPrefix map[string]*entry
}

// entry is a key that exists.
type entry struct {
	Key
	life   context.Context //nolint:containedctx // as in Identity
	end    context.CancelCauseFunc
	unsent bool // UsedAt is newer than the store's
}

// Open reads the keys.
func Open(ctx context.Context, store Store, now func() time.Time) (*Keys, error) {
	list, err := store.Keys(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	k := &Keys{store: store, now: now, byPrefix: map[string]*entry{}}
	for _, key := range list {
		k.add(key)
	}
	return k, nil
}

// add makes a key known, and ends its life when its time has come.
func (k *Keys) add(key Key) {
	life, end := context.WithCancelCause(context.Background())
	if !key.ExpiresAt.IsZero() {
		left := key.ExpiresAt.Sub(k.now())
		timer := time.AfterFunc(left, func() { end(ErrEnded) })
		context.AfterFunc(life, func() { timer.Stop() })
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byPrefix[key.Prefix] = &entry{Key: key, life: life, end: end}
}

// Check says whose key this is. It takes the same time for a wrong key as for
// a right one, and for a prefix that exists as for one that does not. A key
// that was revoked or has expired is none.
func (k *Keys) Check(secret string) (Identity, bool) {
	sum := sha256.Sum256([]byte(secret))
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := &entry{}
	if len(secret) == keyLen {
		if known := k.byPrefix[secret[:prefixLen]]; known != nil {
			e = known
		}
	}
	if subtle.ConstantTimeCompare(sum[:], e.Hash[:]) != 1 || e.expired(now) {
		return Identity{}, false
	}
	if now.Sub(e.UsedAt) >= time.Second {
		e.UsedAt, e.unsent = now.UTC().Truncate(time.Second), true
	}
	return Identity{Owner: e.Owner, Prefix: e.Prefix, Label: e.Label, Scope: e.Scope, ExpiresAt: e.ExpiresAt, Life: e.life}, true
}

func (k Key) expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) }

// Life tells by its prefix whether a key is good still, and gives what ends
// with it. It is for what was made with the key earlier.
func (k *Keys) Life(prefix string) (context.Context, bool) {
	e := k.get(prefix)
	if e == nil || e.expired(k.now()) {
		return nil, false
	}
	return e.life, true
}

// Grant is what a new key is to be. Zero values mean the default beside them.
type Grant struct {
	Label     string
	Scope     Scope     // Run
	Workspace string    // that of the key that makes it
	ExpiresAt time.Time // when the key that makes it expires
}

// Create makes a key for whoever asks, who cannot give more than they have.
// Its secret is returned once and kept nowhere.
func (k *Keys) Create(ctx context.Context, by Identity, g Grant) (secret string, key Key, err error) {
	g.Scope, g.Workspace = cmp.Or(g.Scope, Run), cmp.Or(g.Workspace, by.Owner)
	if g.ExpiresAt.IsZero() {
		g.ExpiresAt = by.ExpiresAt
	}
	now := k.now().UTC().Truncate(time.Millisecond)
	if err := by.mayGive(g); err != nil {
		return "", Key{}, err
	}
	if err := g.check(now); err != nil {
		return "", Key{}, err
	}
	k.change.Lock()
	defer k.change.Unlock()
	if len(k.of(g.Workspace)) >= maxKeys {
		return "", Key{}, fault.New(api.CodeConflict, "the workspace has its maximum of %d keys", maxKeys).WithHint("revoke some that are not needed")
	}
	for {
		raw := make([]byte, 16)
		rand.Read(raw) // never fails
		secret = keyStart + hex.EncodeToString(raw)
		if k.get(secret[:prefixLen]) == nil {
			break
		}
	}
	key = Key{
		Prefix: secret[:prefixLen], Owner: g.Workspace, Label: g.Label, Scope: g.Scope,
		Hash: sha256.Sum256([]byte(secret)), CreatedAt: now, ExpiresAt: g.ExpiresAt.UTC(),
	}
	if g.ExpiresAt.IsZero() {
		key.ExpiresAt = time.Time{}
	}
	if err := k.store.AddKey(ctx, key); err != nil {
		return "", Key{}, fmt.Errorf("storing an API key: %w", err)
	}
	k.add(key)
	return secret, key, nil
}

// mayGive refuses a grant that goes beyond what its giver has.
func (who Identity) mayGive(g Grant) error {
	if err := who.Require(Admin); err != nil {
		return err
	}
	if err := who.Require(g.Scope); err != nil {
		return err
	}
	if g.Workspace != who.Owner && !who.everywhere() {
		return fault.New(api.CodeDenied, "this key makes keys of its own workspace only").
			WithHint("leave workspace out, or use an admin key of the workspace %s", Home)
	}
	if !who.ExpiresAt.IsZero() && (g.ExpiresAt.IsZero() || g.ExpiresAt.After(who.ExpiresAt)) {
		return fault.New(api.CodeDenied, "this key expires at %s and cannot make one that lives longer", who.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

func (g Grant) check(now time.Time) error {
	if len(g.Label) > maxLabel {
		return fault.InvalidField("label", "label is longer than %d bytes", maxLabel)
	}
	if strings.ContainsFunc(g.Label, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fault.InvalidField("label", "label holds a control character")
	}
	if len(g.Workspace) > maxWorkspace || strings.ContainsFunc(g.Workspace, notInName) || g.Workspace == "" {
		return fault.InvalidField("workspace", "workspace must be 1 to %d letters, digits and -_., but is %.80q", maxWorkspace, g.Workspace)
	}
	if !g.ExpiresAt.IsZero() && (!g.ExpiresAt.After(now) || g.ExpiresAt.After(now.Add(maxLife+time.Minute))) {
		return fault.InvalidField("expires_at", "expires_at must be between now and ten years from now, but is %s", g.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r))
}

// List gives the keys of a workspace, oldest first: "" means the asker's own,
// "*" all that they manage.
func (k *Keys) List(by Identity, workspace string) ([]Key, error) {
	workspace = cmp.Or(workspace, by.Owner)
	if workspace != by.Owner && !by.everywhere() {
		return nil, fault.New(api.CodeDenied, "this key sees the keys of its own workspace only").
			WithHint("leave workspace out, or use an admin key of the workspace %s", Home)
	}
	out := k.of(workspace)
	slices.SortFunc(out, func(a, b Key) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Prefix, b.Prefix))
	})
	return out, nil
}

// of gives the keys of a workspace, "*" being all.
func (k *Keys) of(workspace string) []Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Key
	for _, e := range k.byPrefix {
		if workspace == "*" || e.Owner == workspace {
			out = append(out, e.Key)
		}
	}
	return out
}

// get finds a key by its prefix; nil when there is none.
func (k *Keys) get(prefix string) *entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byPrefix[prefix]
}

// Revoke ends a key at once, and with it the Life of everybody who uses it.
func (k *Keys) Revoke(ctx context.Context, by Identity, prefix string) error {
	k.change.Lock()
	defer k.change.Unlock()
	e := k.get(prefix)
	if e == nil || e.Owner != by.Owner && !by.everywhere() {
		return fault.New(api.CodeNotFound, "there is no key %.40q", prefix)
	}
	return k.remove(ctx, e)
}

func (k *Keys) remove(ctx context.Context, e *entry) error {
	if err := k.store.DeleteKey(ctx, e.Prefix); err != nil {
		return fmt.Errorf("deleting an API key: %w", err)
	}
	k.mu.Lock()
	delete(k.byPrefix, e.Prefix)
	k.mu.Unlock()
	e.end(ErrEnded)
	return nil
}

// Tidy writes when keys were last used, forgets those that expired long ago,
// and ends what a clock that was set forward has made expire. It is meant to be called once a minute, and when the daemon ends.
func (k *Keys) Tidy(ctx context.Context) error {
	k.change.Lock()
	defer k.change.Unlock()
	now := k.now()
	var old []*entry
	used := map[string]time.Time{}
	k.mu.Lock()
	for _, e := range k.byPrefix {
		if e.expired(now) {
			e.end(ErrEnded) // its timer goes wrong when the host's clock is set
		}
		switch {
		case e.expired(now.Add(-keepExpired)):
			old = append(old, e)
		case e.unsent:
			used[e.Prefix], e.unsent = e.UsedAt, false
		}
	}
	k.mu.Unlock()
	var errs []error
	for _, e := range old {
		errs = append(errs, k.remove(ctx, e))
	}
	if len(used) > 0 {
		if err := k.store.TouchKeys(ctx, used); err != nil {
			errs = append(errs, fmt.Errorf("noting when API keys were used: %w", err))
		}
	}
	return errors.Join(errs...)
}
