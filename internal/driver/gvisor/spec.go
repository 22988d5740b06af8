package gvisor

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// capabilities are what the first program has: what installing packages and
// running services and debuggers asks for, and CAP_SYS_RESOURCE, with which the
// guest agent limits the processes that were there before it knew the limit. The
// agent gives that one to nobody, because it would lift the limits that hold a
// fork bomb. All of them hold over the sandbox's own kernel; on the host there
// are none.
var capabilities = []string{
	"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
	"CAP_KILL", "CAP_MKNOD", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP",
	"CAP_SETUID", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

// environment is that of the first program. A restored process keeps the
// environment it was saved with, so there is nothing of one sandbox in it.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "LANG=C.UTF-8", "TERM=xterm-256color",
}

// shmBytes is the size of /dev/shm. Its pages count as memory of the sandbox.
const shmBytes = 1 << 30

// spec is the OCI description of a sandbox. runsc refuses to restore a snapshot
// under a description that differs in more than host name, limits, cgroup and
// the sources of mounts and the path of the network namespace, so everything else
// here is the same for all. An empty path means a new namespace.
func (d *Driver) spec(s driver.BootSpec, netns string) *specs.Spec {
	argv := s.Argv
	if len(argv) == 0 {
		argv = []string{guestapi.ProgramDir + "/guest"}
	}
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=0755"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", fmt.Sprintf("size=%d", shmBytes)}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		bind(s.Programs, guestapi.ProgramDir),
		bind(s.LinkDir, guestapi.LinkDir),
	}
	for _, inside := range slices.Sorted(maps.Keys(s.Binds)) {
		mounts = append(mounts, bind(s.Binds[inside], inside))
	}
	oom := 500 // before anything else of the host when its memory runs out
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: IDBase, Size: IDCount}}
	return &specs.Spec{
		Version:  "1.2.0",
		Hostname: s.Hostname,
		Root:     &specs.Root{Path: s.Rootfs},
		Process: &specs.Process{
			Args: argv,
			Env:  slices.Concat(environment, s.Env),
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: 65536, Hard: 65536},
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			},
			OOMScoreAdj: &oom,
		},
		Mounts: mounts,
		Linux: &specs.Linux{
			CgroupsPath: d.cgroups.path(s.ID),
			Resources:   &specs.LinuxResources{}, // we set the limits, on the cgroup
			UIDMappings: ids,
			GIDMappings: ids,
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.UserNamespace}, {Type: specs.MountNamespace}, {Type: specs.PIDNamespace},
				{Type: specs.NetworkNamespace, Path: netns}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
}

func bind(from, to string) specs.Mount {
	return specs.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}}
}

// writeSpec puts the description where runsc looks for it.
func (d *Driver) writeSpec(b *box, s driver.BootSpec, netns string) error {
	data, err := json.MarshalIndent(d.spec(s, netns), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "config.json"), data, 0o600)
}
