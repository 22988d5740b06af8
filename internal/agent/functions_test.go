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
