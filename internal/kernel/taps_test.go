package kernel_test

import (
	"context"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/kernel"
)

// Whoever is told has locks of its own, under which it may stop being told: no
// lock is held while it is, or all cells of the daemon stand still for ever.
func TestWhoIsToldCanStop(t *testing.T) {
	r := newRig(t, kernel.Config{})
	inside, release := make(chan bool), make(chan bool)
	var stop func()
	stop = r.Tap(r.sid, "default", func(told kernel.Told) {
		if told.Event.Type == api.EventStarted {
			inside <- true
			<-release
		}
	})
	ran := make(chan bool)
	go func() { r.run(api.RunRequest{Code: "1"}); close(ran) }()
	<-inside
	stopped := make(chan bool)
	go func() { stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("whoever stops waits for who is told")
	}
	close(release)
	<-ran
	<-stopped
}

func TestATapHearsThatACellIsLeft(t *testing.T) {
	r := newRig(t, kernel.Config{})
	heard := make(chan kernel.Told, 100)
	defer r.Tap(r.sid, "default", func(told kernel.Told) { heard <- told })()
	ctx, leave := context.WithCancel(t.Context())
	for e := range r.Stream(ctx, owner, r.sid, "default", api.RunRequest{Code: "wait('never')", ExecutionID: "x"}) {
		if e.Type == api.EventStarted {
			leave()
		}
	}
	leave()
	for {
		select {
		case told := <-heard:
			if told.Left {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("nobody said that the cell is left")
		}
	}
}
