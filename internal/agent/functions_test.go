package agent

import (
	"slices"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// A run says which functions of a program its code calls: those that it was given, or
// that its sandbox has of the run before.
func TestARunNamesTheFunctionsOfAProgram(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"}, scripted.Turn{Say: "FINAL ANSWER: x"}, scripted.Turn{Say: "FINAL ANSWER: x"}, scripted.Turn{Say: "FINAL ANSWER: x"})
	s := d.service(t, t.TempDir())
	s.cfg.Tools = withTools{}
	first, _ := follow(t, s, api.AgentRequest{Tools: &api.Tools{Functions: []api.ToolFunction{{Name: "pay"}}}, Keep: keepKeep})
	fork, _ := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 1}})
	replay, _ := follow(t, s, api.AgentRequest{ReplayOf: first.ID})
	second, _ := follow(t, s, api.AgentRequest{Follows: first.ID})
	third, _ := follow(t, s, api.AgentRequest{Follows: second.ID, Tools: &api.Tools{Functions: []api.ToolFunction{{Name: "find"}}}})
	if !slices.Equal(fork.Functions, []string{"pay"}) || !slices.Equal(replay.Functions, []string{"pay"}) {
		t.Errorf("the fork has %q, the replay %q", fork.Functions, replay.Functions)
	}
	if !slices.Equal(second.Functions, []string{"pay"}) || !slices.Equal(third.Functions, []string{"find"}) {
		t.Errorf("%q, then %q", second.Functions, third.Functions)
	}
}

// A program that is connected for a run is let go when that has ended, also without a
// sandbox, and not when the daemon stops: it comes back to the next one.
func TestAProgramIsLetGoWhenItsRunHasEnded(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	d.haltAt = "ask"
	dir, ended := t.TempDir(), make(chan string, 10)
	s := d.service(t, dir)
	s.cfg.Tools = withTools{ended: ended}
	run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "add"}, "")
	if err != nil {
		t.Fatal(err)
	}
	<-d.halted
	s.Close()
	if len(ended) > 0 {
		t.Errorf("%s has ended with its daemon", <-ended)
	}
	d.haltAt = ""
	s = d.service(t, dir)
	s.cfg.Tools = withTools{ended: ended}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	wait(t, s, run.ID)
	if got := <-ended; got != run.ID {
		t.Errorf("%s has ended, not %s", got, run.ID)
	}
	without, _ := follow(t, s, api.AgentRequest{Template: "none"})
	if got := <-ended; got != without.ID || without.Reason != api.AgentNoSandbox {
		t.Errorf("%s has ended, not %+v", got, without)
	}
}
