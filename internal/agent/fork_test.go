package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// forked is a run of three turns, and its fork before the third.
func forked(t *testing.T, d *desk, s *Service, to *scripted.Script, req api.AgentRequest) (first, fork api.AgentRun, events []api.AgentEvent) {
	t.Helper()
	d.model.Script = scripted.Of(scripted.Turn{Say: fence("load")}, scripted.Turn{Say: fence("look")}, scripted.Turn{Say: "FINAL ANSWER: one way"})
	d.knows["load"] = []api.Event{printed("loaded\n"), ok()}
	d.knows["look"] = []api.Event{raised("KeyError", "'x'")}
	d.knows["other"] = []api.Event{printed("another\n"), ok()}
	first, _ = follow(t, s, api.AgentRequest{Instructions: "be brief", Files: []api.AgentFile{{Path: "a", Content: []byte("1")}}, Price: &api.AgentPrice{Input: 1e6, Output: 1e6}})
	d.files, d.model.Script = map[string]string{}, to
	req.Fork.Of = first.ID
	fork, events = follow(t, s, req)
	return first, fork, events
}

// A fork has the state before its turn, by running the cells again, is told what
// it is to do, and goes another way with another model. What was said before is
// not paid for again.
func TestAForkGoesAnotherWay(t *testing.T) {
	d := newDesk(scripted.Turn{})
	to := scripted.Of(scripted.Turn{Say: fence("other"), Expect: []string{"KeyError", "use medians"}}, scripted.Turn{Say: "FINAL ANSWER: another way", Expect: []string{"another"}})
	first, fork, events := forked(t, d, d.service(t, t.TempDir()), to, api.AgentRequest{Fork: &api.AgentFork{At: 3, Task: "use medians"}, Model: "openai:other"})
	if fork.Reason != api.AgentAnswered || *fork.Answer != "another way" || fork.ForkOf != first.ID || fork.ForkAt != 3 || fork.Task != "use medians" || fork.Model != "openai:other" ||
		fork.Turns != 4 || fork.Cells != 3 || d.files["/workspace/a"] != "1" {
		t.Errorf("%+v, files %v", fork, d.files)
	}
	at := slices.IndexFunc(events, func(e api.AgentEvent) bool { return e.Type == api.AgentEventForked })
	if at < 0 {
		t.Fatal("nothing says where it branched off")
	}
	if f := events[at].Forked; f.Of != first.ID || f.At != 3 || f.Cells != 2 || f.Differ != nil {
		t.Errorf("%+v", f)
	}
	if told := told(events); told[0] != "add" || !slices.Contains(told, "use medians") || !strings.Contains(events[2].Text, "be brief") {
		t.Errorf("told %q, prompt %q", told, events[2].Text)
	}
	paid := api.AgentUsage{}
	for _, e := range events[at:] {
		if e.Type == api.AgentEventReply {
			paid.InputTokens += e.Reply.Usage.InputTokens
		}
	}
	if first.Usage.CostUSD == 0 || fork.Usage.InputTokens != paid.InputTokens || len(d.model.Requests()) != 5 {
		t.Errorf("paid %+v of %+v in %d requests", paid, fork.Usage, len(d.model.Requests()))
	}
}

// Where something else comes of a cell, the fork says so, and tells the model what
// is.
func TestAForkSaysWhatDiffers(t *testing.T) {
	d := newDesk(scripted.Turn{})
	d.chance = "load"
	to := scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x", Expect: []string{"by chance"}})
	_, fork, events := forked(t, d, d.service(t, t.TempDir()), to, api.AgentRequest{Fork: &api.AgentFork{At: 2}})
	for _, e := range events {
		if e.Type == api.AgentEventForked && (e.Forked.Cells != 1 || !slices.Equal(e.Forked.Differ, []string{"turn 1, cell 1"})) {
			t.Errorf("%+v", e.Forked)
		}
	}
	if fork.Reason != api.AgentAnswered {
		t.Errorf("%+v", fork)
	}
}

