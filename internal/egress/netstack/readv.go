package netstack

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// readv is the system call, without the copies that unix.Readv makes of its list.
func readv(fd int, iov []unix.Iovec) (int, error) {
	n, _, e := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&iov[0])), uintptr(len(iov)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
