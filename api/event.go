package api

import "time"

// The types of LifeEvent and what is in their Payload. Types are added over
// time: ignore those that you do not know.
const (
	LifeCreated          = "created"           // template, ttl_seconds, cpu, memory_mb, disk_mb, by, request_id
	LifeReady            = "ready"             // path ("pool", "prepared", "cold"), boot_ms: it answers
	LifeStepFailed       = "step_failed"       // step, detail: something after the restore that it can do without
	LifeLifecycleChanged = "lifecycle_changed" // ttl_seconds, expires_at, by, request_id
	LifePaused           = "paused"            // by, request_id
	LifeResumed          = "resumed"           // by, request_id
	LifeSnapshotTaken    = "snapshot_taken"    // snapshot_id, size_bytes, duration_ms, by, request_id
	LifeSnapshotExpired  = "snapshot_expired"  // snapshot_id: its time was over, and it was removed; the sandbox may have ended long before
	LifeForked           = "forked"            // children, by, request_id
	LifeHibernated       = "hibernated"        // why ("asked", "idle", "ttl", "shutdown"), duration_ms, by, request_id
	LifeNotHibernated    = "not_hibernated"    // why, detail: it goes on, and it is tried again after a minute
	LifeWoken            = "woken"             // boot_ms, by, request_id
	LifeNetworkChanged   = "network_changed"   // mode, by, request_id
	LifePortChanged      = "port_changed"      // port, public, by, request_id
	LifeExpiring         = "expiring"          // at: hibernated for so long that it will be ended then, unless a call wakes it
	LifeContextStarted   = "context_started"   // context_id
	LifeContextRestarted = "context_restarted" // context_id
	LifeContextEnded     = "context_ended"     // context_id
	LifeCellEnded        = "cell_ended"        // context_id, execution_id, end, duration_ms, state_survived, step: an end other than ok
	LifeProcessTimeout   = "process_timeout"   // pid, duration_ms
	LifeProcessOOM       = "process_oom"       // pid, duration_ms
	LifeLimitHit         = "limit_hit"         // limit ("output", "contexts", "processes", or of the sandbox: "cpu", "memory_mb", "disk_mb", "pids", "network.flows", "network.flow_rate", "network.bytes", "network.names", "network.questions", with hits, their number), detail
	LifeLinkLost         = "link_lost"         // the agent inside is no longer connected
	LifeLinkRestored     = "link_restored"     // and is again
	LifeSuppressed       = "suppressed"        // count: events of this sandbox that came too fast to be kept
	LifeOOM              = "oom"               // detail: the sandbox used more memory than it may; ended follows
	LifeExpired          = "expired"           // ttl_seconds: its time was over; ended follows
	LifeKilled           = "killed"            // by, request_id; ended follows
	LifeAdopted          = "adopted"           // state: a new daemon took it over
	LifeEnded            = "ended"             // reason, detail; the last event of a sandbox
	LifeDaemonStarted    = "daemon_started"    // version, driver, clean (whether the last one was told to stop)
	LifeDaemonStopped    = "daemon_stopped"    // version
	LifeEventsLost       = "events_lost"       // count: they came faster than the store took them
	LifeGap              = "gap"               // after, through: events with numbers between are no longer kept; in streams alone
)

// LifeEvent is something that happened to a sandbox or to the daemon: an entry
// of GET /v1/sandboxes/{id}/events and /v1/events.
type LifeEvent struct {
	ID        int64          `json:"id"` // rises, with gaps; a stream goes on after it with Last-Event-ID
	Time      time.Time      `json:"time"`
	SandboxID string         `json:"sandbox_id"` // "" for events of the daemon
	Type      string         `json:"type"`
	Payload   map[string]any `json:"payload"`
}

// LifeEvents is the answer of GET …/events without follow, the oldest first.
type LifeEvents struct {
	Events []LifeEvent `json:"events"`
}

// LogLine is the data of the events "line" of GET …/logs?follow=1.
type LogLine struct {
	Line   string    `json:"line"`
	Stream string    `json:"stream"` // "stdout": the console, "stderr": the log of the agent inside
	Time   time.Time `json:"time"`   // by the sandbox's clock
}
