package api

import "time"

// SnapshotRequest is the body of POST …/snapshots.
type SnapshotRequest struct {
	Name     string            `json:"name,omitempty"` // at most 128 bytes; need not be unique
	Metadata map[string]string `json:"metadata,omitempty"`
	// CarryRunning takes it though cells run: every copy goes on with them.
	// Without it the call waits up to 10 s for them, and then is a conflict.
	CarryRunning bool `json:"carry_running,omitempty"`
	TTLSeconds   int  `json:"ttl_seconds,omitempty"` // after which it is removed; 0: it stays until somebody does
}

// Snapshot describes a snapshot: memory, files and processes of a sandbox at
// one moment, from which sandboxes can be made.
type Snapshot struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	SandboxID  string            `json:"sandbox_id"`          // it was taken of
	ParentID   string            `json:"parent_id,omitempty"` // the snapshot that this sandbox was made from
	Workspace  string            `json:"workspace"`
	Template   string            `json:"template"`
	Digest     string            `json:"digest"` // of the template, which stays as long as the snapshot
	CPU        float64           `json:"cpu"`    // these three are the defaults of sandboxes made from it
	MemoryMB   int               `json:"memory_mb"`
	DiskMB     int               `json:"disk_mb"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	SizeBytes  int64             `json:"size_bytes"`
	DurationMS float64           `json:"duration_ms"` // that taking it took; the sandbox stood still for a part of it
	CreatedAt  time.Time         `json:"created_at"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"` // it is removed then; never when missing
	Contexts   []string          `json:"contexts,omitempty"`   // ids of the code contexts in it, as far as the sandbox said
	Origin     *SnapshotOrigin   `json:"origin,omitempty"`     // nil when it was taken on this server
}

// SnapshotOrigin says where an imported snapshot is from. SandboxID and ParentID
// of the snapshot are ids of that server then.
type SnapshotOrigin struct {
	SnapshotID string    `json:"snapshot_id"` // its id there
	Workspace  string    `json:"workspace"`
	Key        string    `json:"key"`     // of the server that signed the archive, as "ed25519:…"
	Version    string    `json:"version"` // of that server
	ExportedAt time.Time `json:"exported_at"`
	ImportedAt time.Time `json:"imported_at"`
}

// SnapshotImport is the answer of POST /v1/snapshots.
type SnapshotImport struct {
	Snapshot Snapshot          `json:"snapshot"`
	Missing  []SnapshotMissing `json:"missing"` // what the sandbox had and this server does not
}

// What a SnapshotMissing is.
const (
	MissingSecret = "secret" // of the workspace; name is its name
	MissingValue  = "value"  // of a header or an address, given with the sandbox and never exported; name is the header's, "password", or that in the query, as "?token"
	MissingPolicy = "policy" // a named network policy of the server's settings
	MissingTools  = "tools"  // a namespace of tools that the server's settings declare
)

// SnapshotMissing is something that a sandbox used and that did not come with
// its snapshot.
type SnapshotMissing struct {
	Kind string `json:"kind"` // "secret", "value", "policy" or "tools"
	Name string `json:"name"`
	For  string `json:"for,omitempty"` // the host, or the tools, that it was for
}

// SnapshotList is the answer of GET /v1/snapshots, the newest first.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// SnapshotPatch is the body of PATCH /v1/snapshots/{id}. What is nil stays.
type SnapshotPatch struct {
	Name       *string            `json:"name,omitempty"`
	Metadata   *map[string]string `json:"metadata,omitempty"`    // replaces all of it
	TTLSeconds *int               `json:"ttl_seconds,omitempty"` // from now on; 0: it stays
}

// CarryRequest is the body of POST …/hibernate, which may be empty.
type CarryRequest struct {
	// CarryRunning does it though cells run: they go on when the sandbox wakes.
	CarryRunning bool `json:"carry_running,omitempty"`
}

// StatusAnswer is the answer of POST …/hibernate and …/wake.
type StatusAnswer struct {
	Status Status `json:"status"`
}
