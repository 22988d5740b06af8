package guestd

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// stdin is the standard input of a process, as it is written to. Writes take
// turns and wait for the program to read; nobody else waits for them.
type stdin struct {
	pid      int
	done     <-chan struct{} // the process has ended
	turn     chan struct{}   // held by the one who writes
	terminal bool            // it is typed, and has no end but the terminal's

	mu      sync.Mutex
	f       *os.File // nil when there is none
	writers int      // that write or wait for their turn
	closed  bool     // no more are let in
}

func newStdin(f *os.File) *stdin {
	return &stdin{f: f, closed: f == nil, turn: make(chan struct{}, 1)}
}

// write appends what r gives, as fast as the program reads it, until the
// process has ended or whoever writes is gone.
func (s *stdin) write(r io.Reader, gone <-chan struct{}) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return fault.New(api.CodeConflict, "the standard input of process %d is closed", s.pid).
			WithHint("start it with stdin set to keep it open")
	}
	s.writers++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.writers--
		s.closeWhenIdle()
	}()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-gone:
		return nil // there is nobody to tell
	case <-s.done:
		return s.unread(os.ErrDeadlineExceeded)
	}
	_ = s.f.SetWriteDeadline(time.Time{})
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		select {
		case <-gone:
		case <-s.done:
		case <-stop:
			return
		}
		_ = s.f.SetWriteDeadline(time.Unix(1, 0))
	}()
	_, err := io.Copy(s.f, r)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EIO) || errors.Is(err, os.ErrDeadlineExceeded) {
		return s.unread(err)
	}
	return err
}

func (s *stdin) unread(err error) error {
	return fault.Wrap(err, api.CodeConflict, "process %d no longer reads its standard input", s.pid)
}

// endOfInput is what a terminal takes for the end of the input: Ctrl-D.
const endOfInput = "\x04"

// close says that there is no more input: a pipe ends after what is being
// written, and a terminal gets a Ctrl-D and can be typed on after that.
func (s *stdin) close(gone <-chan struct{}) error {
	if s.terminal {
		return s.write(strings.NewReader(endOfInput), gone)
	}
	s.end()
	return nil
}

// end closes the input after what is being written, and waits for nothing.
func (s *stdin) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.closeWhenIdle()
}

func (s *stdin) closeWhenIdle() {
	if s.closed && s.writers == 0 && s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}
