package guestd_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd"
)

func TestForkedContextsHaveTheVariablesAndGoTheirOwnWays(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = [1]")
	var resp guestapi.ForkResponse
	s.do("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a", "b"}}, &resp)
	if len(resp.Contexts) != 2 || resp.Contexts[0].ID != "a" || resp.Contexts[1].ForkedFrom != "default" || resp.Contexts[0].ExecutionCount != 1 {
		t.Fatalf("got %+v", resp)
	}
	for _, id := range []string{"a", "b"} {
		events, x := s.run(id, "x.append(2); x")
		if events[1].Data["text/plain"] != "[1, 2]" || x.ExecutionCount != 2 || !x.StateSurvived {
			t.Errorf("%s: %+v", id, events)
		}
	}
	if events, _ := s.run("default", "x"); events[1].Data["text/plain"] != "[1]" {
		t.Errorf("the original: %+v", events)
	}
	s.do("POST", "/contexts/a/fork", guestapi.ForkRequest{IDs: []string{"c"}}, &resp) // of a copy
	s.do("DELETE", "/contexts/a", nil, nil)
	if events, _ := s.run("c", "x"); events[1].Data["text/plain"] != "[1, 2]" {
		t.Errorf("a copy of a copy: %+v", events)
	}
}

func TestACopyThatDiesIsReplacedAndSaysSo(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 1")
	s.do("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a"}}, nil)
	_, x := s.run("a", "import os\nos.kill(os.getpid(), 9)")
	if x.End != api.EndKernelDied || x.StateSurvived || x.ErrorValue != "it was ended by SIGKILL" {
		t.Errorf("got %+v", x)
	}
	if _, x := s.run("a", "x"); x.ErrorName != "NameError" {
		t.Errorf("the new one: %+v", x)
	}
	if _, x := s.run("default", "x"); x.End != api.EndOK {
		t.Errorf("the original: %+v", x)
	}
}

// A context that was ended for its memory has no interpreter until somebody needs one, and is forked and restarted like any other.
func TestAContextWithoutAnInterpreterIsForkedAndRestarted(t *testing.T) {
	for what, need := range map[string]func(s *sandbox){
		"fork": func(s *sandbox) {
			s.do("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"copy"}}, nil)
			s.run("copy", "1")
		},
		"restart": func(s *sandbox) { s.do("POST", "/contexts/default/restart", nil, nil) },
	} {
		t.Run(what, func(t *testing.T) {
			var used memoryGauge
			s := warmed(t, func(c *guestd.Config) { c.Memory = used.read })
			s.runOutOfMemory(&used)
			need(s)
			s.freshInterpreter("default")
			if c := s.contextInfo("default"); c.Incarnation != 2 {
				t.Errorf("incarnation %d", c.Incarnation)
			}
		})
	}
}

// fifo makes a pipe with a name, at which a cell can wait.
func (s *sandbox) fifo() string {
	s.Helper()
	path := filepath.Join(s.dir, "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

func TestForkWaitsForTheCellsOfTheContext(t *testing.T) {
	s := warmed(t)
	fifo := s.fifo()
	first := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{
		ExecutionID: "e1", Code: "x = open('" + fifo + "').read()", TimeoutMS: 60_000, Follow: true})
	forked := make(chan guestapi.ForkResponse)
	go func() {
		var resp guestapi.ForkResponse
		s.do("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a"}}, &resp)
		forked <- resp
	}()
	if err := os.WriteFile(fifo, []byte("late"), 0); err != nil {
		t.Fatal(err)
	}
	s.ended(s.events(first))
	if resp := <-forked; len(resp.Contexts) != 1 {
		t.Fatalf("got %+v", resp)
	}
	if events, _ := s.run("a", "x"); events[1].Data["text/plain"] != "'late'" {
		t.Errorf("got %+v", events)
	}
}

func TestForkFailuresLeaveNothing(t *testing.T) {
	s := warmed(t)
	for _, c := range []struct {
		ids    []string
		status int
		code   api.Code
	}{
		{nil, 400, api.CodeInvalid},
		{[]string{"a", "a"}, 400, api.CodeInvalid},
		{[]string{"default"}, 409, api.CodeConflict},
		{[]string{"a b"}, 400, api.CodeInvalid},
		{slices.Repeat([]string{"x"}, guestapi.MaxForks+1), 400, api.CodeInvalid},
	} {
		s.fails("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: c.ids}, c.status, c.code)
	}
	s.fails("POST", "/contexts/nobody/fork", guestapi.ForkRequest{IDs: []string{"a"}}, 404, api.CodeNotFound)

	s.run("default", "REFUSE = 'a thread is in the way'")
	if e := s.fails("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a", "b"}}, 409, api.CodeConflict); !strings.Contains(e.Message, "a thread is in the way") {
		t.Errorf("got %+v", e)
	}
	s.run("default", "REFUSE = ''; MUTE = True") // the copies die before they say who they are
	s.fails("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a", "b"}}, 500, api.CodeInternal)
	s.run("default", "MUTE = False; WARN = ['a file is shared']")
	var list []api.Context
	if s.do("GET", "/contexts", nil, &list); len(list) != 1 {
		t.Errorf("left over: %+v", list)
	}
	var resp guestapi.ForkResponse
	s.do("POST", "/contexts/default/fork", guestapi.ForkRequest{IDs: []string{"a"}}, &resp)
	if !slices.Equal(resp.Warnings, []string{"a file is shared"}) {
		t.Errorf("warnings: %q", resp.Warnings)
	}
}
