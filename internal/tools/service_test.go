package tools

import (
	"strconv"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

func TestTheLastCallsAreKept(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := s.box("sb-1")
	for n := range 5*keepLines + 3 {
		s.note("sb-1", api.ToolCall{ID: strconv.Itoa(n)})
		if len(b.lines) >= 2*keepLines {
			t.Fatalf("%d lines are kept after %d calls", len(b.lines), n+1)
		}
	}
	got := s.Calls("sb-1", 10*keepLines)
	if len(got) != keepLines || got[0].ID != strconv.Itoa(4*keepLines+3) || got[keepLines-1].ID != strconv.Itoa(5*keepLines+2) {
		t.Errorf("%d calls, from %s to %s", len(got), got[0].ID, got[len(got)-1].ID)
	}
	if got := s.Calls("sb-1", 2); len(got) != 2 || got[1].ID != strconv.Itoa(5*keepLines+2) {
		t.Errorf("the last two are %v", got)
	}
}

// A set is made once from the same tools, also where they are in other memory, as
// after a restart; from others it is made anew.
func TestASetIsMadeOnce(t *testing.T) {
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tools := func(name string) *api.Tools { return &api.Tools{Functions: []api.ToolFunction{{Name: name}}} }
	of := func(name string, row *api.Tools) *set {
		_, made, err := s.tools(t.Context(), store.Sandbox{ID: "sb-1", Tools: row})
		if err != nil {
			t.Fatal(err)
		}
		if made.byName[name] == nil || len(made.tools) != 1 {
			t.Fatalf("the set of %s has %v", name, made.byName)
		}
		return made
	}
	one := tools("one")
	first := of("one", one)
	if of("one", one) != first || of("one", tools("one")) != first || of("one", one) != first {
		t.Error("it was made again")
	}
	two := tools("two")
	if of("two", two) == first || of("two", two) != of("two", tools("two")) {
		t.Error("others were not made once")
	}
	if of("one", one) == first {
		t.Error("what was ended is given")
	}
}
