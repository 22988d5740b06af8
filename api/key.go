package api

import "time"

// Me is the answer of GET /v1/me: who the request is from.
type Me struct {
	ID         string `json:"id"`
	Workspace  string `json:"workspace"`
	AuthMethod string `json:"auth_method"`
	KeyPrefix  string `json:"key_prefix"`
	KeyLabel   string `json:"key_label,omitempty"`
}

// CreateKeyRequest is the body of POST /v1/me/tokens.
type CreateKeyRequest struct {
	Label string `json:"label,omitempty"`
}

// KeyInfo describes an API key without its secret.
type KeyInfo struct {
	Prefix    string    `json:"prefix"` // names the key
	Label     string    `json:"label,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// NewKey is a key that was just made. Token is shown this once.
type NewKey struct {
	Token string `json:"token"`
	KeyInfo
}
