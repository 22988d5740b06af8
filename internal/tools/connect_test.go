package tools

import (
	"context"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// noticing is a context that tells that somebody waits for it.
type noticing struct {
	context.Context
	waits chan struct{}
}

func (n noticing) Done() <-chan struct{} {
	select {
	case n.waits <- struct{}{}:
	default:
	}
	return n.Context.Done()
}

// The program of a run hears of it when the run has begun: it is waited for also in
// a sandbox whose program of before has left.
func TestTheProgramOfARunIsWaitedFor(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.box("sb-1")
	before := s.Connect("sb-1", nil)
	if s.firstConnection(t.Context(), "sb-1") != before {
		t.Fatal("it is not connected")
	}
	before.Close()
	if c := s.firstConnection(t.Context(), "sb-1"); c != nil {
		t.Fatal("a program that left is there")
	}
	detach := s.Attach("ag-1", "sb-1", make(chan api.Approval, 1))
	waits, found := make(chan struct{}, 1), make(chan *Connection, 1)
	go func() { found <- s.firstConnection(noticing{t.Context(), waits}, "sb-1") }()
	select {
	case <-waits:
	case c := <-found:
		t.Fatalf("nobody was waited for: %v", c)
	}
	now := s.Connect("ag-1", nil)
	if <-found != now {
		t.Error("it was not found")
	}
	detach()
	select {
	case <-now.Done():
		t.Error("it was let go, although the run goes on")
	default:
	}
	s.Ended("ag-1")
	<-now.Done()
}
