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

const maxToken = 16 << 10 // bytes; those of the longest path that a link may have are fewer

// tokenForm is what a token looks like: {"s":" in base64, and a sum of 32 bytes.
var tokenForm = regexp.MustCompile(`eyJzIjoi[0-9A-Za-z_-]+\.[0-9A-Za-z_-]{43}`)

// Claims say what a link to a port opens.
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

// FileClaims say what a link to a file opens.
type FileClaims struct {
	SandboxID string `json:"s"`
	Path      string `json:"f"`           // absolute and clean
	Upload    bool   `json:"u,omitempty"` // it writes the file; otherwise it reads it
	MaxBytes  int64  `json:"n,omitempty"` // of an upload
	Owner     string `json:"w"`           // the sandbox's workspace
	Key       string `json:"k"`           // prefix of the API key that made it, with which it ends
	Expires   int64  `json:"e"`           // seconds since 1970
}

// ExpiresAt is when the link ends.
func (c FileClaims) ExpiresAt() time.Time { return time.Unix(c.Expires, 0).UTC() }

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

// sum signs a payload as one of a kind: a link of one kind is none of another.
func (s *Signer) sum(kind, payload string) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte("pandastack " + kind + " 1\n" + payload))
	return m.Sum(nil)
}

func (s *Signer) sign(kind string, claims any) string {
	raw, err := json.Marshal(claims)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	payload := base64.RawURLEncoding.EncodeToString(raw)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.sum(kind, payload))
}

func (s *Signer) verify(kind, token string, claims any) error {
	payload, sum, found := strings.Cut(token, ".")
	if !found || len(token) > maxToken {
		return ErrToken
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if err != nil || !hmac.Equal(given, s.sum(kind, payload)) {
		return ErrToken
	}
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(raw, claims) != nil {
		return ErrToken
	}
	return nil
}

// Sign makes the token of a link to a port.
func (s *Signer) Sign(c Claims) string { return s.sign("preview", c) }

// Verify says what the token of a link to a port opens. The error is ErrToken or
// ErrExpired.
func (s *Signer) Verify(token string) (Claims, error) {
	var c Claims
	if err := s.verify("preview", token, &c); err != nil {
		return Claims{}, err
	}
	if !s.now().Before(c.ExpiresAt()) {
		return c, ErrExpired
	}
	return c, nil
}

// SignFile makes the token of a link to a file.
func (s *Signer) SignFile(c FileClaims) string { return s.sign("file", c) }

// VerifyFile says what the token of a link to a file opens. The error is
// ErrToken or ErrExpired.
func (s *Signer) VerifyFile(token string) (FileClaims, error) {
	var c FileClaims
	if err := s.verify("file", token, &c); err != nil {
		return FileClaims{}, err
	}
	if !s.now().Before(c.ExpiresAt()) {
		return c, ErrExpired
	}
	return c, nil
}
