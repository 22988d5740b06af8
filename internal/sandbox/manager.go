package sandbox

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/store"
)

// Templates tells the Manager what sandboxes can be made from.
type Templates interface {
	// Templates lists what is built.
	Templates(ctx context.Context) ([]Template, error)
	// ByDigest finds one that a sandbox or snapshot was made from, also after its
	// name means another. The error wraps fault.NotFound when it is gone.
	ByDigest(ctx context.Context, digest string) (Template, error)
}

// Template is a built template as the Manager needs it.
type Template struct {
	Info     api.TemplateInfo // name, aliases, digest and the limits that apply when a create gives none
	Rootfs   string           // host folder, never written to
	Snapshot string           // host folder that a Snapshotter filled
	Programs string           // host folder with the guest agent and the kernel that were in the snapshot
	PIDs     int              // processes and threads inside
	Spares   int              // interpreters that the guest keeps forked ahead
	Missing  string           // folder of it that is gone; nothing can be made from it then

	// What a snapshot lies on top of that was taken of one of its sandboxes.
	RootfsDigest   string
	ProgramsDigest string
	// Contents describes the files of the root filesystem, which the digests, of
	// what it was made from, do not; nil: not known. It takes a while the first time.
	Contents func(ctx context.Context) (string, error)
}

// Store is what the Manager keeps its sandboxes in.
type Store interface {
	AddSandbox(ctx context.Context, sb store.Sandbox) error
	ReplaceSandbox(ctx context.Context, sb store.Sandbox, from ...store.State) error
	RemoveSandbox(ctx context.Context, id string) error
	Expire(ctx context.Context, id, reason string, now time.Time) error
	Extend(ctx context.Context, sb store.Sandbox, now time.Time) error
	Touch(ctx context.Context, id string, at time.Time) error
	Shift(ctx context.Context, by time.Duration) error
	Sandbox(ctx context.Context, id string) (store.Sandbox, error)
	List(ctx context.Context, q store.Query) ([]store.Sandbox, error)
	SandboxesOf(ctx context.Context, owner string, states ...store.State) ([]store.Sandbox, error)
	Expired(ctx context.Context, now time.Time) ([]store.Sandbox, error)
	Digests(ctx context.Context, states ...store.State) (map[string]bool, error)
	Purge(ctx context.Context, before time.Time) error
	Sync(ctx context.Context) error

	AddSnapshot(ctx context.Context, sn store.Snapshot) error
	Snapshot(ctx context.Context, id string) (store.Snapshot, error)
	SnapshotsOf(ctx context.Context, owner, sandboxID string) ([]store.Snapshot, error)
	DescribeSnapshot(ctx context.Context, sn store.Snapshot) error
	RemoveSnapshot(ctx context.Context, id string) error
	ExpiredSnapshots(ctx context.Context, now time.Time) ([]store.Snapshot, error)
	ExpireSnapshot(ctx context.Context, id string, now time.Time) error

	AddCreate(ctx context.Context, c store.Create) error
	CreateOf(ctx context.Context, owner, key string) (store.Create, error)
	PurgeCreates(ctx context.Context, before time.Time) error
}

var _ Store = (*store.Store)(nil)

