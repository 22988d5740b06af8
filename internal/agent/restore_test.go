package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// keeping is a run of two turns with cells, one of them with a figure, and an answer,
// which kept its sandbox as a snapshot.
func keeping(t *testing.T, d *desk, s *Service) api.AgentRun {
	t.Helper()
	d.model.Script = scripted.Of(scripted.Turn{Say: fence("load")}, scripted.Turn{Say: fence("look")}, scripted.Turn{Say: "FINAL ANSWER: one way"})
	d.knows["load"] = []api.Event{printed("loaded\n"), result("image/png", dot()), ok()}
	d.knows["look"] = []api.Event{raised("KeyError", "'x'")}
	d.knows["other"] = []api.Event{printed("another\n"), ok()}
	first, _ := follow(t, s, api.AgentRequest{Keep: keepSnapshot})
	if first.SnapshotID != "sn-1" || first.Turns != 3 {
		t.Fatalf("%+v", first)
	}
	d.codes = nil
	return first
}

// hasRun are the codes of the cells that ran, in whatever context.
func (d *desk) hasRun() (out []string) {
	for _, c := range d.codes {
		_, code, _ := strings.Cut(c, " ")
		out = append(out, code)
	}
	return out
}

func another() *scripted.Script {
	return scripted.Of(scripted.Turn{Say: fence("other"), Expect: []string{"KeyError", "use medians"}}, scripted.Turn{Say: "FINAL ANSWER: another way"})
}

func forkedIn(t *testing.T, events []api.AgentEvent) *api.AgentForked {
	t.Helper()
	at := slices.IndexFunc(events, func(e api.AgentEvent) bool { return e.Type == api.AgentEventForked })
	if at < 0 {
		t.Fatal("nothing says where it branched off")
	}
	return events[at].Forked
}

// Where the end of a run left the state before a turn in a snapshot, a fork has it
// from there: no cell runs again, and the run says so.
func TestAForkIsRestored(t *testing.T) {
	d := newDesk(scripted.Turn{})
	s := d.service(t, t.TempDir())
	first := keeping(t, d, s)
	d.model.Script = another()
	fork, events := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 3, Task: "use medians"}})
	if fork.Reason != api.AgentAnswered || *fork.Answer != "another way" || fork.Turns != 4 || fork.Cells != 3 || fork.ContextID != first.ContextID {
		t.Errorf("%+v", fork)
	}
	if f := forkedIn(t, events); f.SnapshotID != "sn-1" || f.Cells != 0 || f.Differ != nil || f.Outside {
		t.Errorf("%+v", f)
	}
	if d.asked.FromSnapshot != "sn-1" || d.asked.Template != "" || !slices.Equal(d.hasRun(), []string{"other"}) {
		t.Errorf("of %+v ran %q", d.asked, d.hasRun())
	}
	before, err := s.entries(owner, first.ID)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := outcomesOf(before), outcomesOf(events); !slices.EqualFunc(a, b[:2], func(x, y *api.AgentOutcome) bool { return x.Text == y.Text && x.Digest == y.Digest }) {
		t.Errorf("told is %+v, not %+v", b, a)
	}
	for _, name := range []string{"1-1-1.png", "1-1.outputs.json"} {
		was, err := os.ReadFile(filepath.Join(s.dir(first.ID), figuresDir, name))
		is, ferr := os.ReadFile(filepath.Join(s.dir(fork.ID), figuresDir, name))
		if err != nil || ferr != nil || !bytes.Equal(was, is) {
			t.Errorf("%s: %v, %v", name, err, ferr)
		}
	}
	// It is forked in its turn like any other: by its own end, which kept nothing.
	d.model.Script, d.codes = scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"}), nil
	again, events := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: fork.ID, At: 3}})
	if f := forkedIn(t, events); again.Reason != api.AgentAnswered || f.SnapshotID != "" || f.Cells != 2 || f.Differ != nil || !slices.Equal(d.hasRun(), []string{"load", "look"}) {
		t.Errorf("%+v, ran %q", f, d.hasRun())
	}
}

func outcomesOf(events []api.AgentEvent) (out []*api.AgentOutcome) {
	for _, e := range events {
		if e.Outcome != nil {
			out = append(out, e.Outcome)
		}
	}
	return out
}

// Where cells ran from the turn on, or the snapshot is gone, the cells before run
// again, and the run says that, too.
func TestAForkThatCannotBeRestored(t *testing.T) {
	for name, tc := range map[string]struct {
		at    int
		gone  bool
		cells int
		note  string
	}{
		"cells ran afterwards": {2, false, 1, ""},
		"it is gone":           {3, true, 2, `the snapshot sn-1, which has the state of AG, cannot be restored: there is no snapshot "sn-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(scripted.Turn{})
			s := d.service(t, t.TempDir())
			first := keeping(t, d, s)
			d.model.Script, d.noSnapshots = scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"}), tc.gone
			fork, events := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: tc.at}})
			if f := forkedIn(t, events); fork.Reason != api.AgentAnswered || f.SnapshotID != "" || f.Cells != tc.cells || len(d.codes) != tc.cells {
				t.Errorf("%+v, %+v, ran %q", fork, f, d.hasRun())
			}
			for _, e := range events {
				if want := strings.ReplaceAll(tc.note, "AG", first.ID); e.Type == api.AgentEventSandbox && (e.Note != want || e.SnapshotID != "") {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// A daemon that stops while a fork is restored changes nothing of its end.
func TestAForkIsRestoredOverRestarts(t *testing.T) {
	for _, stage := range []string{"create", "ask"} {
		t.Run(stage, func(t *testing.T) {
			d := newDesk(scripted.Turn{})
			dir := t.TempDir()
			s := d.service(t, dir)
			first := keeping(t, d, s)
			d.model.Script, d.haltAt = another(), stage
			run, err := s.Start(t.Context(), owner, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 3, Task: "use medians"}}, "")
			if err != nil {
				t.Fatal(err)
			}
			s = d.restarted(t, s, dir, 2)
			got, events := wait(t, s, run.ID)
			if got.Reason != api.AgentAnswered || got.Turns != 4 || got.Cells != 3 || forkedIn(t, events).SnapshotID != "sn-1" || !slices.Equal(d.hasRun(), []string{"other"}) {
				t.Errorf("%+v, ran %q", got, d.hasRun())
			}
		})
	}
}

// What the cells of a fork did outside of its sandbox is done twice, and that is said.
func TestAForkSaysThatItReachedOutside(t *testing.T) {
	d := newDesk(scripted.Turn{})
	s := d.service(t, t.TempDir())
	d.model.Script = scripted.Of(scripted.Turn{Say: fence("load")}, scripted.Turn{Say: "FINAL ANSWER: x"}, scripted.Turn{Say: "FINAL ANSWER: y"})
	d.knows["load"] = []api.Event{printed("loaded\n"), ok()}
	first, _ := follow(t, s, api.AgentRequest{Network: &api.NetworkPolicy{Mode: api.NetworkOpen}})
	_, events := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 2}})
	if f := forkedIn(t, events); !f.Outside || f.Cells != 1 {
		t.Errorf("%+v", f)
	}
}
