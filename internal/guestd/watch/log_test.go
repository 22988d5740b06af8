package watch_test

import (
	"fmt"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/watch"
)

func TestLogIsBounded(t *testing.T) {
	l := watch.NewLog(0)
	const all = guestapi.KeepFileEvents + 500
	for i := range all {
		l.Add(api.FileEvent{Type: api.FileCreate, Path: fmt.Sprintf("/%d", i)})
	}
	events, _, end := l.After(0, 10)
	if len(events) != 11 || end || events[0].Type != api.FileOverflow || events[0].Reason != api.OverflowSlow || events[0].Dropped < 500 || events[1].Seq != events[0].Seq+1 || events[0].Seq != events[0].Dropped {
		t.Fatalf("%+v", events)
	}
	// Who goes on from there finds the rest, without a gap.
	after, n := events[10].Seq, 10
	for {
		events, _, _ := l.After(after, 100)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Seq != after+1 {
				t.Fatalf("event %d after event %d", e.Seq, after)
			}
			after, n = e.Seq, n+1
		}
	}
	if after != all || int64(n) != all-events[0].Dropped {
		t.Errorf("%d events, the last one with number %d", n, after)
	}
	// Long paths count by their length.
	long := make([]byte, 4000)
	for range 1000 {
		l.Add(api.FileEvent{Type: api.FileCreate, RawPath: long})
	}
	if events, _, _ := l.After(0, 1<<20); len(events) > 300 {
		t.Errorf("%d events of 4,000 bytes are kept", len(events))
	}
}

func TestLogEnds(t *testing.T) {
	l := watch.NewLog(7)
	_, more, end := l.After(7, 10)
	if end {
		t.Fatal("it has ended")
	}
	l.Add(api.FileEvent{Type: api.FileEnded})
	<-more
	l.Add(api.FileEvent{Type: api.FileCreate})
	if events, _, end := l.After(7, 10); len(events) != 1 || events[0].Seq != 8 || !end {
		t.Errorf("%+v, %v", events, end)
	}
}

// Writes to a file that nobody has read of yet are one.
func TestLogJoinsWrites(t *testing.T) {
	l := watch.NewLog(0)
	add := func(kind, path string) { l.Add(api.FileEvent{Type: kind, Path: path}) }
	types := func() (s string) {
		events, _, _ := l.After(0, 100)
		for _, e := range events {
			s += e.Type + e.Path + " "
		}
		return s
	}
	for range 5 {
		add(api.FileWrite, "/a")
		add(api.FileWrite, "/b")
	}
	add(api.FileClose, "/a")
	add(api.FileWrite, "/a")
	if got, want := types(), "write/a write/b close/a write/a "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	add(api.FileWrite, "/b") // all were read: it is news
	add(api.FileWrite, "/b")
	if got, want := types(), "write/a write/b close/a write/a write/b "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
