package eventlog

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Spill is the file that has the whole of an output of which only the start
// and the end are kept in memory. It is made when the first byte is dropped,
// and then the oldest such files of its folder go.
type Spill struct {
	Path string
	Max  int64
	Keep int // files in the folder, this one included; 0 for all

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
	s.prune()
	f, err := os.OpenFile(s.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		s.failed = true
		return false
	}
	s.file = f
	return true
}

// prune makes room for one more file. Names and times may be a program's doing,
// which then loses files of its own.
func (s *Spill) prune() {
	if s.Keep == 0 {
		return
	}
	dir := filepath.Dir(s.Path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type old struct {
		name string
		at   time.Time
	}
	var files []old
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && filepath.Ext(e.Name()) == filepath.Ext(s.Path) {
			files = append(files, old{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b old) int { return a.at.Compare(b.at) })
	for i := 0; i <= len(files)-s.Keep; i++ {
		_ = os.Remove(filepath.Join(dir, files[i].name))
	}
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
