// Package driver is the contract between the domain (package sandbox) and what
// actually isolates a sandbox: gVisor, later Firecracker, and a fake for tests.
//
// A driver knows nothing of users, time limits or the API. It makes instances
// from a template's snapshot, finds them again after a restart of the daemon,
// and ends them so that nothing stays behind. What only some drivers can do is
// an optional interface, found by type assertion and shown to users as a
// capability.
//
// The states of an instance: Prepare gives a Prepared that costs memory but
// runs nothing; Restore turns it into a running Instance exactly once; Stop or
// the end of its processes turns that into an Exit. Ids have one length. One may
// be used again when Stop has returned, as that of a sandbox that wakes.
package driver

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/egress"
)

// Driver makes sandboxes.
type Driver interface {
	// Name is "gvisor", "firecracker" or "fake".
	Name() string

	// Check says what of the host is missing or wrong.
	Check(ctx context.Context) []Check

	// Prepare does all of a create that needs no decision yet, so that Restore
	// is fast. The instance's id, spec and link folder are fixed by it.
	Prepare(ctx context.Context, spec Spec) (Prepared, error)

	// Adopt finds a running instance of an earlier daemon. The error wraps
	// fault.NotFound when it is gone; its leftovers are then cleaned up.
	Adopt(ctx context.Context, id string) (Instance, error)

	// Sweep ends and removes everything of this driver's whose id keep does
	// not hold: processes, mounts, cgroups, folders. It says what it removed.
	Sweep(ctx context.Context, keep map[string]bool) (removed []string, err error)
}

// Prepared is a sandbox that is created but does not run yet.
type Prepared interface {
	// Restore lets it run from its snapshot, with these limits. It may be
	// called once.
	Restore(ctx context.Context, limits Limits) (Instance, error)
	// Discard frees it. It is idempotent and harmless after Restore failed, and
	// goes to its end when ctx is cancelled.
	Discard(ctx context.Context) error
}

// Instance is a running sandbox.
type Instance interface {
	ID() string
	// Wait returns when the sandbox has ended, however that came about. It may
	// be called by several at once and after the end.
	Wait(ctx context.Context) (Exit, error)
	// Stop ends it and frees everything it had: processes, mounts, cgroups,
	// files. It is idempotent, and goes to its end when ctx is cancelled.
	Stop(ctx context.Context) error
	// Stats reads what it uses now.
	Stats(ctx context.Context) (Stats, error)
}

// Snapshotter is a driver that writes the memory and the writable layer of an
// instance, running or paused, to a folder.
type Snapshotter interface {
	// Snapshot makes dir, whole or not at all. Memory and disk are of one moment.
	// The instance is afterwards as it was, unless Save.Stop is set and the
	// snapshot is whole. Its link breaks, and the guest dials again.
	Snapshot(ctx context.Context, inst Instance, dir string, how Save) error
	// Inspect checks that a folder can be restored here, whole and unchanged, and
	// starts nothing. The error is of the kind conflict and says what is wrong.
	Inspect(ctx context.Context, dir string) (Image, error)
}

// Save says how a snapshot is made.
type Save struct {
	Stop     bool // end the instance when the snapshot is whole
	Volatile bool // it need not outlive the machine, nor be checked for damage later
	Stays    bool // its files are neither cut nor written over while instances run that were restored from it: they may go on reading

	// GoesOn, if set, is called when an instance that is not to be stopped goes
	// on, which is before the snapshot is whole.
	GoesOn func()
}

// Image is what Inspect finds in a snapshot.
type Image struct {
	Bytes  int64 // of all files
	DiskMB int   // the quota of the writable layer
}

// Carrier is a Snapshotter whose snapshots may be restored on other machines,
// from a copy of all files in their folders.
type Carrier interface {
	// Needs says what a machine must be for a snapshot to be restored there. The
	// error is as of Inspect.
	Needs(ctx context.Context, dir string) (Needs, error)
	// Fits says why this machine is not that, before there is a folder to inspect.
	// The error is as of Inspect.
	Fits(ctx context.Context, n Needs) error
}

// Needs is what a snapshot needs of a machine.
type Needs struct {
	Made     string   // what made it, as in Fingerprint
	Arch     string   // as GOARCH
	Features []string // of the processor, sorted
}

// Retargeter is a Prepared that can be restored from another snapshot than that
// of its Spec, as long as root filesystem and programs are the same, and under
// another host name; "" is that of its Spec.
type Retargeter interface {
	RestoreFrom(ctx context.Context, snapshot, hostname string, limits Limits) (Instance, error)
}

// Pauser is a driver that can hold an instance still. Both calls are idempotent.
type Pauser interface {
	Pause(ctx context.Context, inst Instance) error
	Resume(ctx context.Context, inst Instance) error
}

