package files

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// File is an open file. Close it.
type File struct {
	*os.File
	Size    int64 // as it was when opened; -1 when only reading to its end can tell, as under /proc
	ModTime time.Time
}

// Open opens a file for reading.
func Open(path string) (*File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, Explain(err, "path", path)
	}
	if err := regular(st.Mode(), path); err != nil {
		return nil, err
	}
	// O_NONBLOCK, should it have become a FIFO meanwhile.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Explain(err, "path", path)
	}
	if st, err = f.Stat(); err == nil {
		err = regular(st.Mode(), path)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	size := st.Size()
	if size == 0 && ShownByKernel(path) {
		size = -1
	}
	return &File{File: f, Size: size, ModTime: st.ModTime()}, nil
}
