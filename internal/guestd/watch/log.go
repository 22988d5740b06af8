package watch

import (
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Log keeps the last events of a watch. Whoever reads too slowly finds an event
// that says how many are missing; the watch never waits for them.
type Log struct {
	mu     sync.Mutex
	events []api.FileEvent // the last of which has the number last
	size   int
	last   int64
	read   int64            // the highest number that a reader was given
	writes map[string]int64 // by path: the write after which nothing else was told of it
	ended  bool
	more   chan struct{} // closed and replaced with each event
}

// NewLog makes a log whose first event has the number after one.
func NewLog(after int64) *Log {
	return &Log{last: after, read: after, writes: map[string]int64{}, more: make(chan struct{})}
}

// Add gives an event its number and keeps it. A write to a file that is told of
// already, and of which nobody has read yet, is that same write.
func (l *Log) Add(e api.FileEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	if e.Type == api.FileWrite {
		if l.writes[e.Path] > l.read {
			return
		}
	} else {
		delete(l.writes, e.Path)
		delete(l.writes, e.From)
	}
	l.last++
	e.Seq = l.last
	if e.Type == api.FileWrite {
		l.writes[e.Path] = e.Seq
	}
	l.events = append(l.events, e)
	l.size += sizeOf(e)
	l.ended = e.Type == api.FileEnded
	l.drop()
	close(l.more)
	l.more = make(chan struct{})
}

// drop lets go of the oldest, never of the last.
func (l *Log) drop() {
	n := 0
	for len(l.events)-n > 1 && (len(l.events)-n > guestapi.KeepFileEvents || l.size > guestapi.KeepFileEventBytes) {
		old := l.events[n]
		l.size -= sizeOf(old)
		if l.writes[old.Path] == old.Seq {
			delete(l.writes, old.Path)
		}
		n++
	}
	if n > 0 {
		l.events = append(l.events[:0], l.events[n:]...)
	}
}

// sizeOf is about what an event takes.
func sizeOf(e api.FileEvent) int {
	return 200 + len(e.Path) + len(e.RawPath) + len(e.From) + len(e.RawFrom)
}

// After gives the events above a number, at most so many; before them, when
// some are no more, one that says so. Without any, more is closed when there
// are; end is set when none will come again.
func (l *Log) After(after int64, limit int) (events []api.FileEvent, more <-chan struct{}, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last - int64(len(l.events)) // number before the first that is kept
	if after < before {
		events = append(events, api.FileEvent{Seq: before, Type: api.FileOverflow, Reason: api.OverflowSlow, Dropped: before - after})
		after = before
	}
	rest := l.events[min(after-before, int64(len(l.events))):]
	events = append(events, rest[:min(len(rest), limit)]...)
	if n := len(events); n > 0 {
		l.read = max(l.read, events[n-1].Seq)
	}
	return events, l.more, l.ended && len(rest) <= limit
}

// Last is the number of the newest event.
func (l *Log) Last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