// Config is what a Manager is made of. Zero values mean the defaults that
// stand beside them.
type Config struct {
	Driver      driver.Driver
	Store       Store
	Templates   Templates
	Journal     Journal  // nil keeps no events
	Metrics     Metrics  // nil counts nothing
	Network     Network  // nil: every sandbox is closed
	Policies    Policies // nil: no sandbox can be given a network
	Tools       Tools    // nil: no sandbox can be given tools
	Logger      *slog.Logger
	Now         func() time.Time     // the wall clock; time.Now
	Elapsed     func() time.Duration // time that passed, which nobody can set; the host's since its boot, or what Now says when that is given
	RunDir      string               // holds a link folder for each sandbox; in the data directory
	PreviewHost string               // below which ports of sandboxes have their names; told to clients
	Version     string               // of the server; stands in what it exports
	Signer      ed25519.PrivateKey   // signs exported snapshots; nil: none can be exported or imported
	TrustedKeys []archive.Key        // of other servers whose exports may be imported
	ImageDir    string               // holds snapshots and hibernated sandboxes; beside RunDir, called images

	DefaultTTL time.Duration // 5 min
	MaxTTL     time.Duration // 24 h

	// The most that a create may ask for. 0: what the host has; of processes, 32768.
	MaxCPU      float64 // cores
	MaxMemoryMB int
	MaxDiskMB   int
	MaxPIDs     int

	MaxSandboxes  int           // of users, those in the pools not counted; 0: no such limit
	MaxPerOwner   int           // of one owner; 0: no such limit
	MaxQueue      int           // 1000 creates that wait
	QueueTimeout  time.Duration // 60 s that a create waits for its turn
	CreateTimeout time.Duration // 60 s for the work of one create, wake or resume
	Concurrency   int           // creates in progress at once; the number of CPUs, at least 2

	MinFreeMB       int                      // memory of the host that creates leave alone; 0: none
	SandboxMB       int                      // 160; what a sandbox is expected to use of the host at first
	Overcommit      Overcommit               // how much may be promised
	MemoryAvailable func() (int64, error)    // bytes; reads /proc/meminfo
	Capacity        func() (Capacity, error) // looks at the host

	MinFreeDiskMB int                   // 0: none; space that creates leave alone on the disk of RunDir
	DiskAvailable func() (int64, error) // bytes; asks the file system

	Pool       map[string]PoolSize // by template name
	PoolDelay  time.Duration       // 250 ms of quiet after a create before the pools are filled
	SweepEvery time.Duration       // 1 s
	Retention  time.Duration       // 24 h that the record of an ended sandbox is kept
	LinkWait   time.Duration       // 10 s that a call waits for a guest that redials
	LookEvery  time.Duration       // 2 s between looks at whether sandboxes that are used met their limits

	SettleTime    time.Duration // 10 s that a snapshot or a fork waits for running cells
	HibernatedFor time.Duration // 30 days after which a hibernated sandbox is ended
}

// Overcommit is how many times of what the host has all limits of sandboxes
// may add up to. 1: each can use its whole limit at the same time; 0: they are
// not added up.
type Overcommit struct{ CPU, Memory, Disk float64 }

// PoolSize is how many sandboxes of a template are kept ready.
type PoolSize struct {
	Restored int // running, their guest answers, nobody's yet
	Prepared int // created, not restored
}

