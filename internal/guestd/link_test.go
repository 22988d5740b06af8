package guestd_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func TestHealth(t *testing.T) {
	s := warmed(t)
	p := s.start("sleep 1000")
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
	if !h.Ready || h.Contexts != 1 || h.Processes != 1 || !h.Busy {
		t.Errorf("got %+v", h)
	}
	s.do("DELETE", "/processes/"+strconv.Itoa(p.PID), nil, nil)
	s.finish(p)
	s.do("GET", "/health", nil, &h)
	if h.Processes != 0 || h.Busy {
		t.Errorf("got %+v", h)
	}
	s.fails("GET", "/nothing", nil, 404, api.CodeNotFound)
	s.fails("PATCH", "/health", nil, 404, api.CodeNotFound)
}

func TestLinkIsDialledAgainAndKnowsItsGeneration(t *testing.T) {
	s := start(t)
	s.host.wait(func() bool { return s.host.linked > 0 })
	if h := s.host.hello; h.Protocol != guestapi.Protocol || h.Generation != 0 || h.BootID == "" {
		t.Errorf("hello %+v", h)
	}
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 7}, nil)
	first := s.host.hello.BootID
	s.breakLink()
	if h := s.host.hello; h.Generation != 7 || h.BootID != first {
		t.Errorf("hello %+v", h)
	}
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
}

func TestLinkComesBackWhenTheHostWasAway(t *testing.T) {
	s := start(t)
	s.host.wait(func() bool { return s.host.linked == 1 })
	s.host.ln.Close() // unlinks the socket
	s.host.mu.Lock()
	for _, c := range s.host.all {
		c.Close()
	}
	s.host.conn = nil
	s.host.mu.Unlock()
	_ = os.Remove(s.cfg.Link)
	ln, err := net.Listen("unix", s.cfg.Link)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go s.host.serve(ln)
	s.host.wait(func() bool { return s.host.linked == 2 })
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
}

// A host of the release before asks for exactly its version, and gets it; a new
// one in its place is spoken with in the newest again.
func TestHostOfTheVersionBefore(t *testing.T) {
	s := start(t)
	s.host.wait(func() bool { return s.host.linked == 1 })
	s.host.mu.Lock()
	s.host.only = guestapi.OldestProtocol
	s.host.mu.Unlock()
	s.breakLink()
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
	s.host.mu.Lock()
	if s.host.hello.Protocol != guestapi.OldestProtocol {
		t.Errorf("it is offered %d", s.host.hello.Protocol)
	}
	s.host.only = 0
	s.host.mu.Unlock()
	s.breakLink()
	s.do("GET", "/health", nil, &h)
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	if s.host.hello.Protocol != guestapi.Protocol {
		t.Errorf("then %d", s.host.hello.Protocol)
	}
}

func TestLinkThatIsRefusedIsTriedAgain(t *testing.T) {
	s := start(t)
	s.host.wait(func() bool { return s.host.linked == 1 })
	s.host.mu.Lock()
	s.host.refuse = "another link is alive"
	s.host.mu.Unlock()
	s.breakLink()
	s.host.wait(func() bool { return s.host.linked > 3 })
	s.host.mu.Lock()
	s.host.refuse = ""
	s.host.mu.Unlock()
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
}
