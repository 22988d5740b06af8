package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func open(t *testing.T) (*Journal, *store.Store) {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	j := New(st, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { j.Close(); st.Close() })
	return j, st
}

func of(id, kind string) store.Event {
	return store.Event{Owner: "ann", SandboxID: id, At: time.Now(), Type: kind}
}

func TestLastAndAfter(t *testing.T) {
	j, _ := open(t)
	for i := range 600 { // more than a batch
		j.Note(of("sb-1", fmt.Sprint(i)))
	}
	j.Note(of("sb-2", "other"))
	ctx := context.Background()
	list, err := j.Last(ctx, Of{Owner: "ann", SandboxID: "sb-1"}, 2)
	if err != nil || len(list) != 2 || list[0].Type != "598" || list[1].Type != "599" || list[1].Payload == nil {
		t.Fatalf("%+v, %v", list, err)
	}
	list, err = j.After(ctx, Of{Owner: "ann"}, list[0].ID, 10)
	if err != nil || len(list) != 2 || list[0].Type != "599" || list[1].Type != "other" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A follower gets everything once and in order, whatever comes while it looks,
// and ends with the sandbox.
func TestFollow(t *testing.T) {
	j, _ := open(t)
	j.Note(of("sb-1", "old"))
	j.Note(of("sb-1", "0"))
	started := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		<-started
		for i := range 1000 {
			j.Note(of("sb-1", fmt.Sprint(i+1)))
			j.Note(of("sb-2", "other"))
		}
		j.Note(of("sb-1", api.LifeEnded))
	})
	n := 0
	for e, err := range j.Follow(t.Context(), Of{Owner: "ann", SandboxID: "sb-1"}, -1, 1) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			close(started)
		}
		if e.Type != fmt.Sprint(n) && (n != 1001 || e.Type != api.LifeEnded) {
			t.Fatalf("event %d is %s", n, e.Type)
		}
		n++
	}
	if n != 1002 {
		t.Errorf("%d events", n)
	}
	wg.Wait()
}

// A reader that does not read holds up nobody, and is told which events it
// missed because they are no longer kept.
func TestSlowReaderIsToldWhatItMissed(t *testing.T) {
	j, _ := open(t)
	ctx := context.Background()
	j.Note(of("sb-1", "first"))
	var got []api.LifeEvent
	for e, err := range j.Follow(ctx, Of{Owner: "ann"}, -1, 10) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
		if e.Type == "first" { // busy with it while much happens
			for i := range 2000 {
				j.Note(of("sb-1", fmt.Sprint(i)))
			}
			if err := j.Prune(ctx, time.Hour, 100); err != nil {
				t.Fatal(err)
			}
		}
		if e.Type == "1999" {
			break
		}
	}
	if len(got) != 102 || got[1].Type != api.LifeGap || got[1].Payload["after"] != got[0].ID || got[1].Payload["through"] != got[2].ID-1 || got[2].Type != "1900" {
		t.Fatalf("%d events, the second %+v", len(got), got[1])
	}
	// Taken up again at the gap there is nothing to be missed any more.
	list, err := j.After(ctx, Of{Owner: "ann"}, got[1].ID, 1000)
	if err != nil || len(list) != 100 || list[0].Type != "1900" {
		t.Errorf("%d events from there, %v", len(list), err)
	}
}

// broken is a store that takes nothing for a while.
type broken struct {
	Store
	mu    sync.Mutex
	fails bool
	hold  chan struct{}
}

func (b *broken) AddEvents(ctx context.Context, events []store.Event) error {
	if b.hold != nil {
		<-b.hold
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails {
		return errors.New("the disk is full")
	}
	return b.Store.AddEvents(ctx, events)
}

// Noting goes on when the store does not, and afterwards says what was lost.
func TestLostEventsAreCounted(t *testing.T) {
	_, st := open(t)
	b := &broken{Store: st, fails: true}
	j := New(b, slog.New(slog.DiscardHandler))
	defer j.Close()
	j.Note(of("sb-1", "lost"))
	if list, err := j.Last(t.Context(), Of{Owner: "ann"}, 10); err != nil || len(list) != 0 || j.Lost() != 1 {
		t.Fatalf("%+v, %v, %d lost", list, err, j.Lost())
	}
	b.mu.Lock()
	b.fails = false
	b.mu.Unlock()
	j.Note(of("sb-1", "kept"))
	list, err := j.Last(t.Context(), Of{Owner: "ann"}, 10)
	if err != nil || len(list) != 2 || list[0].Type != api.LifeEventsLost || list[0].Payload["count"] != 1.0 || list[1].Type != "kept" {
		t.Errorf("%+v, %v", list, err)
	}
}

// A store that hangs holds up nobody who notes.
func TestNotingNeverWaits(t *testing.T) {
	_, st := open(t)
	b := &broken{Store: st, hold: make(chan struct{})}
	j := New(b, slog.New(slog.DiscardHandler))
	for range 3 * queueSize {
		j.Note(of("sb-1", "x"))
	}
	if n := j.Lost(); n < queueSize {
		t.Errorf("%d are lost", n)
	}
	close(b.hold)
	j.Close()
}

func TestStreamsEndWithTheDaemon(t *testing.T) {
	for name, end := range map[string]func(*Journal){"told": (*Journal).EndStreams, "closed": (*Journal).Close} {
		j, _ := open(t)
		j.Note(of("sb-1", "x"))
		var types []string
		var last error
		for e, err := range j.Follow(t.Context(), Of{Owner: "ann"}, -1, 10) {
			types, last = append(types, e.Type), err
			if err == nil {
				end(j)
			}
		}
		if !slices.Equal(types, []string{"x", ""}) || !errors.Is(last, errEnded) {
			t.Errorf("%s: %q, %v", name, types, last)
		}
	}
}
