package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

func rewinds(events []api.AgentEvent) (out []api.AgentEvent) {
	for _, e := range events {
		if e.Type == api.AgentEventRewound {
			out = append(out, e)
		}
	}
	return out
}

// circling is a run that loads something, goes in a circle from its second turn
// on, in which it writes a file, and finds another way when it was set back to
// before some turn.
func circling(turn int, state string) *desk {
	circle := scripted.Turn{Say: fence("made-in-the-circle writes x") + "\n" + fence("again")}
	told3 := circle
	told3.Expect = []string{"You ran the same code 3 times"}
	d := newDesk(scripted.Turn{Say: fence("kept writes before")}, circle, circle, circle, told3,
		scripted.Turn{Say: "FINAL ANSWER: another way", Expect: []string{fmt.Sprint("set back to before turn ", turn), state, "again"}})
	d.knows["kept writes before"] = []api.Event{printed("loaded\n"), ok()}
	d.knows["made-in-the-circle writes x"] = []api.Event{ok()}
	d.knows["again"] = []api.Event{raised("KeyError", "'x'")}
	return d
}

// A run that repeats itself is told, then set back to variables and files from
// before, and its own circle is out of the conversation. What ran between the last
// copy and the circle runs once more.
func TestARunThatGoesInCirclesIsSetBack(t *testing.T) {
	d := circling(2, "Variables, and the files below /workspace, are as they were then")
	dir := t.TempDir()
	run, events := follow(t, d.service(t, dir), api.AgentRequest{Files: []api.AgentFile{{Path: "given.csv", Content: []byte("1")}}})
	if run.Reason != api.AgentAnswered || run.Rewinds != 1 {
		t.Fatalf("%+v", run)
	}
	last := d.model.Requests()[len(d.model.Requests())-1]
	if len(last.Messages) != 4 { // task, reply, observation, and what was set back
		t.Errorf("the conversation still has %d messages", len(last.Messages))
	}
	rewound := rewinds(events)[0]
	if rewound.ContextID == "" || !rewound.Rewound.Variables || !rewound.Rewound.Files || rewound.Rewound.Again != 1 || run.ContextID != rewound.ContextID {
		t.Errorf("%+v, goes on in %s", rewound, run.ContextID)
	}
	if at := slices.Index(d.codes, rewound.ContextID+" kept writes before"); at < 0 || slices.Contains(d.codes, rewound.ContextID+" again") {
		t.Errorf("ran: %q", d.codes)
	}
	// Another context goes on, and the one that went in circles is closed.
	if !slices.Contains(d.closed, run.ID) || slices.Contains(d.closed[:1], rewound.ContextID) {
		t.Errorf("closed: %v, goes on in %s", d.closed, rewound.ContextID)
	}
	if d.files["/workspace/kept"] != "before" || d.files["/workspace/given.csv"] != "1" || d.files["/workspace/made-in-the-circle"] != "" {
		t.Errorf("files: %v", d.files)
	}
	if _, err := os.Stat(filepath.Join(dir, run.ID, checkpointsDir)); !os.IsNotExist(err) {
		t.Errorf("the files of checkpoints outlive the run: %v", err)
	}
}

// A circle that begins where there is a copy needs nothing but that.
func TestARunIsSetBackToTheCopyBeforeItsCircle(t *testing.T) {
	circle := scripted.Turn{Say: fence("again")}
	turns := []scripted.Turn{}
	d := newDesk(circle)
	for i := range 5 {
		code := fmt.Sprint("c", i)
		turns = append(turns, scripted.Turn{Say: fence(code)})
		d.knows[code] = []api.Event{printed(code), ok()}
	}
	turns = append(turns, circle, circle, circle, circle, scripted.Turn{Say: "FINAL ANSWER: x", Expect: []string{"set back to before turn 6"}})
	d.model.Script, d.thinks = scripted.Of(turns...), time.Second
	d.knows["again"] = []api.Event{raised("KeyError", "'x'")}
	run, events := d.do(t, api.AgentRequest{Keep: "keep"})
	if run.Reason != api.AgentAnswered {
		t.Fatalf("%+v", run)
	}
	if r := rewinds(events)[0]; r.ContextID != "copy-1" || !r.Rewound.Variables || !r.Rewound.Files || r.Rewound.Again != 0 || len(d.ran) != 9 {
		t.Errorf("%+v %+v, %d cells ran", r, r.Rewound, len(d.ran))
	}
}