// A fork of a fork, and one of that, have been told what those before were told when
// they began to go another way.
func TestAForkOfAForkWasToldTheSame(t *testing.T) {
	for _, stage := range []string{"", "ask"} {
		t.Run(stage, func(t *testing.T) {
			d := newDesk(scripted.Turn{})
			dir := t.TempDir()
			s := d.service(t, dir)
			to := scripted.Of(scripted.Turn{Say: fence("other")}, scripted.Turn{Say: "FINAL ANSWER: another way"})
			_, of, _ := forked(t, d, s, to, api.AgentRequest{Fork: &api.AgentFork{At: 2, Task: "use medians"}})
			for range 2 {
				d.model.Script, d.haltAt = scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"}), stage
				run, err := s.Start(t.Context(), owner, api.AgentRequest{Fork: &api.AgentFork{Of: of.ID, At: 3}}, "")
				if err != nil {
					t.Fatal(err)
				}
				if stage != "" {
					s = d.restarted(t, s, dir, 1)
				}
				got, events := wait(t, s, run.ID)
				said := told(events)
				if got.Reason != api.AgentAnswered || len(said) != 4 || said[0] != "add" || said[2] != "use medians" {
					t.Errorf("%+v, told %q", got, said)
				}
				of = got
				d.model.Script = scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"})
			}
		})
	}
}

func TestForksThatCannotBe(t *testing.T) {
	d := newDesk(scripted.Turn{})
	to := scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"})
	s := d.service(t, t.TempDir())
	first, _, _ := forked(t, d, s, to, api.AgentRequest{Fork: &api.AgentFork{At: 1}})
	for name, tc := range map[string]struct {
		req   api.AgentRequest
		field string
	}{
		"no turn":         {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID}}, "fork.at"},
		"a turn too late": {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 4}}, "fork.at"},
		"another task":    {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 2}, Task: "y"}, "fork"},
		"another sandbox": {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 2}, SandboxID: "sb-1"}, "fork"},
		"no turns left":   {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 2}, Limits: api.AgentLimits{MaxTurns: 1}}, "limits.max_turns"},
		"nothing":         {api.AgentRequest{Fork: &api.AgentFork{Of: "ag-0000000000000000", At: 1}}, ""},
		"also a replay":   {api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 2}, ReplayOf: first.ID}, "replay_of"},
	} {
		var f *fault.Error
		if _, err := s.Start(t.Context(), owner, tc.req, ""); !errors.As(err, &f) || f.Field != tc.field {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Start(t.Context(), "bob", api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 1}}, ""); err == nil {
		t.Error("another's run was forked")
	}
}

// A daemon that stops while the first turns are repeated, or afterwards, changes
// nothing of how a fork ends.
func TestAForkGoesOnAfterRestarts(t *testing.T) {
	for _, stage := range []string{"cell", "ask", "copy"} {
		t.Run(stage, func(t *testing.T) {
			d := newDesk(scripted.Turn{})
			other := func() *scripted.Script {
				return scripted.Of(scripted.Turn{Say: fence("other"), Expect: []string{"use medians"}}, scripted.Turn{Say: "FINAL ANSWER: another way"})
			}
			dir := t.TempDir()
			s := d.service(t, dir)
			first, _, _ := forked(t, d, s, other(), api.AgentRequest{Fork: &api.AgentFork{At: 1, Task: "use medians"}})
			d.model.Script, d.haltAt = other(), stage
			run, err := s.Start(t.Context(), owner, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 3, Task: "use medians"}}, "")
			if err != nil {
				t.Fatal(err)
			}
			s = d.restarted(t, s, dir, 2)
			got, events := wait(t, s, run.ID)
			branched := 0
			for _, e := range events {
				if e.Type == api.AgentEventForked {
					branched++
				}
			}
			if got.Reason != api.AgentAnswered || got.Turns != 4 || got.Cells != 3 || branched != 1 {
				t.Errorf("%+v, branched %d times", got, branched)
			}
		})
	}
}
