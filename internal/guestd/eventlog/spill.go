package eventlog

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Spill is the file that has the whole of an output of which only the start
// and the end are kept in memory. It is made when the first byte is dropped.
type Spill struct {
	Path string
	Max  int64

	file    *os.File
	written int64
	failed  bool
}

// open makes the file and reports whether that worked. Programs in the sandbox
// own the folder too, so whatever lies at the path already is replaced, never
// followed or waited for.
func (s *Spill) open() bool {
	if s.file != nil || s.failed {
		return false
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o755); err != nil {
		s.failed = true
		return false
	}
	_ = os.Remove(s.Path)
	f, err := os.OpenFile(s.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		s.failed = true
		return false
	}
	s.file = f
	return true
}

func (s *Spill) write(b []byte) {
	if s.file == nil || s.failed {
		return
	}
	if room := s.Max - s.written; int64(len(b)) > room {
		b = b[:max(room, 0)]
	}
	n, err := s.file.Write(b)
	s.written += int64(n)
	// A full disk ends the file where it is; what was written stays useful.
	s.failed = err != nil || s.written >= s.Max
}

// close returns the path when there is anything to find there.
func (s *Spill) close() string {
	if s.file == nil {
		return ""
	}
	_ = s.file.Close()
	if s.written == 0 {
		_ = os.Remove(s.Path)
		return ""
	}
	return s.Path
}
