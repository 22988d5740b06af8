package tools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Log is the file that every call is written to, a line of JSON each. The one
// before it is kept.
type Log struct {
	dir  string
	file *os.File
	size int64
}

var _ io.WriteCloser = (*Log)(nil)

// maxLog is the size at which a new file is begun.
const maxLog = 32 << 20

// OpenLog opens the log in a folder, which is made.
func OpenLog(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the log of tools: %w", err)
	}
	l := &Log{dir: dir}
	return l, l.open()
}

func (l *Log) path() string { return filepath.Join(l.dir, "calls.jsonl") }

func (l *Log) open() error {
	f, err := os.OpenFile(l.path(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of tools: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write adds lines. One goroutine writes at a time.
func (l *Log) Write(p []byte) (int, error) {
	if l.size+int64(len(p)) > maxLog {
		if err := errors.Join(l.file.Close(), os.Rename(l.path(), l.path()+".1"), l.open()); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }
