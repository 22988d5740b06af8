package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
)

var epoch = time.UnixMilli(1_800_000_000_123).UTC()

func open0(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func running(id string, expires time.Time) Sandbox {
	return Sandbox{
		ID: id, Owner: "ann", State: Running, Template: "base", Digest: "d", Driver: "fake", CPU: 1.5, MemoryMB: 512, DiskMB: 1024, PIDs: 256,
		Metadata: map[string]string{"a": "b"}, TTL: 5 * time.Minute, CreatedAt: epoch, UsedAt: epoch, ExpiresAt: expires, Generation: 1, BootMS: 12.5, BootMode: "pool",
	}
}

func add(t *testing.T, s *Store, rows ...Sandbox) {
	t.Helper()
	for _, row := range rows {
		if err := s.AddSandbox(context.Background(), row); err != nil {
			t.Fatal(err)
		}
	}
}

// A store with a path that a URL would misread, closed and opened again, still
// has everything.
func TestRowsSurvive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b#c%20 d")
	s := open0(t, dir)
	want := running("sb-1", epoch.Add(time.Minute))
	want.EndReason, want.EndDetail, want.EndedAt, want.FromSnapshot, want.Persistent, want.IdleTimeout = "oom", "x", epoch, "snap", true, time.Hour
	add(t, s, want)
	event := Event{SandboxID: "sb-1", Owner: "ann", At: epoch, Type: "created", Payload: map[string]any{"a": "b", "n": 1.5}}
	if err := s.AddEvents(context.Background(), []Event{event}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open0(t, dir)
	got, err := s.Sandbox(context.Background(), "sb-1")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	event.N = 1
	if events, err := s.LastEvents(context.Background(), EventsOf{SandboxID: "sb-1"}, 5); err != nil || !reflect.DeepEqual(events, []Event{event}) {
		t.Errorf("events %+v, %v", events, err)
	}
	if _, err := s.Sandbox(context.Background(), "sb-2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a row that is not: %v", err)
	}
	if info, err := os.Stat(filepath.Join(dir, fileName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

func TestOneDaemonAtATime(t *testing.T) {
	dir := t.TempDir()
	s := open0(t, dir)
	if _, err := Open(context.Background(), dir); !errors.Is(err, fault.Conflict) {
		t.Errorf("the second: %v", err)
	}
	s.Close()
	open0(t, dir)
}

func TestReplaceOnlyInTheExpectedState(t *testing.T) {
	s := open0(t, t.TempDir())
	row := running("sb-1", epoch)
	row.State = Pooled
	add(t, s, row)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 8 { // only one of them can have it
		wg.Go(func() {
			mine := row
			mine.State = Creating
			switch err := s.ReplaceSandbox(context.Background(), mine, Pooled); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, ErrStale):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d have it", won.Load())
	}
}

// Whoever comes first, expiry or renewal, wins alone.
func TestExpiryAndRenewal(t *testing.T) {
	s := open0(t, t.TempDir())
	ctx := context.Background()
	row := running("sb-1", epoch)
	add(t, s, row)
	before, after := epoch.Add(-time.Millisecond), epoch
	if err := s.Expire(ctx, "sb-1", "ttl", before); !errors.Is(err, ErrStale) {
		t.Errorf("expired before its time: %v", err)
	}
	row.ExpiresAt = epoch.Add(time.Minute)
	if err := s.Extend(ctx, row, after); !errors.Is(err, ErrStale) {
		t.Errorf("renewed after its time: %v", err)
	}
	if err := s.Extend(ctx, row, before); err != nil {
		t.Errorf("renewed in time: %v", err)
	}
	if err := s.Expire(ctx, "sb-1", "ttl", after); !errors.Is(err, ErrStale) {
		t.Errorf("expired after a renewal: %v", err)
	}
	if list, err := s.Expired(ctx, row.ExpiresAt); err != nil || len(list) != 1 {
		t.Errorf("expired then: %+v, %v", list, err)
	}
	if err := s.Expire(ctx, "sb-1", "ttl", row.ExpiresAt); err != nil {
		t.Error(err)
	}
	if got, err := s.Sandbox(ctx, "sb-1"); err != nil || got.State != Stopping || got.EndReason != "ttl" {
		t.Errorf("then it is %+v, %v", got, err)
	}
}

func TestPurgeForgetsWhatEndedLongAgo(t *testing.T) {
	s := open0(t, t.TempDir())
	ctx := context.Background()
	old, recent, alive := running("sb-1", epoch), running("sb-2", epoch), running("sb-3", epoch)
	old.State, old.EndedAt = Deleted, epoch.Add(-time.Hour)
	recent.State, recent.EndedAt = Failed, epoch
	add(t, s, old, recent, alive)
	if err := s.Purge(ctx, epoch.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	list, err := s.SandboxesOf(ctx, "", Deleted, Failed, Running)
	if err != nil || len(list) != 2 {
		t.Errorf("left: %+v, %v", list, err)
	}
}

func TestListsAreOfOneOwner(t *testing.T) {
	s := open0(t, t.TempDir())
	ctx := context.Background()
	a, b, c := running("sb-1", epoch), running("sb-2", epoch), running("sb-3", epoch)
	b.CreatedAt = epoch.Add(time.Second)
	c.Owner = "bob"
	add(t, s, a, b, c)
	list, err := s.SandboxesOf(ctx, "ann", Running)
	if err != nil || len(list) != 2 || list[0].ID != "sb-2" || list[1].ID != "sb-1" {
		t.Errorf("ann's, the newest first: %+v, %v", list, err)
	}
	if list, err := s.SandboxesOf(ctx, "' OR 1=1 --", Running); err != nil || len(list) != 0 {
		t.Errorf("of nobody: %+v, %v", list, err)
	}
}

// What is to survive the end of the machine is on the disk also while somebody
// reads, whom a checkpoint would not disturb.
func TestSyncWhileSomebodyReads(t *testing.T) {
	ctx := context.Background()
	s := open0(t, t.TempDir())
	reading, err := s.read.QueryContext(ctx, "SELECT name FROM sqlite_master")
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	if !reading.Next() {
		t.Fatal(reading.Err())
	}
	add(t, s, running("sb-1", epoch))
	var busy, frames, moved int
	if err := s.write.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &frames, &moved); err != nil || frames == 0 || moved != 0 {
		t.Fatalf("of %d frames a checkpoint moved %d, %v", frames, moved, err)
	}
	var synced []string
	flush = func(f *os.File) error { synced = append(synced, filepath.Base(f.Name())); return f.Sync() }
	defer func() { flush = (*os.File).Sync }()
	if err := s.Sync(ctx); err != nil || !slices.Contains(synced, fileName+"-wal") {
		t.Errorf("on the disk are %q, %v", synced, err)
	}
}
