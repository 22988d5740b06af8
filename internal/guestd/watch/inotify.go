package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// raw is an event of inotify.
type raw struct {
	wd     int32
	mask   uint32
	cookie uint32 // the same in both halves of a rename
	name   string // in the folder wd; "" when the event is the folder's own
}

func (r raw) isDir() bool { return r.mask&unix.IN_ISDIR != 0 }

// inotify is an instance of it.
type inotify struct {
	file *os.File
	buf  []byte
}

const readBuffer = 64 << 10 // bytes of events, of which one has 272 at most

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fault.Wrap(err, api.CodeRateLimited, "this machine has as many watches as it may").WithHint("end some of them")
	}
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotify{os.NewFile(uintptr(fd), "inotify"), make([]byte, readBuffer)}, nil
}

// with makes a system call, unless it is closed.
func (in *inotify) with(do func(fd int) error) error {
	conn, err := in.file.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) { err = do(int(fd)) })
	return errors.Join(cerr, err)
}

func (in *inotify) add(path string, mask uint32) (wd int32, err error) {
	err = in.with(func(fd int) error {
		n, err := unix.InotifyAddWatch(fd, path, mask)
		wd = int32(n)
		return err
	})
	return wd, err
}

// remove watches something no more, which may be gone already.
func (in *inotify) remove(wd int32) {
	_ = in.with(func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
}

// waiting is how many bytes of events wait to be read.
func (in *inotify) waiting() (n int) {
	_ = in.with(func(fd int) (err error) {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
		return err
	})
	return n
}

// read waits for events; for so long, or for as long as it takes. None came when
// it gives none. The error is that it is closed.
func (in *inotify) read(wait time.Duration) ([]raw, error) {
	var deadline time.Time
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	if err := in.file.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	n, err := in.file.Read(in.buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(in.buf[:n]), nil
}

func (in *inotify) close() { _ = in.file.Close() }

// parse reads events as inotify(7) has them.
func parse(b []byte) []raw {
	var events []raw
	for len(b) >= unix.SizeofInotifyEvent {
		word := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
		size := min(int(word(12)), len(b)-unix.SizeofInotifyEvent)
		name := b[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size]
		name, _, _ = bytes.Cut(name, []byte{0})
		events = append(events, raw{wd: int32(word(0)), mask: word(4), cookie: word(8), name: string(name)})
		b = b[unix.SizeofInotifyEvent+size:]
	}
	return events
}
