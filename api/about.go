package api

// Version is the answer of GET /version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Driver  string `json:"driver"`
}

// Health is the answer of GET /healthz and /readyz.
type Health struct {
	Status string `json:"status"` // "ok", "ready"
}
