package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pandastack/pandastack/api"
)

const (
	logFile    = "network.jsonl"
	logBefore  = "network.1.jsonl"
	ringLines  = 500     // that are shown of one sandbox
	ringsMost  = 1000    // sandboxes whose lines are shown
	logQueue   = 4096    // lines that wait to be written
	logReadAll = 8 << 20 // bytes that are read again at the start
)

// Log keeps a line for each decision: all of them in files of a bounded size,
// the last ones of each sandbox in memory, where they can be followed.
type Log struct {
	dir   string
	most  int64 // bytes of one file; there are two
	log   *slog.Logger
	lines chan api.NetworkLine
	done  chan struct{}
	lost  atomic.Int64

	mu    sync.Mutex
	ended bool
	seq   int64
	rings map[string]*ring
}

type ring struct {
	lines   []api.NetworkLine
	changed chan struct{} // closed and replaced with every line
	follows int           // how many follow it: then it stays
}

// OpenLog opens the log in a folder, which is made. It holds at most megabytes there.
func OpenLog(dir string, megabytes int, log *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the network's log: %w", err)
	}
	l := &Log{
		dir: dir, most: int64(megabytes) << 20 / 2, log: log, lines: make(chan api.NetworkLine, logQueue), done: make(chan struct{}), rings: map[string]*ring{},
	}
	for _, name := range []string{logBefore, logFile} {
		if err := l.reread(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	f, size, err := l.openFile()
	if err != nil {
		return nil, err
	}
	go l.write(f, size)
	return l, nil
}

// reread takes the last lines of an earlier daemon into memory.
func (l *Log) reread(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the network's log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logReadAll {
		if _, err := f.Seek(-logReadAll, io.SeekEnd); err != nil {
			return fmt.Errorf("the network's log: %w", err)
		}
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e api.NetworkLine
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Seq > l.seq { // half a line is that of a crash, or of where we began
			l.seq = e.Seq
			l.add(e)
		}
	}
	return nil // a line that is too long is none of ours
}

func (l *Log) openFile() (*os.File, int64, error) {
	f, err := os.OpenFile(filepath.Join(l.dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("the network's log: %w", err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("the network's log: %w", err), f.Close())
	}
	return f, size, nil
}

// Add takes a line. It does not wait: what comes faster than the disk takes it
// is shown, but not written, and counted.
func (l *Log) Add(e api.NetworkEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.seq++
	line := api.NetworkLine{Seq: l.seq, NetworkEvent: e}
	l.add(line)
	select {
	case l.lines <- line:
	default:
		l.lost.Add(1)
	}
}

// ring gives what is shown of a sandbox. The lock is held, or nobody else is
// there yet.
func (l *Log) ring(id string) *ring {
	r := l.rings[id]
	if r == nil {
		r = &ring{changed: make(chan struct{})}
		l.rings[id] = r
		l.forget(id)
	}
	return r
}

// add shows a line. The lock is held, or nobody else is there yet.
func (l *Log) add(line api.NetworkLine) {
	r := l.ring(line.SandboxID)
	r.lines = append(r.lines, line)
	if len(r.lines) > 2*ringLines {
		r.lines = slices.Clone(r.lines[len(r.lines)-ringLines:])
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// forget drops the lines of the sandbox whose last one is the oldest, when there
// are too many, but not those of a new one, and none that somebody follows.
func (l *Log) forget(fresh string) {
	if len(l.rings) <= ringsMost {
		return
	}
	oldest, at := "", int64(math.MaxInt64)
	for id, r := range l.rings {
		if last := r.last(); r.follows == 0 && id != fresh && last < at {
			oldest, at = id, last
		}
	}
	delete(l.rings, oldest)
}

func (r *ring) last() int64 {
	if n := len(r.lines); n > 0 {
		return r.lines[n-1].Seq
	}
	return 0
}

// write puts lines into the file, and begins a new one when it is full.
func (l *Log) write(f *os.File, size int64) {
	defer close(l.done)
	failed := false
	fail := func(err error) {
		if err != nil && !failed {
			l.log.Error("the network's log cannot be written", "error", err)
		}
		failed = err != nil
	}
	for line := range l.lines {
		raw, err := json.Marshal(line)
		if err != nil {
			fail(err)
			continue
		}
		if size > 0 && size+int64(len(raw)) > l.most {
			next, err := l.rotate(f)
			if err != nil {
				fail(err)
				continue
			}
			f, size = next, 0
		}
		n, err := f.Write(append(raw, '\n'))
		size += int64(n)
		fail(err)
	}
	fail(f.Close())
}

func (l *Log) rotate(f *os.File) (*os.File, error) {
	err := os.Rename(filepath.Join(l.dir, logFile), filepath.Join(l.dir, logBefore))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a rotation that came only so far
		return nil, err
	}
	next, _, err := l.openFile()
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		l.log.Error("the network's log may lack lines", "error", err)
	}
	return next, nil
}

// Lost is how many lines were not written.
func (l *Log) Lost() int64 { return l.lost.Load() }

// Tail gives the last lines of a sandbox, the oldest first, at most ringLines.
func (l *Log) Tail(sandbox string, n int) []api.NetworkLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.rings[sandbox]
	if r == nil {
		return nil
	}
	return slices.Clone(r.lines[max(0, len(r.lines)-min(n, ringLines)):])
}

// Follow gives the lines of a sandbox with a number above after, or the last
// ones when that is negative, and then those that come.
func (l *Log) Follow(ctx context.Context, sandbox string, after int64, tail int) iter.Seq2[api.NetworkLine, error] {
	return func(yield func(api.NetworkLine, error) bool) {
		if after < 0 {
			after = 0
			for _, line := range l.Tail(sandbox, tail) {
				if !yield(line, nil) {
					return
				}
				after = line.Seq
			}
		}
		r := l.join(sandbox)
		defer l.leave(sandbox, r)
		for {
			more, changed, ended := l.above(r, after)
			for _, line := range more {
				if !yield(line, nil) {
					return
				}
				after = line.Seq
			}
			if ended {
				return
			}
			if len(more) > 0 {
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// join keeps what is shown of a sandbox until leave.
func (l *Log) join(sandbox string) *ring {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.ring(sandbox)
	r.follows++
	return r
}

func (l *Log) leave(sandbox string, r *ring) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.follows--; r.follows == 0 && len(r.lines) == 0 {
		delete(l.rings, sandbox)
	}
}

func (l *Log) above(r *ring, after int64) ([]api.NetworkLine, chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.lines, after+1, func(line api.NetworkLine, seq int64) int { return int(line.Seq - seq) })
	return slices.Clone(r.lines[i:]), r.changed, l.ended
}

// EndStreams ends those who follow.
func (l *Log) EndStreams() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	close(l.lines)
	for _, r := range l.rings {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// Close writes what waits.
func (l *Log) Close() {
	l.EndStreams()
	<-l.done
}
