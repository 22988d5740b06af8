package network

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func openLog(t *testing.T) *Log {
	t.Helper()
	l, err := OpenLog(t.TempDir(), 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Whoever follows a sandbox hears of it, however many others have lines
// meanwhile, and hears of the end of the streams.
func TestWhatIsFollowedIsNotForgotten(t *testing.T) {
	l := openLog(t)
	lines, ended := make(chan api.NetworkLine), make(chan struct{})
	go func() {
		defer close(ended)
		for line := range l.Follow(context.Background(), "quiet", 0, 0) {
			lines <- line
		}
	}()
	for n := range 3 {
		l.Add(api.NetworkEvent{SandboxID: "quiet"})
		select {
		case <-lines:
		case <-time.After(10 * time.Second):
			t.Fatalf("line %d does not come", n+1)
		}
		for i := range ringsMost {
			l.Add(api.NetworkEvent{SandboxID: fmt.Sprint("loud-", n, "-", i)})
		}
	}
	l.EndStreams()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the end of the streams does not come")
	}
}

// What is followed and says nothing takes no place when nobody follows it any more.
func TestFollowingLeavesNothing(t *testing.T) {
	l := openLog(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 2 * ringsMost {
		for range l.Follow(ctx, fmt.Sprint("sb-", i), 0, 0) {
			t.Fatal("there was a line")
		}
	}
	if n := len(l.rings); n != 0 {
		t.Errorf("%d sandboxes are remembered", n)
	}
}

// A rotation that moved the file and could not make a new one is gone on with.
func TestRotationGoesOn(t *testing.T) {
	l := openLog(t)
	if err := os.Rename(filepath.Join(l.dir, logFile), filepath.Join(l.dir, logBefore)); err != nil {
		t.Fatal(err)
	}
	old, err := os.Open(filepath.Join(l.dir, logBefore))
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.rotate(old)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := os.Stat(filepath.Join(l.dir, logFile)); err != nil {
		t.Error(err)
	}
}

// Many that ask what a package manager is set to wait for one answer, and who
// leaves does not wait for it.
func TestOneAsksForAll(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	x := &index{find: func(context.Context) (Index, error) {
		asked <- struct{}{}
		<-answer
		return Index{URLs: []string{"https://index.example/"}}, nil
	}}
	got := make(chan error, 10)
	for range cap(got) {
		go func() { _, err := x.get(context.Background(), time.Hour); got <- err }()
	}
	<-asked
	left, leave := context.WithCancel(context.Background())
	leave()
	if _, err := x.get(left, time.Hour); err != context.Canceled {
		t.Errorf("who had left got %v", err)
	}
	close(answer)
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("it was asked %d times more", len(asked))
	}
}