func TestWhatCannotBeSetBackIsToldToStay(t *testing.T) {
	both := "Variables, and the files below /workspace, are as they were then"
	for name, tc := range map[string]struct {
		state string
		world func(*desk, *api.AgentRequest)
		to    int
		files bool
	}{
		"many files":        {"Variables are as they were then; files stay", func(d *desk, _ *api.AgentRequest) { d.full = true }, 1, false},
		"another's sandbox": {"Variables are as they were then; files stay", func(_ *desk, req *api.AgentRequest) { req.SandboxID = "sb-7" }, 1, false},
		"no copies":         {both, func(d *desk, _ *api.AgentRequest) { d.unforkable, d.thinks = true, time.Second }, 2, true},
		"a network": {both, func(_ *desk, req *api.AgentRequest) {
			req.Network = &api.NetworkPolicy{Allow: []api.NetworkRule{{Text: "a.example"}}}
		}, 1, true},
		"chance":      {both, func(d *desk, _ *api.AgentRequest) { d.chance = "kept writes before" }, 1, true},
		"no contexts": {"Variables and files stay as they are now", func(d *desk, _ *api.AgentRequest) { d.noContexts = true }, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := circling(tc.to, tc.state)
			req := api.AgentRequest{}
			tc.world(d, &req)
			run, events := d.do(t, req)
			if run.Reason != api.AgentAnswered {
				t.Fatalf("%+v", run)
			}
			left := map[bool]string{true: "", false: "x"}[tc.files]
			if r := rewinds(events)[0].Rewound; r.Variables == d.noContexts || r.Files != tc.files || r.ToTurn != tc.to || d.files["/workspace/made-in-the-circle"] != left {
				t.Errorf("%+v, files %v", r, d.files)
			}
		})
	}
}

// withTools says that the sandbox has a tool.
type withTools struct {
	Tools
	ended chan string // gets the runs that have
}

func (withTools) Attach(string, string, chan api.Approval) func() { return func() {} }
func (withTools) Reading(string)                                  {}
func (w withTools) Ended(run string) {
	if w.ended != nil {
		w.ended <- run
	}
}
func (withTools) Approvals(context.Context, string, string, string, string, int) ([]api.Approval, error) {
	return nil, nil
}
func (withTools) Prompt(context.Context, string, string, int, func(string) int) (string, error) {
	return "from tools import crm", nil
}

func TestWhatMayNotRunTwice(t *testing.T) {
	long := ok()
	long.Execution.DurationMS = 31_000
	for name, tc := range map[string]struct {
		code  string
		ends  api.Event
		tools Tools
		again bool
	}{
		"plain":    {"load", ok(), nil, true},
		"failed":   {"load", raised("KeyError", "'x'"), nil, true},
		"a tool":   {"load", ok(), withTools{}, false},
		"a secret": {"load('the-servers-own-key')", ok(), nil, false},
		"long":     {"load", long, nil, false},
		"died":     {"load", died(api.EndKernelDied), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			circle := scripted.Turn{Say: fence("again")}
			d := newDesk(scripted.Turn{Say: fence(tc.code)}, scripted.Turn{Say: fence("between")}, circle, circle, circle, circle, scripted.Turn{Say: "FINAL ANSWER: x"})
			d.knows[tc.code], d.knows["between"], d.knows["again"] = []api.Event{tc.ends}, []api.Event{ok()}, []api.Event{raised("ValueError", "y")}
			s := d.service(t, t.TempDir())
			s.cfg.Tools = tc.tools
			run, events := follow(t, s, api.AgentRequest{})
			if run.Reason != api.AgentAnswered {
				t.Fatalf("%+v", run)
			}
			ran := 0
			for _, c := range d.codes {
				if strings.Contains(c, " load") {
					ran++
				}
			}
			want := map[bool]int{true: 2, false: 1}[tc.again]
			if r := rewinds(events)[0].Rewound; ran != want || r.ToTurn != map[bool]int{true: 3, false: 1}[tc.again] || r.Again != map[bool]int{true: 2}[tc.again] || !r.Variables || !r.Files {
				t.Errorf("%+v, and it ran %d times", r, ran)
			}
		})
	}
}

