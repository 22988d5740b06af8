package kernels

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

// A context that takes its new random state holds its lock, and so may the
// manager that lets go of an old execution of it: neither waits for the other.
func TestRandomStateWhileExecutionsAreLetGo(t *testing.T) {
	m := New(Config{})
	defer m.Close()
	c := newContext(m, api.CreateContextRequest{ID: "c"})
	ended := func() *Execution { return &Execution{ID: "e", Log: eventlog.New(eventlog.Options{})} }
	for range keepFinished {
		m.ended = append(m.ended, endedExecution{ended(), c, 0})
	}
	c.mu.Lock()
	go m.finished(ended(), c) // one too many, so that the oldest goes
	for m.mu.TryLock() {      // until it is on its way
		m.mu.Unlock()
		runtime.Gosched()
	}
	got := make(chan []byte, 1)
	go func() { got <- m.entropy() }()
	select {
	case b := <-got:
		if len(b) != 64 {
			t.Errorf("%d bytes", len(b))
		}
	case <-time.After(10 * time.Second):
		t.Error("they wait for each other")
	}
	c.mu.Unlock()
}

// Of several calls with one id, as a client makes them that tries again, all
// get the one execution.
func TestOneIDAtTheSameTime(t *testing.T) {
	m := New(Config{OutputDir: t.TempDir()})
	defer m.Close()
	c := newContext(m, api.CreateContextRequest{ID: "c"})
	m.contexts["c"], m.order = c, []string{"c"}
	for n := range 2000 {
		req := guestapi.RunRequest{ExecutionID: fmt.Sprint("e", n), Code: "1"}
		var got [4]*Execution
		var errs [4]error
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i], errs[i] = m.Run("c", req) })
		}
		all.Wait()
		for i := range got {
			if errs[i] != nil || got[i] != got[0] {
				t.Fatalf("%s: %v, %v", req.ExecutionID, got, errs)
			}
		}
		c.mu.Lock()
		c.queue = nil
		c.mu.Unlock()
	}
}

// An id is used only by what has a place in the queue.
func TestAFullQueueLeavesTheIDFree(t *testing.T) {
	m := New(Config{OutputDir: t.TempDir()})
	defer m.Close()
	c := newContext(m, api.CreateContextRequest{ID: "c"})
	m.contexts["c"], m.order = c, []string{"c"}
	for n := range guestapi.MaxQueue {
		if _, err := m.Run("c", guestapi.RunRequest{ExecutionID: fmt.Sprint("e", n), Code: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	again := guestapi.RunRequest{ExecutionID: "again", Code: "1"}
	if _, err := m.Run("c", again); err == nil {
		t.Fatal("there was room in a full queue")
	}
	c.mu.Lock()
	c.queue = nil
	c.mu.Unlock()
	if _, err := m.Run("c", again); err != nil {
		t.Errorf("with room it is %v", err)
	}
}
