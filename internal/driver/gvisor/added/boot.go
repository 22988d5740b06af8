//go:build ignore

package boot

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/tmpfs"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
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
