package store

import (
	"context"
	"testing"
	"time"
)

func numbers(t *testing.T, list []Event, err error) []int64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	out := []int64{}
	for _, e := range list {
		out = append(out, e.N)
	}
	return out
}

func same(a []int64, b ...int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Of each owner the newest stay, and nothing that is too old; what went is
// known, and no number comes twice.
func TestOldEventsAreForgotten(t *testing.T) {
	s := open0(t, t.TempDir())
	ctx := context.Background()
	day := 24 * time.Hour
	if err := s.AddEvents(ctx, []Event{
		{Owner: "ann", SandboxID: "sb-1", At: epoch.Add(-3 * day), Type: "created"}, // too old
		{Owner: "bob", SandboxID: "sb-2", At: epoch, Type: "created"},
		{Owner: "ann", SandboxID: "sb-1", At: epoch, Type: "ready"}, // too many
		{Owner: "ann", SandboxID: "sb-3", At: epoch, Type: "created"},
		{Owner: "ann", SandboxID: "sb-1", At: epoch, Type: "ended"},
		{At: epoch, Type: "daemon_started"},
	}); err != nil {
		t.Fatal(err)
	}
	ann := EventsOf{Owner: "ann"}
	list, err := s.EventsAfter(ctx, ann, 0, 100)
	if got := numbers(t, list, err); !same(got, 1, 3, 4, 5, 6) {
		t.Errorf("ann's, with the daemon's: %v", got)
	}
	if err := s.PruneEvents(ctx, epoch.Add(-day), 2); err != nil {
		t.Fatal(err)
	}
	list, err = s.EventsAfter(ctx, ann, 0, 100)
	if got := numbers(t, list, err); !same(got, 4, 5, 6) {
		t.Errorf("ann's then: %v", got)
	}
	list, err = s.LastEvents(ctx, EventsOf{Owner: "ann", SandboxID: "sb-1"}, 100)
	if got := numbers(t, list, err); !same(got, 5) {
		t.Errorf("of one sandbox: %v", got)
	}
	list, err = s.LastEvents(ctx, EventsOf{Owner: "bob"}, 1)
	if got := numbers(t, list, err); !same(got, 6) {
		t.Errorf("bob's last: %v", got)
	}
	for owner, want := range map[string]int64{"ann": 3, "bob": 0} {
		if n, err := s.ForgottenEvents(ctx, owner); err != nil || n != want {
			t.Errorf("forgotten of %s: %d, %v", owner, n, err)
		}
	}
	if err := s.PruneEvents(ctx, epoch.Add(day), 2); err != nil {
		t.Fatal(err)
	}
	if err := s.AddEvents(ctx, []Event{{Owner: "ann", At: epoch.Add(day), Type: "later"}}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.LastEvent(ctx); err != nil || n != 7 {
		t.Errorf("the number after all were forgotten: %d, %v", n, err)
	}
}

func TestProbe(t *testing.T) {
	s := open0(t, t.TempDir())
	for range 2 {
		if err := s.Probe(context.Background(), epoch); err != nil {
			t.Error(err)
		}
	}
	if n := s.Failures(); n != 0 {
		t.Errorf("%d failures", n)
	}
	s.Close()
	if err := s.Probe(context.Background(), epoch); err == nil {
		t.Error("a closed database takes writes")
	}
}
