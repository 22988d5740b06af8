package api

import "time"

// Me is the answer of GET /v1/me: who the request is from.
type Me struct {
	ID         string     `json:"id"`
	Workspace  string     `json:"workspace"` // whose sandboxes the key reaches
	AuthMethod string     `json:"auth_method"`
	KeyPrefix  string     `json:"key_prefix"`
	KeyLabel   string     `json:"key_label,omitempty"`
	Scopes     []Scope    `json:"scopes"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"` // never when missing
}

// Scope is how much a key may do. Each one includes those before it.
type Scope string

// The scopes, from little to much.
const (
	ScopeRead  Scope = "read"  // look: lists, descriptions, files, output
	ScopeRun   Scope = "run"   // and make, change, use and end sandboxes
	ScopeAdmin Scope = "admin" // and manage keys
)

// CreateKeyRequest is the body of POST /v1/me/tokens. Every field may be left
// out.
type CreateKeyRequest struct {
	Label         string     `json:"label,omitempty"`
	Scopes        []Scope    `json:"scopes,omitempty"`          // default run
	ExpiresInDays *int       `json:"expires_in_days,omitempty"` // 1 to 3650; default never
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`      // instead
	Workspace     string     `json:"workspace,omitempty"`       // default that of the key that asks; another one only for admins of "local"
}

// KeyInfo describes an API key without its secret.
type KeyInfo struct {
	Prefix     string     `json:"prefix"` // names the key
	Label      string     `json:"label,omitempty"`
	Scopes     []Scope    `json:"scopes"`
	Workspace  string     `json:"workspace"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`   // never when missing
	LastUsedAt *time.Time `json:"last_used_at,omitempty"` // never when missing
}

// NewKey is a key that was just made. Token is shown this once.
type NewKey struct {
	Token string `json:"token"`
	KeyInfo
}
