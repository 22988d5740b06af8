package api

import "time"

// Limits are what a sandbox may use.
type Limits struct {
	CPU      float64 `json:"cpu"`       // cores
	MemoryMB int     `json:"memory_mb"` // MiB, everything included that it costs the host
	DiskMB   int     `json:"disk_mb"`   // MiB of the writable layer
	PIDs     int     `json:"pids"`      // processes and threads
}

// Usage is what a sandbox uses, and how often it met its limits. What is
// counted begins with its creation, or when it last woke.
type Usage struct {
	At          time.Time `json:"at"`
	CPUPercent  float64   `json:"cpu_percent"` // of one core, since the last look, or since its creation
	CPUSeconds  float64   `json:"cpu_seconds"`
	MemoryBytes int64     `json:"memory_bytes"`
	DiskBytes   int64     `json:"disk_bytes"`
	Processes   int       `json:"processes"` // and threads
	LimitHits   LimitHits `json:"limit_hits"`
}

// LimitHits counts how often each limit was met.
type LimitHits struct {
	CPU        int64   `json:"cpu"`         // periods of 100 ms that ended with its share used up
	CPUSeconds float64 `json:"cpu_seconds"` // that its threads were held back for, added up
	MemoryMB   int64   `json:"memory_mb"`   // cells that got a MemoryError, contexts and commands ended for their memory, refused ones
	DiskMB     int64   `json:"disk_mb"`     // writes refused: ENOSPC
	PIDs       int64   `json:"pids"`        // processes and threads refused: EAGAIN
}

// Metrics is the answer of GET …/metrics.
type Metrics struct {
	PID            int     `json:"pid"` // of the process on the host that holds it
	UptimeSeconds  float64 `json:"uptime_seconds"`
	HostCPUPercent float64 `json:"host_cpu_percent"` // of one core
	HostRSSBytes   int64   `json:"host_rss_bytes"`
	HostVSZBytes   int64   `json:"host_vsz_bytes"`
	Threads        int     `json:"threads"` // of that process

	Limits Limits `json:"limits"`
	Usage  Usage  `json:"usage"`
}
