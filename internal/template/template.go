// Package template turns recipes into templates: a root filesystem and the
// memory snapshot of a sandbox that runs in it with the guest agent up and the
// interpreter warm. The daemon and `pandastack template` call it.
//
// A build has four stages. The distribution's own signed packages are laid out
// by its bootstrapper; wheels are downloaded on the host; everything that runs
// code of theirs runs inside a sandbox without a network; and a snapshot is
// taken of the warm sandbox. Results are addressed by what went into them, at
// two levels, so that a new guest agent costs a new snapshot and no more.
//
// The package never runs a recipe's code on the host, never reads the
// environment, and knows neither which driver builds nor who uses a template.
package template

import "time"

// Template is one that was built. Its paths are absolute and stay valid while
// the store's InUse names the digest.
type Template struct {
	Name        string   `json:"name"`
	Aliases     []string `json:"aliases,omitempty"`
	Description string   `json:"description,omitempty"`

	Digest         string `json:"digest"`          // of the snapshot and with it of all that it was made from
	RootfsDigest   string `json:"rootfs_digest"`   //
	ProgramsDigest string `json:"programs_digest"` //

	Rootfs   string `json:"-"` // driver.Spec.Rootfs
	Snapshot string `json:"-"` // driver.Spec.Snapshot
	Programs string `json:"-"` // driver.Spec.Programs
	Missing  string `json:"-"` // the first of these folders that is gone, from Named

	CPU      float64 `json:"cpu"`       // cores a sandbox gets unless it asks for others
	MemoryMB int     `json:"memory_mb"` //
	DiskMB   int     `json:"disk_mb"`   // of the writable layer
	PIDs     int     `json:"pids"`      // processes and threads inside

	Python  string   `json:"python,omitempty"` // path of the interpreter inside, "" without kernels
	Version string   `json:"version,omitempty"`
	Imports []string `json:"imports,omitempty"` // imported before the snapshot
	Spares  int      `json:"spares"`            // interpreters to keep forked ahead

	RootfsBytes   int64     `json:"rootfs_bytes"`
	SnapshotBytes int64     `json:"snapshot_bytes"`
	BuiltAt       time.Time `json:"built_at"`
	BuildSeconds  float64   `json:"build_seconds"`
}
