package network

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	maxSecret  = 16 << 10 // bytes of a value
	maxSecrets = 1000     // of a workspace
)

// Secrets are those that the server keeps for each workspace. They go in and
// are used; they never come out.
type Secrets struct {
	store Store
	box   *box
}

// ofSecret is what a sealed secret is bound to: put under another name or into
// another workspace it does not open.
func ofSecret(owner, name string) string { return "secret\x00" + owner + "\x00" + name }

// PutSecret keeps a secret, in the place of an earlier one of the same name,
// which sandboxes use from the next request on.
func (s *Secrets) PutSecret(ctx context.Context, owner, name, value string) (api.SecretInfo, error) {
	if err := guestapi.CheckID("name", name); err != nil {
		return api.SecretInfo{}, err
	}
	switch {
	case value == "":
		return api.SecretInfo{}, fault.InvalidField("value", "value is missing")
	case len(value) > maxSecret:
		return api.SecretInfo{}, fault.InvalidField("value", "value has %d bytes; at most %d are kept", len(value), maxSecret)
	case !httpguts.ValidHeaderFieldValue(value) || strings.TrimSpace(value) != value:
		return api.SecretInfo{}, fault.InvalidField("value", "value cannot be the value of a header: it has line ends, control characters, or spaces around it")
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	sec := store.Secret{Owner: owner, Name: name, Sealed: s.box.seal([]byte(value), ofSecret(owner, name)), CreatedAt: now, UpdatedAt: now}
	have, err := s.store.Secrets(ctx, owner)
	if err != nil {
		return api.SecretInfo{}, err
	}
	known := false
	for _, h := range have {
		if h.Name == name {
			known, sec.CreatedAt = true, h.CreatedAt
		}
	}
	if !known && len(have) >= maxSecrets {
		return api.SecretInfo{}, fault.New(api.CodeConflict, "the workspace has its maximum of %d secrets", maxSecrets).WithHint("remove some that are not needed")
	}
	return described(sec), s.store.PutSecret(ctx, sec)
}

// ListSecrets gives the names of a workspace's secrets.
func (s *Secrets) ListSecrets(ctx context.Context, owner string) ([]api.SecretInfo, error) {
	list, err := s.store.Secrets(ctx, owner)
	out := []api.SecretInfo{}
	for _, sec := range list {
		out = append(out, described(sec))
	}
	return out, err
}

// GetSecret describes a secret.
func (s *Secrets) GetSecret(ctx context.Context, owner, name string) (api.SecretInfo, error) {
	sec, err := s.store.Secret(ctx, owner, name)
	if errors.Is(err, store.ErrNotFound) {
		return api.SecretInfo{}, errNoSecret(name)
	}
	return described(sec), err
}

// HasSecret tells whether a workspace has a secret.
func (s *Secrets) HasSecret(ctx context.Context, owner, name string) (bool, error) {
	_, err := s.store.Secret(ctx, owner, name)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// DeleteSecret forgets a secret. Requests of sandboxes that use it fail from then on.
func (s *Secrets) DeleteSecret(ctx context.Context, owner, name string) error {
	err := s.store.DeleteSecret(ctx, owner, name)
	if errors.Is(err, store.ErrStale) {
		return errNoSecret(name)
	}
	return err
}

func errNoSecret(name string) error {
	return fault.New(api.CodeNotFound, "there is no secret %.80q", name)
}

func described(s store.Secret) api.SecretInfo {
	return api.SecretInfo{Name: s.Name, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt}
}

// Value gives a secret to the one that adds it to a request.
func (s *Secrets) Value(ctx context.Context, owner, name string) (string, error) {
	sec, err := s.store.Secret(ctx, owner, name)
	if errors.Is(err, store.ErrNotFound) {
		return "", errNoSecret(name)
	}
	if err != nil {
		return "", err
	}
	raw, err := s.box.open(sec.Sealed, ofSecret(owner, name))
	if err != nil {
		return "", fmt.Errorf("a secret cannot be decrypted; was the file master.key of the data directory changed? %w", err)
	}
	return string(raw), nil
}

// box encrypts with AES-256-GCM. Each sealed thing has a nonce of its own and is
// bound to what it is for.
type box struct{ aead cipher.AEAD }

func newBox(key []byte) *box {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // the key is of the wrong length: a fault of ours
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return &box{aead}
}

const sealVersion = 1

func (b *box) seal(plain []byte, context string) []byte {
	return b.aead.Seal([]byte{sealVersion}, nil, plain, []byte(context))
}

func (b *box) open(sealed []byte, context string) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, errors.New("it was sealed in a way that this version does not know")
	}
	return b.aead.Open(nil, nil, sealed[1:], []byte(context))
}
