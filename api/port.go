package api

import "time"

// Port is a port of a sandbox: one that something listens on, or that somebody
// has named.
type Port struct {
	Port      int      `json:"port"`
	Label     string   `json:"label"`     // "" when nobody gave one
	Public    bool     `json:"public"`    // anybody who knows its address may see it
	Listening bool     `json:"listening"` // as the sandbox says; false while it sleeps
	Source    string   `json:"source"`    // "user" (somebody named it) or "detected"
	Addresses []string `json:"addresses,omitempty"`
	URL       string   `json:"url,omitempty"` // its own address, for browsers; "" when this server has no name for it
	ProxyURL  string   `json:"proxy_url"`     // below the API's address, with the key
}

// CreatePortRequest is the body of POST …/ports: it names a port, or changes
// what was said of one before.
type CreatePortRequest struct {
	Port   int    `json:"port"`
	Label  string `json:"label,omitempty"`  // at most 100 bytes
	Public bool   `json:"public,omitempty"` // anybody may see it; default false
}

// PreviewTokenRequest is the body of POST …/preview-token.
type PreviewTokenRequest struct {
	Port       int      `json:"port"`
	TTLSeconds *int     `json:"ttl_seconds,omitempty"` // default 3600, at most 604800
	Paths      []string `json:"paths,omitempty"`       // that it opens, each with all below it; default all
}

// PreviewToken is a signed link to a port. It opens the port to whoever has it,
// until it expires, the key that made it ends, or the sandbox does.
type PreviewToken struct {
	URL       string    `json:"url"` // below the API's address; a browser is led to the port's own
	Token     string    `json:"token"`
	SandboxID string    `json:"sandbox_id"`
	Port      int       `json:"port"`
	Paths     []string  `json:"paths,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}
