package sandbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// Templates tells the Manager what sandboxes can be made from.
type Templates interface {
	// Templates lists what is built and usable now.
	Templates(ctx context.Context) ([]Template, error)
}

// Template is a built template as the Manager needs it.
type Template struct {
	Info     api.TemplateInfo // name, aliases, digest and the limits that apply when a create gives none
	Rootfs   string           // host folder, never written to
	Snapshot string           // host folder that a Snapshotter filled
	Programs string           // host folder with the guest agent and the kernel that were in the snapshot
	PIDs     int              // processes and threads inside
	Spares   int              // interpreters that the guest keeps forked ahead
}

// Config is what a Manager is made of. Zero values mean the defaults that
// stand beside them.
type Config struct {
	Driver    driver.Driver
	Store     *store.Store
	Templates Templates
	Logger    *slog.Logger
	Now       func() time.Time // time.Now
	RunDir    string           // holds a link folder for each sandbox; in the data directory

	DefaultTTL time.Duration // 5 min
	MaxTTL     time.Duration // 24 h

	MaxSandboxes  int           // 500; of users, those in the pools not counted
	MaxQueue      int           // 1000 creates that wait
	QueueTimeout  time.Duration // 60 s that a create waits for its turn
	CreateTimeout time.Duration // 60 s for the work of one create
	Concurrency   int           // creates in progress at once; the number of CPUs, at least 2

	MinFreeMB       int                   // 512; memory of the host that creates leave alone
	SandboxMB       int                   // 160; what a sandbox is expected to use of the host at first
	MemoryAvailable func() (int64, error) // bytes; reads /proc/meminfo

	Pool      map[string]PoolSize // by template name
	Retention time.Duration       // 24 h that the record of an ended sandbox is kept
}

// PoolSize is how many sandboxes of a template are kept ready.
type PoolSize struct {
	Restored int // running, their guest answers, nobody's yet
	Prepared int // created, not restored
}

// ListFilter narrows a list. Zero values mean everything.
type ListFilter struct {
	Metadata map[string]string // each pair must match
	Status   api.Status
	Limit    int
}

// Manager makes, finds and ends sandboxes. An owner of "" is the
// administrator, who sees everything.
type Manager struct{ cfg Config }

// New makes a Manager. Nothing runs until Run is called.
func New(cfg Config) (*Manager, error) { return &Manager{cfg: cfg}, nil }

var errSoon = fault.New(api.CodeUnsupported, "not yet")

// Run adopts what an earlier daemon left, then sweeps and fills the pools
// until the context ends. The calls of users wait until adoption is done.
func (m *Manager) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Close lets go of the sandboxes without ending them, so that the next daemon
// finds them again. Only what waits in the pool of prepared ones is freed.
func (m *Manager) Close(ctx context.Context) error { return nil }

// Create makes a sandbox and returns when its guest answers.
func (m *Manager) Create(ctx context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error) {
	return api.SandboxInfo{}, errSoon
}

// Get describes a sandbox.
func (m *Manager) Get(ctx context.Context, owner, id string) (api.SandboxInfo, error) {
	return api.SandboxInfo{}, errSoon
}

// List describes the sandboxes of an owner, the newest first.
func (m *Manager) List(ctx context.Context, owner string, f ListFilter) ([]api.SandboxInfo, error) {
	return nil, errSoon
}

// Kill ends a sandbox and frees everything it had.
func (m *Manager) Kill(ctx context.Context, owner, id string) error { return errSoon }

// Lifecycle tells how long a sandbox still has.
func (m *Manager) Lifecycle(ctx context.Context, owner, id string) (api.Lifecycle, error) {
	return api.Lifecycle{}, errSoon
}

// PatchLifecycle changes how long a sandbox has.
func (m *Manager) PatchLifecycle(ctx context.Context, owner, id string, p api.LifecyclePatch) (api.Lifecycle, error) {
	return api.Lifecycle{}, errSoon
}

// Pause holds a sandbox still.
func (m *Manager) Pause(ctx context.Context, owner, id string) error { return errSoon }

// Resume lets a paused sandbox go on.
func (m *Manager) Resume(ctx context.Context, owner, id string) error { return errSoon }

// Guest gives the link to a sandbox's guest for one call. The function must be
// called when the call is done; until then the sandbox is not idle. While the
// guest is redialling it waits. When the link breaks in the middle of a call,
// Guest is simply asked again.
func (m *Manager) Guest(ctx context.Context, owner, id string) (*guest.Client, func(), error) {
	return nil, nil, errSoon
}

// Templates lists what sandboxes can be made from.
func (m *Manager) Templates(ctx context.Context) ([]api.TemplateInfo, error) { return nil, errSoon }
