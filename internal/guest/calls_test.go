package guest

import (
	"bufio"
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pandastack/pandastack/internal/guestapi"
)

// slow is a Caller whose calls end when they are told to, cancelled or not.
type slow struct {
	running atomic.Int32
	end     chan struct{}
}

func (s *slow) Call(context.Context, guestapi.CallHead, []byte, func(bool)) []byte {
	s.running.Add(1)
	<-s.end
	return []byte("{}")
}

func serving(to Caller) (*callServer, *io.PipeReader) {
	down, up := io.Pipe()
	return &callServer{to: to, up: up, ctx: context.Background(), calls: map[uint32]*inCall{}}, down
}

func (s *callServer) asked(number uint32, cancel bool) error {
	frames := []guestapi.CallFrame{{Kind: guestapi.CallData, Call: number, Data: []byte("{}\n{}")}, {Kind: guestapi.CallEnd, Call: number}}
	if cancel {
		frames = append(frames, guestapi.CallFrame{Kind: guestapi.CallCancel, Call: number})
	}
	for _, f := range frames {
		if err := s.hear(f); err != nil {
			return err
		}
	}
	return nil
}

// A guest that cancels what it calls, and reads nothing, has no more calls than
// one that does not.
func TestCancelledCallsCountUntilTheyEnd(t *testing.T) {
	to := &slow{end: make(chan struct{})}
	s, down := serving(to)
	n := uint32(0)
	for n < 10*mostRefused && s.asked(n, true) == nil { // it may be told off for what it is refused
		n++
	}
	close(to.end)
	down.Close()
	s.work.Wait() // all that was let in has run
	if to.running.Load() != mostCalls {
		t.Errorf("%d calls ran, of %d that were begun", to.running.Load(), n)
	}
	if len(s.calls) != 0 || s.bytes != 0 {
		t.Errorf("%d calls and %d bytes are left", len(s.calls), s.bytes)
	}
}

// One that interrupts a cell with all the calls that it may have can begin as
// many again, before the first have come to their end.
func TestCallsAfterCancelledOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &slow{end: make(chan struct{})}
		s, down := serving(to)
		for n := range uint32(2 * guestapi.MaxCallsAtOnce) {
			if err := s.asked(n, n < guestapi.MaxCallsAtOnce); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := to.running.Load(); n != 2*guestapi.MaxCallsAtOnce {
			t.Errorf("%d calls run", n)
		}
		close(to.end)
		in := bufio.NewReader(down)
		for answered := 0; answered < guestapi.MaxCallsAtOnce; {
			f, err := guestapi.ReadCallFrame(in)
			if err != nil || f.Call < guestapi.MaxCallsAtOnce {
				t.Fatalf("an answer to the call %d, %v", f.Call, err)
			}
			if f.Kind == guestapi.CallEnd {
				answered++
			}
		}
		s.work.Wait()
	})
}

// What is still on its way of a call that was cancelled is not the beginning of another.
func TestTheRestOfACancelledCall(t *testing.T) {
	to := &slow{end: make(chan struct{})}
	close(to.end)
	s, down := serving(to)
	piece := guestapi.CallFrame{Kind: guestapi.CallData, Call: 1, Data: []byte("{}\nxxxx")}
	for _, f := range []guestapi.CallFrame{piece, {Kind: guestapi.CallCancel, Call: 1}, piece, {Kind: guestapi.CallEnd, Call: 1}} {
		if err := s.hear(f); err != nil {
			t.Fatal(err)
		}
	}
	if to.running.Load() != 0 || len(s.calls) != 0 || s.bytes != 0 {
		t.Errorf("%d calls ran, %d calls and %d bytes are left", to.running.Load(), len(s.calls), s.bytes)
	}
	if err := s.asked(2, false); err != nil {
		t.Fatal(err)
	}
	if f, err := guestapi.ReadCallFrame(bufio.NewReader(down)); err != nil || f.Call != 2 {
		t.Errorf("%+v, %v", f, err)
	}
}
