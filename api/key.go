package api

import "time"

// Me is the answer of GET /v1/me: who the request is from.
type Me struct {
	ID         string     `json:"id"`
	Workspace  string     `json:"workspace"` // whose sandboxes the key reaches
	AuthMethod string     `json:"auth_method"`
	KeyPrefix  string     `json:"key_prefix"`
	KeyLabel   string     `json:"key_label,omitempty"`
	Scopes     []string   `json:"scopes"`               // of "read", "run", "admin"
	ExpiresAt  *time.Time `json:"expires_at,omitempty"` // never when missing
}

// CreateKeyRequest is the body of POST /v1/me/tokens. Every field may be left
// out.
type CreateKeyRequest struct {
	Label         string     `json:"label,omitempty"`
	Scopes        []string   `json:"scopes,omitempty"`          // of "read", "run", "admin", each including those before it; default run
	ExpiresInDays *int       `json:"expires_in_days,omitempty"` // 1 to 3650; default never
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`      // instead
	Workspace     string     `json:"workspace,omitempty"`       // default that of the key that asks; another one only for admins of "local"
}

// KeyInfo describes an API key without its secret.
type KeyInfo struct {
	Prefix     string     `json:"prefix"` // names the key
	Label      string     `json:"label,omitempty"`
	Scopes     []string   `json:"scopes"`
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