// Limiter is a driver that can give a running instance other limits.
type Limiter interface {
	// CanLimit reports whether an instance that was made with the limits from can
	// be given others, so that nothing inside tells it from one made with those.
	CanLimit(from, to Limits) bool
	// SetLimits changes all of them. Those that are less than what is in use are
	// refused with fault.Invalid, which names the field, and nothing is changed.
	SetLimits(ctx context.Context, inst Instance, limits Limits) error
}

// Networker is a driver whose sandboxes have a link, the other end of which is
// in this process: everything that a sandbox sends is put before its gate.
type Networker interface {
	// Connect sets the gate of a sandbox that is prepared or runs, in place of the
	// one before. nil closes it, which is how every sandbox begins, an adopted one
	// too: connections are reset at once and no name is found. Connections that
	// are open go on under the gate that admitted them. The error wraps
	// fault.NotFound when there is no such sandbox, and fault.Unsupported when it
	// was made without a link.
	Connect(id string, gate egress.Gate) error
	// Resolvers are the addresses at which a gate answers for names, inside.
	Resolvers() []netip.Addr
}

// Builder is a driver that runs a sandbox from a root filesystem alone, with
// no snapshot, which is how templates are made.
type Builder interface {
	Boot(ctx context.Context, spec BootSpec) (Instance, error)
}

// Fingerprinter is a driver that can say when its snapshots stop being
// restorable: a text that changes with its own version and the fixed parts of
// the specs it writes, the isolating program's version and the host's processor.
type Fingerprinter interface {
	Fingerprint(ctx context.Context) (string, error)
}

// Restorer is a driver that can say beforehand whether a snapshot can be
// restored here. The error wraps ErrStale when another program or machine made it.
type Restorer interface {
	Restorable(ctx context.Context, snapshot string) error
}

// ErrStale is in the error of Prepare, too: the snapshot has to be made again.
var ErrStale = errors.New("the snapshot was made for another version or machine")

// RootOwner is a driver in whose sandboxes root is somebody else on the host: a
// template's root filesystem is to be laid out with every owner and group
// raised by this number. Drivers without it want 0.
type RootOwner interface {
	RootOwner() int
}

// Spec is what an instance is made of.
type Spec struct {
	ID       string // fits a host name; all ids have one length
	Hostname string
	Rootfs   string // the template's root filesystem, never written to
	Snapshot string // folder that Snapshot filled
	LinkDir  string // host folder that the guest sees read-only as guestapi.LinkDir
	Programs string // host folder that the guest sees read-only as guestapi.ProgramDir
	DiskMB   int    // quota of the writable layer, until Restore is given another; 0: that of the snapshot
	Limits   Limits
}

// BootSpec is what a sandbox without a snapshot is made of.
type BootSpec struct {
	Spec
	Writable bool              // write into Rootfs itself instead of a layer above it
	Argv     []string          // first program; empty: the guest agent
	Env      []string          //
	Binds    map[string]string // further read-only binds, path inside → host path
	Log      string            // host file that gets the output of Argv
}

// Limits bound an instance.
type Limits struct {
	CPU      float64 // cores; 0: no limit
	MemoryMB int
	DiskMB   int // quota of the writable layer; 0: as it is
	PIDs     int // processes and threads inside
}

// Exit is how an instance ended.
type Exit struct {
	Code   int    // of the first program, 128 + n for signal n, -1 when unknown
	Reason string // "exited", "stopped", "oom", "crashed"
	Detail string // the end of the driver's log, when it crashed
	At     time.Time
}

// Stats is what an instance uses. What is counted begins with its restore.
type Stats struct {
	MemoryBytes int64   // of the host, everything included
	CPUSeconds  float64 // since the start
	PIDs        int     // processes and threads on the host

	Tasks     int   // processes and threads inside
	DiskBytes int64 // in the writable layer

	// How often it met a limit.
	Throttled        int64   // periods of 100 ms in which it used up its share of CPU
	ThrottledSeconds float64 // that it was held back for, the sum over its threads
	DiskRefused      int64   // writes
	TasksRefused     int64   // processes and threads

	Process Process // the one that holds it on the host
}

// Process is a process of the host.
type Process struct {
	PID      int
	RSSBytes int64
	VSZBytes int64
	Threads  int
}

// Check is one finding about the host. Programs go by its ID, which never
// changes its meaning; Name is for people.
type Check struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do, when it is not OK
}

// Passed is a check that found all well. Its ID is the name in one word.
func Passed(name, format string, args ...any) Check {
	return Check{ID: checkID(name), Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

// Failed is a check that found something to mend.
func Failed(name, fix, format string, args ...any) Check {
	return Check{ID: checkID(name), Name: name, Detail: fmt.Sprintf(format, args...), Fix: fix}
}

func checkID(name string) string { return strings.ReplaceAll(name, " ", "_") }
