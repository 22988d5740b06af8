package guestd

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// agentUID is the user id under which the agent's own threads are counted. It
// keeps the effective id of root, so that files and signals work as for root.
const agentUID = 990

// userCapabilities are those that programs of the sandbox may have. Without
// CAP_SYS_RESOURCE root cannot lift its limits, and without CAP_SYS_PTRACE it
// cannot reach into the agent.
var userCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_MKNOD, unix.CAP_AUDIT_WRITE,
	unix.CAP_SETFCAP, unix.CAP_DAC_READ_SEARCH,
}

// SetApart takes what users must not have from all future children, and gives
// the agent a real user id of its own: the limit of processes counts by that,
// so that a fork bomb of root leaves the agent able to end it.
func SetApart() error {
	if os.Getuid() != 0 {
		return nil // set apart already, or started by a user
	}
	keep := map[uintptr]bool{}
	for _, c := range userCapabilities {
		keep[c] = true
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if keep[c] {
			continue
		}
		// EINVAL: this kernel does not know the capability.
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0); errno != 0 && errno != unix.EINVAL {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	// What is inheritable would come back to root at the next exec.
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&header)
	runtime.KeepAlive(&data)
	if errno != 0 {
		return fmt.Errorf("clear inheritable capabilities: %w", errno)
	}
	if err := syscall.Setresuid(agentUID, 0, agentUID); err != nil {
		return fmt.Errorf("take user id %d: %w", agentUID, err)
	}
	return nil
}

// KeepSmall bounds the agent's own memory, which counts as the sandbox's, and
// its use of processors: it mostly passes things on, and with a single one
// nothing in it has to be woken on another, which gVisor makes costly.
func KeepSmall() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(96 << 20)
}
