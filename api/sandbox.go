package api

import "time"

// Status is the state of a sandbox.
type Status string

// The states of a sandbox. Deleted sandboxes are no longer listed.
const (
	StatusCreating   Status = "creating"
	StatusRunning    Status = "running"
	StatusPaused     Status = "paused"
	StatusHibernated Status = "hibernated"
	StatusStopping   Status = "stopping"
	StatusDeleted    Status = "deleted"
	StatusFailed     Status = "failed"
)

// CreateSandboxRequest is the body of POST /v1/sandboxes. Every field may be
// left out.
type CreateSandboxRequest struct {
	Template           string            `json:"template,omitempty"`      // default "base"; "ubuntu-24.04" is an alias of it
	FromSnapshot       string            `json:"from_snapshot,omitempty"` // instead of Template
	TTLSeconds         *int              `json:"ttl_seconds,omitempty"`   // default 300, at most the server's ceiling
	IdleTimeoutSeconds *int              `json:"idle_timeout_seconds,omitempty"`
	Persistent         bool              `json:"persistent,omitempty"` // hibernate instead of kill when the time is up
	Metadata           map[string]string `json:"metadata,omitempty"`
	Envs               map[string]string `json:"envs,omitempty"`
	CPU                *float64          `json:"cpu,omitempty"` // cores
	MemoryMB           *int              `json:"memory_mb,omitempty"`
	DiskMB             *int              `json:"disk_mb,omitempty"` // of the writable layer
	PIDs               *int              `json:"pids,omitempty"`    // processes and threads
	Reseed             *bool             `json:"reseed,omitempty"`  // default true: random state is made new
	Network            *NetworkPolicy    `json:"network,omitempty"` // what it may reach; default: nothing, or as in the snapshot
	Secrets            Secrets           `json:"secrets,omitempty"` // added to its requests on their way out; default: none, or as in the snapshot
	Tools              *Tools            `json:"tools,omitempty"`   // functions outside that Python inside can call; default: none, or as in the snapshot

	// IdempotencyKey travels as the header Idempotency-Key. Within 24 h the same
	// key with the same options stands for the same sandbox.
	IdempotencyKey string `json:"-"`
}

// SandboxInfo describes a sandbox.
type SandboxInfo struct {
	ID                 string            `json:"id"`
	Template           string            `json:"template"`
	Status             Status            `json:"status"`
	CPU                float64           `json:"cpu"`
	MemoryMB           int               `json:"memory_mb"`
	DiskMB             int               `json:"disk_mb"`
	PIDs               int               `json:"pids"`            // processes and threads
	Usage              *Usage            `json:"usage,omitempty"` // in the answer of GET …/{id}, while it lives
	Metadata           map[string]string `json:"metadata,omitempty"`
	FromSnapshot       string            `json:"from_snapshot,omitempty"`
	ForkedFrom         string            `json:"forked_from,omitempty"` // the sandbox that it is a copy of
	Persistent         bool              `json:"persistent"`
	TTLSeconds         int               `json:"ttl_seconds"`
	IdleTimeoutSeconds int               `json:"idle_timeout_seconds,omitempty"`
	CreatedAt          time.Time         `json:"created_at"`
	ExpiresAt          time.Time         `json:"expires_at"`
	Driver             string            `json:"driver"`
	BootMS             float64           `json:"boot_ms"`              // from the request to a guest that answers
	BootMode           string            `json:"boot_mode"`            // "pool", "prepared" (a created sandbox was waiting) or "cold"
	EndReason          string            `json:"end_reason,omitempty"` // why it is no longer running: "killed", "ttl", "oom", "crashed", …
	Generation         int               `json:"generation"`           // goes up at every restore
	Capabilities       []string          `json:"capabilities,omitempty"`
	Network            *NetworkInfo      `json:"network,omitempty"`
	PreviewHost        string            `json:"preview_host,omitempty"` // its ports are seen at {port}-{id}.{preview_host}
}

// Lifecycle is the answer of GET and PATCH …/lifecycle.
type Lifecycle struct {
	TTLSeconds         int       `json:"ttl_seconds"`
	IdleTimeoutSeconds int       `json:"idle_timeout_seconds"`
	Persistent         bool      `json:"persistent"`
	IdleSeconds        float64   `json:"idle_seconds"` // since the last call, 0 while something runs
	ExpiresAt          time.Time `json:"expires_at"`
}

// LifecyclePatch is the body of PATCH …/lifecycle. What is nil stays.
type LifecyclePatch struct {
	TTLSeconds         *int  `json:"ttl_seconds,omitempty"` // counted from now
	IdleTimeoutSeconds *int  `json:"idle_timeout_seconds,omitempty"`
	Persistent         *bool `json:"persistent,omitempty"`
}

// TemplateInfo describes a template that sandboxes can be made from.
type TemplateInfo struct {
	Name        string            `json:"name"`
	Aliases     []string          `json:"aliases,omitempty"`
	Digest      string            `json:"digest"`
	Description string            `json:"description,omitempty"`
	RootfsPath  string            `json:"rootfs_path"`
	SizeBytes   int64             `json:"size_bytes"`
	CPU         float64           `json:"cpu"`
	MemoryMB    int               `json:"memory_mb"`
	DiskMB      int               `json:"disk_mb"`
	PIDs        int               `json:"pids"` // processes and threads
	IsGlobal    bool              `json:"is_global"`
	BuiltAt     time.Time         `json:"built_at"`
	Meta        map[string]string `json:"meta,omitempty"`
}
