package guestd

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// watch closes the connection when a snapshot has broken it. In the sandbox
// that goes on, gVisor closes its end without waking anybody who waits in
// epoll, as Go's runtime does; but it starts waiting system calls again, and
// poll then sees the end. So one thread waits in poll.
func (c *linkConn) watch() {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, -1); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	_ = c.Close()
}

// hangUp ends watch, which holds the descriptor open.
func (c *linkConn) hangUp() {
	if conn, ok := c.Conn.(syscall.Conn); ok {
		if raw, err := conn.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
		}
	}
}
