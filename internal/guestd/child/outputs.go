package child

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipeMost is the largest a pipe can be made by what writes to it.
const pipeMost = 1 << 20

// Outputs reads what a process writes: its standard output and error through
// two pipes, or all of it through a terminal. All that reads them does so under
// one lock, so that whoever must know that everything written until now has
// arrived can see to it.
type Outputs struct {
	sync.Mutex
	files []*os.File // one of each stream
	sink  func(stream int, b []byte)
	buf   []byte
	open  int
	eof   []bool
	done  chan struct{}
}

func newOutputs(sink func(stream int, b []byte), files ...*os.File) *Outputs {
	return &Outputs{files: files, sink: sink, buf: make([]byte, 64<<10), open: len(files), eof: make([]bool, len(files)), done: make(chan struct{})}
}

// NewOutputs makes the pipes. The write ends are for the process; the caller
// closes them once it has started, then calls Run. The sink is called with the
// lock held and does not keep its argument.
func NewOutputs(sink func(stream int, b []byte)) (*Outputs, [2]*os.File, error) {
	var files, ends [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			for j := range i {
				_ = files[j].Close()
				_ = ends[j].Close()
			}
			return nil, ends, fmt.Errorf("pipe: %w", err)
		}
		_ = unix.SetNonblock(fds[0], true)
		files[i] = os.NewFile(uintptr(fds[0]), name)
		ends[i] = os.NewFile(uintptr(fds[1]), name)
	}
	return newOutputs(sink, files[:]...), ends, nil
}

// Run starts to read.
func (o *Outputs) Run() {
	for i := range o.files {
		go o.pump(i)
	}
}

// Done is closed when nothing can come any more.
func (o *Outputs) Done() <-chan struct{} { return o.done }

func (o *Outputs) pump(stream int) {
	raw, err := o.files[stream].SyscallConn()
	if err == nil {
		_ = raw.Read(func(uintptr) bool {
			for {
				o.Lock()
				n, end := o.read(stream)
				o.Unlock()
				// Until nothing is left, for an end that has come already is
				// not told again.
				if end || n == 0 {
					return end
				}
			}
		})
	}
	o.Lock()
	defer o.Unlock()
	_ = o.files[stream].Close()
	o.eof[stream] = true
	if o.open--; o.open == 0 {
		close(o.done)
	}
}

// read passes one chunk on. Without any it returns 0.
func (o *Outputs) read(stream int) (n int, end bool) {
	if o.eof[stream] {
		return 0, true
	}
	raw, err := o.files[stream].SyscallConn()
	if err != nil {
		return 0, true
	}
	// The descriptor is read directly: waiting is the pump's part.
	err2 := raw.Control(func(fd uintptr) {
		for {
			n, err = syscall.Read(int(fd), o.buf)
			if err != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case err2 != nil:
		return 0, true
	case err == syscall.EAGAIN:
		return 0, false
	case err != nil || n == 0:
		return 0, true
	}
	o.sink(stream, o.buf[:n])
	return n, false
}

// Drain passes on everything that was written before the call. The lock is
// held by the caller. What is written meanwhile may stay behind, so that a
// writer who never stops holds up nobody.
func (o *Outputs) Drain() {
	for stream, some := range o.waiting() {
		for got := 0; some && got < pipeMost; {
			n, end := o.read(stream)
			if end || n < len(o.buf) {
				break
			}
			got += n
		}
	}
}

// waiting tells which streams there is something to read from, in one system
// call: mostly there is nothing, and each call is dear in a sandbox.
func (o *Outputs) waiting() []bool {
	some := make([]bool, len(o.files))
	fds := make([]unix.PollFd, 0, len(o.files))
	for i, f := range o.files {
		some[i] = !o.eof[i]
		if raw, err := f.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}) })
		}
	}
	if len(fds) < len(o.files) { // one is closed: its end is cheap to find
		return some
	}
	if _, err := unix.Poll(fds, 0); err == nil {
		for i := range fds {
			some[i] = fds[i].Revents != 0
		}
	}
	return some
}

// Close stops to read. It must not be called with the lock held.
func (o *Outputs) Close() {
	for _, f := range o.files {
		_ = f.Close()
	}
}
