package gvisor

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/pandastack/pandastack/internal/fault"
)

// file is what a file of a snapshot was when it was written. The sum is there
// to find what a disk or a copy got wrong; whoever can write the daemon's files
// needs no collision.
type file struct {
	Bytes  int64  `json:"bytes"`
	CRC32C uint32 `json:"crc32c"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal reads back the files of a snapshot, which are in memory still, and sees
// that they reach the disk. A volatile one is only counted.
func seal(dir string, volatile bool) (files map[string]file, total int64, err error) {
	files = map[string]file{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		var f file
		if volatile {
			info, err := e.Info()
			if err != nil {
				return nil, 0, err
			}
			f.Bytes = info.Size()
		} else {
			if f, err = sum(path); err == nil {
				err = syncPath(path)
			}
			if err != nil {
				return nil, 0, err
			}
			files[e.Name()] = f
		}
		total += f.Bytes
	}
	return files, total, nil
}

func sum(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
	return file{n, h.Sum32()}, err
}

// syncPath sees that a file or folder reaches the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// identity tells whether a file is the one that was looked at before.
type identity struct {
	dev, ino   uint64
	size       int64
	mtim, ctim syscall.Timespec
}

// intact remembers which files were found unchanged, so that each is read once
// in the life of a daemon, as long as nobody touches it.
type intact struct {
	mu    sync.Mutex
	files map[identity]uint32
}

func identify(info fs.FileInfo) identity {
	st := info.Sys().(*syscall.Stat_t)
	return identity{uint64(st.Dev), st.Ino, st.Size, st.Mtim, st.Ctim}
}

// seen notes files that were just written and summed.
func (x *intact) seen(dir string, m mark) {
	for name, want := range m.Files {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			x.note(identify(info), want.CRC32C)
		}
	}
}

func (x *intact) note(id identity, sum uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.files == nil || len(x.files) > 4096 {
		x.files = map[identity]uint32{}
	}
	x.files[id] = sum
}

func (x *intact) known(id identity, sum uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	have, ok := x.files[id]
	return ok && have == sum
}

// check says which file of a snapshot is not what was written. Snapshots of an
// earlier version of this program have no sums.
func (x *intact) check(dir string, m mark) error {
	for name, want := range m.Files {
		if filepath.Base(name) != name { // of a snapshot from elsewhere
			return damaged("it names the file %.80q", name)
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return damaged("%s is missing", name)
		}
		if err != nil {
			return err
		}
		if info.Size() != want.Bytes {
			return damaged("%s has %d bytes, and %d were written", name, info.Size(), want.Bytes)
		}
		id := identify(info)
		if x.known(id, want.CRC32C) {
			continue
		}
		got, err := sum(path)
		if err != nil {
			return err
		}
		if got != want {
			return damaged("%s is not what was written", name)
		}
		x.note(id, want.CRC32C)
	}
	return nil
}

func damaged(format string, args ...any) error {
	return fault.New("conflict", "the snapshot is damaged: %s", fmt.Sprintf(format, args...)).
		WithHint("it cannot be used any more; take a new one")
}