// A copy costs memory and time, so there is one every few turns, and it is kept
// only as long as a circle may have begun behind it; files that did not change are
// read once.
func TestCheckpointsThatNothingNeedsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // whose clock stands still while copies are made
		var turns []scripted.Turn
		d := newDesk(scripted.Turn{Say: "x"})
		for i := range 14 {
			code := fmt.Sprint("c", i)
			turns = append(turns, scripted.Turn{Say: fence(code)})
			d.knows[code] = []api.Event{printed(code), ok()}
		}
		d.model.Script, d.thinks = scripted.Of(append(turns, scripted.Turn{Say: "FINAL ANSWER: x"})...), time.Second
		run, events := d.do(t, api.AgentRequest{Keep: "keep"})
		var made []string
		var at []int
		for _, e := range events {
			if e.Type == api.AgentEventCheckpoint {
				at = append(at, e.Turn)
				if e.ContextID != "" {
					made = append(made, e.ContextID)
				}
				if open := len(made) - len(closedOf(d, made)); open > 2 {
					t.Errorf("%d checkpoints are open after turn %d", open, e.Turn)
				}
			}
		}
		if !slices.Equal(at, []int{1, 6, 11}) || len(made) != 2 || len(closedOf(d, made)) != 2 || slices.Contains(d.closed, run.ID) {
			t.Errorf("made %v before turns %v, closed %v", made, at, d.closed)
		}
		if d.packs != 1 {
			t.Errorf("files were read %d times", d.packs)
		}
	})
}

// What copies cost is bounded by how rare they are, unless the model thinks while
// they are made.
func TestHowRareCopiesAre(t *testing.T) {
	for _, tc := range []struct {
		took, thought time.Duration
		want          int
	}{
		{0, 0, 5}, {150, 0, 20}, {150, 100, 10}, {150, 150, 5}, {150, 9000, 5}, {700, 0, 75}, {700, 600, 15},
	} {
		if got := gap(tc.took*time.Millisecond, tc.thought*time.Millisecond); got != tc.want {
			t.Errorf("took %d ms, thought %d ms: %d turns, want %d", tc.took, tc.thought, got, tc.want)
		}
	}
}

func closedOf(d *desk, made []string) (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range made {
		if slices.Contains(d.closed, id) {
			out = append(out, id)
		}
	}
	return out
}

func TestHowLongACircleMayHaveBegun(t *testing.T) {
	at := func(turn int, does string) step {
		s := step{turn: turn, action: does, outcome: does}
		if strings.HasPrefix(does, "!") {
			s.failure, s.outcome = "KeyError", fmt.Sprint(does, turn)
		}
		return s
	}
	for _, tc := range []struct {
		does string
		want int
	}{
		{"", 0}, {"a", 1}, {"a b", 1}, {"a b c", 2}, {"a b c d e", 4}, {"a b b b", 2}, {"a c b c b c", 2}, {"a !b !c !d", 2}, {"!a !b c", 2},
	} {
		var steps []step
		for i, d := range strings.Fields(tc.does) {
			steps = append(steps, at(i+1, d))
		}
		if got := mayHaveBegun(steps); got != tc.want {
			t.Errorf("%q: turn %d, want %d", tc.does, got, tc.want)
		}
	}
}

// A replay says the replies of a run again, in a sandbox of the same kind; what
// happens in it may differ.
func TestReplay(t *testing.T) {
	d, req := staged()
	req.Instructions, req.Envs, req.MemoryMB = "be brief", map[string]string{"A": "1"}, ptr(512)
	s := d.service(t, t.TempDir())
	first, before := follow(t, s, req)
	d.files = map[string]string{}
	d.model.Script = nil // nobody is asked
	again, after := follow(t, s, api.AgentRequest{ReplayOf: first.ID})
	if again.Reason != api.AgentAnswered || *again.Answer != "done" || again.Rewinds != 1 || again.ReplayOf != first.ID || again.ID == first.ID ||
		d.files["/workspace/a"] != "1" || d.asked.Envs["A"] != "1" || *d.asked.MemoryMB != 512 {
		t.Errorf("%+v, %v, %+v", again, d.files, d.asked)
	}
	if b, a := told(before), told(after); !slices.Equal(b, a) {
		t.Errorf("told %q, then %q", b, a)
	}
	for name, req := range map[string]api.AgentRequest{
		"another task": {ReplayOf: first.ID, Task: "y"}, "limits": {ReplayOf: first.ID, Limits: api.AgentLimits{MaxTurns: 3}}, "nothing": {ReplayOf: "ag-0000000000000000"},
	} {
		if _, err := s.Start(t.Context(), owner, req, ""); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	if _, err := s.Start(t.Context(), "bob", api.AgentRequest{ReplayOf: first.ID}, ""); err == nil {
		t.Error("another's run was replayed")
	}
}