func (c *Config) fill() error {
	switch {
	case c.Driver == nil:
		return errors.New("sandbox: no driver")
	case c.Store == nil:
		return errors.New("sandbox: no store")
	case c.Templates == nil:
		return errors.New("sandbox: no templates")
	case c.RunDir == "":
		return errors.New("sandbox: no folder for the links")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Journal == nil {
		c.Journal = noJournal{}
	}
	if c.Metrics == nil {
		c.Metrics = NoMetrics{}
	}
	switch {
	case c.Now == nil:
		c.Now = time.Now
		if c.Elapsed == nil {
			c.Elapsed = sinceBoot
		}
	case c.Elapsed == nil:
		now := c.Now
		c.Elapsed = func() time.Duration { return now().Round(0).Sub(time.Unix(0, 0)) }
	}
	if c.MemoryAvailable == nil {
		c.MemoryAvailable = memoryAvailable
	}
	if c.DiskAvailable == nil {
		c.DiskAvailable = func() (int64, error) { return diskAvailable(c.RunDir) }
	}
	set(&c.DefaultTTL, 5*time.Minute)
	set(&c.MaxTTL, 24*time.Hour)
	if c.Capacity == nil {
		c.Capacity = hostCapacity
	}
	set(&c.MaxPIDs, 32<<10)
	set(&c.MaxQueue, 1000)
	set(&c.QueueTimeout, time.Minute)
	set(&c.CreateTimeout, time.Minute)
	set(&c.Concurrency, max(2, runtime.NumCPU()))
	set(&c.SandboxMB, 160)
	set(&c.PoolDelay, 250*time.Millisecond)
	set(&c.SweepEvery, time.Second)
	set(&c.Retention, 24*time.Hour)
	set(&c.LinkWait, 10*time.Second)
	set(&c.LookEvery, 2*time.Second)
	set(&c.SettleTime, 10*time.Second)
	set(&c.HibernatedFor, 30*24*time.Hour)
	if c.ImageDir == "" {
		c.ImageDir = filepath.Join(filepath.Dir(c.RunDir), "images")
	}
	c.DefaultTTL = min(c.DefaultTTL, c.MaxTTL)
	return nil
}

// fillBounds sets the bounds of limits that are left to the host.
func (c *Config) fillBounds() error {
	have, err := c.Capacity()
	if err != nil {
		return fmt.Errorf("reading what the host has: %w", err)
	}
	free, err := c.DiskAvailable()
	if err != nil {
		return fmt.Errorf("reading how much of the disk is free: %w", err)
	}
	set(&c.MaxCPU, have.CPU)
	set(&c.MaxMemoryMB, max(minMemoryMB, have.MemoryMB-c.MinFreeMB))
	set(&c.MaxDiskMB, max(minDiskMB, int(free>>20)-c.MinFreeDiskMB))
	return nil
}

func set[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Manager makes, finds and ends sandboxes. An owner of "" is the
// administrator, who sees everything.
type Manager struct {
	cfg   Config
	clock *clock
	log   *slog.Logger
	queue *queue
	tmpls *templateCache
	onces rooms // of idempotency keys

	ready  chan struct{} // closed when adoption is done
	life   context.Context
	end    context.CancelFunc
	active sync.WaitGroup // work that Close waits for
	wake   chan struct{}  // of the pools

	mu      sync.Mutex
	boxes   map[string]*box // everything that exists on this host, by id
	places  map[string]int  // sandboxes of users, by owner; see takePlace
	given   driver.Limits   // all of theirs together
	pool    pool
	closed  bool
	created time.Time // when the last create ended

	diskTaken int64          // bytes set aside for images that are being written
	restoring map[string]int // snapshots that sandboxes are being made from, or that are beingRemoved
	transfers map[string]int // snapshots that are being exported and imported, by owner
}

// New makes a Manager. Nothing runs until Run is called.
func New(cfg Config) (*Manager, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.RunDir, 0o711); err != nil { // sandboxes get through, and list nothing
		return nil, fmt.Errorf("making the folder for the links: %w", err)
	}
	if err := os.MkdirAll(cfg.ImageDir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder for the images: %w", err)
	}
	if err := cfg.fillBounds(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	clock := newClock(cfg.Now, cfg.Elapsed)
	cfg.Now = clock.Now
	m := &Manager{
		cfg:   cfg,
		clock: clock,
		log:   cfg.Logger,
		queue: newQueue(cfg.Concurrency, cfg.MaxQueue, cfg.QueueTimeout),
		tmpls: &templateCache{from: cfg.Templates, now: cfg.Now},
		ready: make(chan struct{}),
		life:  life,
		end:   end,
		wake:  make(chan struct{}, 1),
		boxes: map[string]*box{},

		places:    map[string]int{},
		restoring: map[string]int{},
		transfers: map[string]int{},
	}
	return m, nil
}

// Run adopts what an earlier daemon left, then sweeps and fills the pools
// until the context ends. The calls of users wait until adoption is done.
func (m *Manager) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(m.life, stop)

	if err := m.adopt(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("taking over the sandboxes of the last daemon: %w", err)
	}
	close(m.ready)

	var loops sync.WaitGroup
	loops.Go(func() { m.fillPools(ctx) })
	loops.Go(func() { m.sweepLoop(ctx) })
	loops.Go(func() { m.lookLoop(ctx) })
	loops.Wait()
	return nil
}

// Close lets go of the users' sandboxes without ending them, so that the next
// daemon finds them again. Creates in progress are undone, and the pools, which
// belong to nobody, are freed. It returns when that is done or the context ends.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.end()
	done := make(chan struct{})
	go func() {
		m.active.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for creates to end: %w", ctx.Err())
	}
	var errs []error
	m.mu.Lock()
	unused := m.pool.takeAll()
	m.mu.Unlock()
	for _, b := range unused {
		errs = append(errs, m.discard(ctx, b))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.boxes {
		b.mu.Lock()
		link := b.link
		b.mu.Unlock()
		if link != nil {
			errs = append(errs, link.Close())
		}
	}
	return errors.Join(errs...)
}

// Adopted waits until the sandboxes of the last daemon are found again, and so
// until calls are answered. It fails when the Manager or the context ends first.
func (m *Manager) Adopted(ctx context.Context) error { return m.started(ctx) }

// started waits until the Manager can answer.
func (m *Manager) started(ctx context.Context) error {
	select {
	case <-m.ready:
		return nil
	default:
	}
	select {
	case <-m.ready:
		return nil
	case <-m.life.Done():
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// work registers something that Close must wait for.
func (m *Manager) work() (done func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errClosed
	}
	m.active.Add(1)
	return m.active.Done, nil
}
