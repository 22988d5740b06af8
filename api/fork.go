package api

import "time"

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
