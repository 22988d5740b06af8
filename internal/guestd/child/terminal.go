package child

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal is the agent's end of a pseudo-terminal: what is written to it is
// read as Outputs, in one stream, and what is written to Input is typed.
type Terminal struct {
	*Outputs
	Input *os.File // closed by its own
}

// NewTerminal makes a terminal of this size that belongs to a user. The other
// end is for the process, as its descriptors 0, 1 and 2; the caller closes it
// once the process has started, then calls Run.
func NewTerminal(rows, cols uint16, owner User, sink func(stream int, b []byte)) (t *Terminal, end *os.File, err error) {
	// Not os.OpenFile: reads and writes must never wait.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	master := os.NewFile(uintptr(fd), "terminal")
	end, err = openEnd(fd, rows, cols, owner)
	if err != nil {
		_ = master.Close()
		return nil, nil, err
	}
	input, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = master.Close()
		_ = end.Close()
		return nil, nil, fmt.Errorf("the input of a terminal: %w", err)
	}
	return &Terminal{newOutputs(sink, master), os.NewFile(uintptr(input), "terminal input")}, end, nil
}

// openEnd opens the end of a terminal that a process gets.
func openEnd(master int, rows, cols uint16, owner User) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock a terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("the number of a terminal: %w", err)
	}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		return nil, fmt.Errorf("the size of a terminal: %w", err)
	}
	// Without O_NOCTTY it would become the agent's own.
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	if err := end.Chown(int(owner.UID), int(owner.GID)); err != nil {
		_ = end.Close()
		return nil, fmt.Errorf("give a terminal to its user: %w", err)
	}
	return end, nil
}

// Resize sets the size. Programs in the foreground are told by SIGWINCH.
func (t *Terminal) Resize(rows, cols uint16) error {
	raw, err := t.Input.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
	}); cerr != nil {
		return cerr
	}
	return err
}
