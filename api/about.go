package api

// Version is the answer of GET /version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Driver  string `json:"driver"`
	// SnapshotKey is what the server's exported snapshots are signed with, as other
	// servers name it in snapshot_trusted_keys. "" from the program itself.
	SnapshotKey string `json:"snapshot_key,omitempty"`
}

// Health is the answer of GET /healthz and /readyz.
type Health struct {
	Status string `json:"status"` // "ok", "ready"
}

// Readiness is the answer of GET /readyz. With reasons it comes with the status
// 503 and the fields of an Error beside it.
type Readiness struct {
	Status   string   `json:"status"`   // "ready" or "unready"
	Reasons  []Reason `json:"reasons"`  // why sandboxes cannot be made
	Warnings []Reason `json:"warnings"` // what is wrong besides
}

// Reason is one thing that keeps the server from its work.
type Reason struct {
	ID     string `json:"id"` // "starting", "no_template", "template_stale", "disk_full", "store_broken"
	Detail string `json:"detail"`
	Fix    string `json:"fix"` // what the operator can do
}
