package api

import "time"

// SnapshotRequest is the body of POST …/snapshots.
type SnapshotRequest struct {
	Name     string            `json:"name,omitempty"` // at most 128 bytes; need not be unique
	Metadata map[string]string `json:"metadata,omitempty"`
	// CarryRunning takes it though cells run: every copy goes on with them.
	// Without it the call waits up to 10 s for them, and then is a conflict.
	CarryRunning bool `json:"carry_running,omitempty"`
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
}

// SnapshotList is the answer of GET /v1/snapshots, the newest first.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// SnapshotPatch is the body of PATCH /v1/snapshots/{id}. What is nil stays.
type SnapshotPatch struct {
	Name     *string            `json:"name,omitempty"`
	Metadata *map[string]string `json:"metadata,omitempty"` // replaces all of it
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

// ForkRequest is the body of POST …/fork and …/fork-tree.
type ForkRequest struct {
	Count        *int              `json:"count,omitempty"`       // 1 to 16; default 1, and 2 for a tree
	Metadata     map[string]string `json:"metadata,omitempty"`    // on top of the parent's
	Envs         map[string]string `json:"envs,omitempty"`        // on top of the parent's, for new processes
	TTLSeconds   *int              `json:"ttl_seconds,omitempty"` // default: the parent's, from now
	Reseed       *bool             `json:"reseed,omitempty"`      // default true: random state is made new in each
	CarryRunning bool              `json:"carry_running,omitempty"`
}

// Fork is the answer of POST …/fork and …/fork-tree. A copy that could not be
// made is in Errors; when none could, the call fails.
type Fork struct {
	TreeID   string        `json:"tree_id,omitempty"` // of a tree, for promote
	ParentID string        `json:"parent_id"`
	Children []SandboxInfo `json:"children"`
	Errors   []ForkError   `json:"errors,omitempty"`
	At       time.Time     `json:"at"` // the moment that the copies are of
}

// ForkError says why one copy was not made.
type ForkError struct {
	Index   int    `json:"index"` // 0 to count-1
	Message string `json:"error"`
	Code    Code   `json:"code"`
}

// PromoteRequest is the body of POST …/promote.
type PromoteRequest struct {
	CleanupSiblings bool   `json:"cleanup_siblings,omitempty"` // end the other branches of the tree
	TreeID          string `json:"tree_id,omitempty"`          // default: the tree that the sandbox is of
}

// Promotion is the answer of POST …/promote.
type Promotion struct {
	Winner   string            `json:"winner"`
	TreeID   string            `json:"tree_id"`
	Deleted  []string          `json:"deleted"`
	Failures map[string]string `json:"failures"` // why a branch could not be ended, by id
}
