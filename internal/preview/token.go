// Package preview is the way into servers that run in sandboxes: names under
// which their ports are seen from outside, signed links that open them for a
// while, and the passing on of requests. Package httpapi decides who may pass.
//
// It never decides who owns a sandbox, and passes on nothing that would let a
// sandbox act as its user: keys, and cookies of ours.
package preview

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"
)

// How long links live.
const (
	DefaultTTL = time.Hour
	MaxTTL     = 7 * 24 * time.Hour
)

const maxToken = 8 << 10 // bytes

// tokenForm is what a token looks like: {"s":" in base64, and a sum of 32 bytes.
var tokenForm = regexp.MustCompile(`eyJzIjoi[0-9A-Za-z_-]+\.[0-9A-Za-z_-]{43}`)

// Claims say what a link opens.
type Claims struct {
	SandboxID string   `json:"s"`
	Port      int      `json:"p"`
	Owner     string   `json:"w"` // the sandbox's workspace
	Key       string   `json:"k"` // prefix of the API key that made it, with which it ends
	Expires   int64    `json:"e"` // seconds since 1970
	Paths     []string `json:"a,omitempty"`
}

// ExpiresAt is when the link ends.
func (c Claims) ExpiresAt() time.Time { return time.Unix(c.Expires, 0).UTC() }

// What is wrong with a link.
var (
	ErrToken   = errors.New("this link is not valid")
	ErrExpired = errors.New("this link has expired")
)

// Signer makes and checks links.
type Signer struct {
	key []byte
	now func() time.Time
}

// NewSigner makes one with a key of 32 random bytes.
func NewSigner(key []byte, now func() time.Time) *Signer { return &Signer{key, now} }

func (s *Signer) sum(payload string) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte("pandastack preview 1\n" + payload))
	return m.Sum(nil)
}

// Sign makes a link's token.
func (s *Signer) Sign(c Claims) string {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	payload := base64.RawURLEncoding.EncodeToString(raw)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.sum(payload))
}

// Verify says what a token opens. The error is ErrToken or ErrExpired.
func (s *Signer) Verify(token string) (Claims, error) {
	var c Claims
	payload, sum, found := strings.Cut(token, ".")
	if !found || len(token) > maxToken {
		return c, ErrToken
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if err != nil || !hmac.Equal(given, s.sum(payload)) {
		return c, ErrToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return Claims{}, ErrToken
	}
	if !s.now().Before(c.ExpiresAt()) {
		return c, ErrExpired
	}
	return c, nil
}
