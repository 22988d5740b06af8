// Package gvisor is the driver that isolates sandboxes with gVisor. It runs the
// runsc program, which stands beside ours, and needs no KVM. The domain reaches
// it only through package driver; internal/daemon makes it.
//
// A sandbox is two host processes, the sentry (the kernel that the guest sees)
// and the gofer (which opens files for it), in user, mount, pid, network, ipc
// and uts namespaces of their own, in one cgroup, under runsc's own seccomp
// filters. Root inside is an unused id of the host, see IDBase.
//
// The package never decides who may have a sandbox or for how long, and never
// speaks with the guest.
//
// # What it needs of the host's files
//
// Sentry and gofer run as IDBase and up, with no rights over files of other
// owners. So each folder on the way to Rootfs, LinkDir and Programs must be
// searchable for everyone (o+x), Programs and the files in it readable
// (o+rX), the socket in LinkDir writable for everyone or owned by IDBase (the
// folder above LinkDir is the place to keep others out: give it to root with
// mode 0711 and name LinkDir so that it cannot be guessed), and the files of
// Rootfs owned by the ids that they have inside plus IDBase. Snapshots stay
// with the daemon: runsc opens them as root and hands over descriptors.
package gvisor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/netns"
)

// A file that belongs to id n inside a sandbox belongs to IDBase + n on the
// host, for n below IDCount. The range lies above those that subuid files and
// systemd hand out. It is part of every root filesystem on disk and of every
// snapshot, so it cannot be configured.
const (
	IDBase  = 1_900_000_000
	IDCount = 65536
)

// Config is what the driver needs to know.
type Config struct {
	Runsc string // path of the runsc program
	Dir   string // absolute path of a folder that is this driver's alone; made if missing
	// Network gives each sandbox an interface whose other end is in this process;
	// without it there is loopback alone.
	Network bool
	Starts  int          // how many sandboxes may be starting at once; 0: one a core, at least 2
	Log     *slog.Logger // nil: slog.Default()
}

// Driver makes sandboxes with gVisor. It is safe for use by many at once.
type Driver struct {
	runsc   string
	version func() (string, error) // of gVisor, in that program
	dir     string
	log     *slog.Logger
	cgroups hierarchy

	prepares chan struct{} // slots of background starts
	restores chan struct{} // slots of starts that somebody waits for

	mu    sync.Mutex
	boxes map[string]*sync.Mutex // one lock an id, held by what makes or ends it
	live  map[string]*Instance
	links map[string]*uplink

	nets   *netns.Pool // nil: no networks
	intact intact

	spawn sync.Mutex       // held while a command starts, so that no reaper can miss it in own
	own   map[int]struct{} // children that os/exec or a watch will wait for

	closed  chan struct{}
	closing sync.Once
}

var (
	_ driver.Driver        = (*Driver)(nil)
	_ driver.Builder       = (*Driver)(nil)
	_ driver.Snapshotter   = (*Driver)(nil)
	_ driver.Carrier       = (*Driver)(nil)
	_ driver.Pauser        = (*Driver)(nil)
	_ driver.Restorer      = (*Driver)(nil)
	_ driver.RootOwner     = (*Driver)(nil)
	_ driver.Fingerprinter = (*Driver)(nil)
	_ driver.Networker     = (*Driver)(nil)
)

// New makes the driver and its folder; Close ends it, not the sandboxes. The calling process becomes the reaper
// of sandboxes' processes: runsc leaves them as orphans.
func New(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.Dir) || strings.ContainsAny(cfg.Dir, ",:=\n") {
		return nil, fmt.Errorf("gvisor: the folder %q must be an absolute path without commas, colons and equals signs", cfg.Dir)
	}
	if cfg.Runsc == "" {
		return nil, errors.New("gvisor: the path of runsc is not given")
	}
	runsc, err := filepath.Abs(cfg.Runsc)
	if err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Starts <= 0 {
		cfg.Starts = max(2, runtime.NumCPU())
	}
	d := &Driver{
		runsc:    runsc,
		version:  sync.OnceValues(func() (string, error) { return moduleVersion(runsc) }),
		dir:      filepath.Clean(cfg.Dir),
		log:      cfg.Log,
		prepares: make(chan struct{}, cfg.Starts),
		restores: make(chan struct{}, cfg.Starts),
		boxes:    map[string]*sync.Mutex{},
		live:     map[string]*Instance{},
		links:    map[string]*uplink{},
		own:      map[int]struct{}{},
		closed:   make(chan struct{}),
	}
	if cfg.Network {
		d.nets = netns.NewPool(readyNetworks, cfg.Log)
	}
	for _, dir := range []string{d.dir, d.root(), d.sandboxes()} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	if err := reachable(d.sandboxes()); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if d.cgroups, err = findHierarchy(cgroupMount, groupOf(d.dir)); err != nil {
		return nil, fmt.Errorf("gvisor: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("gvisor: become the reaper of orphans: %w", err)
	}
	go d.janitor()
	return d, nil
}

// Name implements driver.Driver.
func (*Driver) Name() string { return "gvisor" }

// RootOwner implements driver.RootOwner.
func (*Driver) RootOwner() int { return IDBase }

// lock takes the lock of an id, and gives what frees it.
func (d *Driver) lock(id string) (unlock func()) {
	for {
		d.mu.Lock()
		m := d.boxes[id]
		if m == nil {
			m = &sync.Mutex{}
			d.boxes[id] = m
		}
		d.mu.Unlock()
		m.Lock()
		d.mu.Lock()
		same := d.boxes[id] == m
		d.mu.Unlock()
		if same {
			return m.Unlock
		}
		m.Unlock() // what had the id is gone meanwhile, and the lock with it
	}
}

// forget drops what memory holds of an id that is gone. The caller holds its lock.
func (d *Driver) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, id)
	delete(d.boxes, id)
}
