//go:build ignore

package boot

import (
	"fmt"
	garbage "runtime/debug"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/socket/netstack"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// LimitsArgs are the limits that the sentry holds itself; 0 leaves one as it is.
type LimitsArgs struct {
	MemoryBytes uint64 `json:"memory_bytes"` // that the sandbox shows as its own
	DiskBytes   uint64 `json:"disk_bytes"`   // of the writable layer
	ShmBytes    uint64 `json:"shm_bytes"`    // of /dev/shm
}

// UseResult is what the sandbox uses of them, and how often it was refused more.
type UseResult struct {
	Tasks        uint64 `json:"tasks"` // processes and threads
	TasksRefused uint64 `json:"tasks_refused"`
	DiskBytes    uint64 `json:"disk_bytes"`
	DiskLimit    uint64 `json:"disk_limit"`
	DiskRefused  uint64 `json:"disk_refused"`
}

// SetLimits changes limits while the sandbox runs. The disk cannot be made
// smaller than what is on it.
func (cm *containerManager) SetLimits(args *LimitsArgs, _ *struct{}) error {
	layers, shm := cm.sized()
	if args.DiskBytes > 0 {
		for _, fs := range layers {
			if err := fs.Resize(args.DiskBytes); err != nil {
				return fmt.Errorf("the disk: %w", err)
			}
		}
	}
	if args.ShmBytes > 0 {
		for _, fs := range shm {
			_ = fs.Resize(args.ShmBytes) // what a snapshot brought stays
		}
	}
	if args.MemoryBytes > 0 {
		usage.MinimumTotalMemoryBytes = args.MemoryBytes
		usage.MaximumTotalMemoryBytes = args.MemoryBytes
	}
	return nil
}

// Use tells what is used.
func (cm *containerManager) Use(_ *struct{}, out *UseResult) error {
	out.Tasks = uint64(cm.l.k.RootPIDNamespace().NumTasks())
	out.TasksRefused = kernel.TasksRefused()
	layers, _ := cm.sized()
	for _, fs := range layers {
		used, limit, refused := fs.Size()
		out.DiskBytes += used
		out.DiskLimit += limit
		out.DiskRefused += refused
	}
	return nil
}

// ResetConnections ends all connections that lead out of the sandbox, because
// what was at the other end of its link is gone, and says how many there were.
func (cm *containerManager) ResetConnections(_ *struct{}, n *int) error {
	s, ok := cm.l.k.RootNetworkNamespace().Stack().(*netstack.Stack)
	if !ok {
		return nil
	}
	for _, ep := range s.Stack.RegisteredEndpoints() {
		if t, ok := ep.(*tcp.Endpoint); ok && t.Lose() {
			*n++
		}
	}
	return nil
}

// sized finds the file systems in memory that have a size: the writable layers,
// and those of the description, of which /dev/shm is the only one.
func (cm *containerManager) sized() (layers, shm []tmpfs.Sized) {
	ctx := cm.l.k.SupervisorContext()
	all := cm.l.k.VFS().GetFilesystems()
	upper := map[*vfs.Filesystem]bool{}
	for _, fs := range all {
		if up := overlay.Upper(fs); up != nil {
			upper[up] = true
		}
	}
	for _, fs := range all {
		sized, ok := tmpfs.SizedOf(fs)
		switch {
		case !ok:
		case upper[fs]:
			layers = append(layers, sized)
		case sized.Explicit():
			shm = append(shm, sized)
		}
		fs.DecRef(ctx)
	}
	return layers, shm
}

// RestoreArgs say how a snapshot is restored.
type RestoreArgs struct {
	OnDemand bool   `json:"on_demand"` // load only the pages that are asked for; their file stays open
	Hostname string `json:"hostname"`  // "" is that of the description
}

// SetRestore says how the snapshot is restored that comes next.
func (cm *containerManager) SetRestore(args *RestoreArgs, _ *struct{}) error {
	pgalloc.SetOnDemand(args.OnDemand)
	if args.Hostname != "" {
		cm.l.mu.Lock()
		defer cm.l.mu.Unlock()
		cm.l.root.spec.Hostname = args.Hostname
	}
	return nil
}

// HoldArgs say whether the sandbox is to stand still.
type HoldArgs struct {
	Still bool `json:"still"`
}

// holding is locked while the sandbox is saved, held still or let go on. The daemon
// that asked for a save may have died since, and the next one asks for something
// else: a sandbox that is let go on while it is saved does not survive it.
var holding sync.Mutex

// Hold holds the sandbox still or lets it go on, and says whether it was otherwise before.
func (cm *containerManager) Hold(args *HoldArgs, changed *bool) error {
	holding.Lock()
	defer holding.Unlock()
	if *changed = cm.l.k.IsPaused() != args.Still; !*changed {
		return nil
	}
	if args.Still {
		return cm.Pause(nil, nil)
	}
	return cm.Resume(nil, nil)
}

// LoadResult is how much memory the sandbox has.
type LoadResult struct {
	MemoryBytes uint64 `json:"memory_bytes"`
}

// LoadAll loads what was not asked for yet, so that it needs not be loaded while
// the sandbox stands still.
func (cm *containerManager) LoadAll(_ *struct{}, out *LoadResult) (err error) {
	pgalloc.LoadAll()
	out.MemoryBytes, err = cm.l.k.MemoryFile().TotalUsage()
	return err
}

// endWithoutPages ends the sandbox when pages that it asks for cannot be loaded.
func endWithoutPages(k *kernel.Kernel, loader *kernel.AsyncMFLoader) {
	if err := loader.Wait(); err != nil {
		log.Warningf("Killing the sandbox: its pages cannot be loaded: %v", err)
		k.Kill(linux.WaitStatusTerminationSignal(linux.SIGKILL))
	}
}

// collectMost is how large the sentry's own heap may become without a
// collection of garbage, and collectWait how long afterwards it is collected
// and given back to the host.
const (
	collectMost = 128 << 20
	collectWait = 2 * time.Second
)

// collectLater stops the collection of garbage until the function is called,
// for work of which nearly all that it allocates stays.
func collectLater() func() {
	percent, limit := garbage.SetGCPercent(-1), garbage.SetMemoryLimit(collectMost)
	return func() {
		garbage.SetGCPercent(percent)
		garbage.SetMemoryLimit(limit)
		time.AfterFunc(collectWait, garbage.FreeOSMemory)
	}
}
