package agent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

func fence(code string) string { return "I look.\n\n```python\n" + code + "\n```" }

func TestARunToItsAnswer(t *testing.T) {
	d := newDesk(
		scripted.Turn{Say: fence("total()")},
		scripted.Turn{Say: "FINAL ANSWER: it is 42", Expect: []string{"ok in 0.01 s\n42"}},
	)
	d.knows["total()"] = []api.Event{printed("42\n"), ok()}
	run, events := d.do(t, api.AgentRequest{Files: []api.AgentFile{{Path: "data.csv", Content: []byte("a,b\n")}, {Path: "/etc/x", Content: []byte("y")}}})
	if run.Reason != api.AgentAnswered || run.Answer == nil || *run.Answer != "it is 42" || run.Turns != 2 || run.Cells != 1 || run.Error != "" {
		t.Fatalf("%+v", run)
	}
	if d.files["/workspace/data.csv"] != "a,b\n" || d.files["/etc/x"] != "y" {
		t.Errorf("files: %v", d.files)
	}
	if !slices.Equal(d.killed, []string{"sb-1"}) {
		t.Errorf("the sandbox: %v ended", d.killed)
	}
	var types []string
	for _, e := range events {
		if e.Seq > 0 {
			types = append(types, e.Type)
		}
	}
	want := strings.Fields("started sandbox prompt message asked reply found checkpoint cell outcome message asked reply found ended")
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("the transcript:\n%s", diff)
	}
}

// Cells have 15 s each, or as long as the run says.
func TestCellsHaveTheDeadlineOfTheRun(t *testing.T) {
	for seconds, want := range map[float64]int64{0: 15_000, 60: 60_000} {
		d := newDesk(scripted.Turn{Say: fence("long()")}, scripted.Turn{Say: "FINAL ANSWER: done"})
		d.knows["long()"] = []api.Event{printed("set up\n"), ok()}
		if run, _ := d.do(t, api.AgentRequest{Limits: api.AgentLimits{CellSeconds: seconds}}); run.Reason != api.AgentAnswered || d.deadlines["long()"] != want {
			t.Errorf("cell_seconds %v: %d ms, %+v", seconds, d.deadlines["long()"], run)
		}
	}
}

// A run that is cut after any entry of its transcript goes on with the next
// service to the same end, and no cell runs twice.
func TestARunGoesOnAfterACrashAnywhere(t *testing.T) {
	turns := func() []scripted.Turn {
		return []scripted.Turn{
			{Say: fence("one") + "\n" + fence("two")},
			{Say: fence("fails") + "\n" + fence("never")},
			{Say: "", Reasoning: "hm"},
			{Say: fence("dies")},
			{Say: "FINAL ANSWER: done"},
		}
	}
	knows := map[string][]api.Event{
		"one": {printed("1\n"), ok()}, "two": {result("text/plain", "2"), ok()}, "fails": {printed("before\n"), raised("KeyError", "'x'")}, "dies": {died(api.EndOOM)},
	}
	fresh := func() *desk { d := newDesk(turns()...); d.knows = knows; return d }
	whole := fresh()
	dir := t.TempDir()
	s := whole.service(t, dir)
	first, _ := follow(t, s, api.AgentRequest{})
	s.Close()
	lines := linesOf(t, dir, first.ID)
	if len(lines) < 25 {
		t.Fatalf("only %d entries", len(lines))
	}
	for n := 1; n < len(lines); n++ {
		// The world as it was after n entries: the replies that were heard are
		// not said again, the cells that began have run.
		d := fresh()
		replies := 0
		left, entries := crashed(t, first.ID, lines[:n], `{"seq":99,"type":"rep`)
		for _, e := range entries {
			switch e.Type {
			case api.AgentEventReply:
				replies++
			case api.AgentEventSandbox:
				d.made[first.ID] = e.SandboxID
				d.contexts[e.ContextID] = true
			case api.AgentEventCell:
				d.past[e.Cell.ExecutionID] = knows[e.Cell.Code]
				d.ran[e.Cell.ExecutionID]++
			}
		}
		d.model.Script = scripted.Of(turns()[replies:]...)
		s := d.service(t, left)
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		run, events := wait(t, s, first.ID)
		if run.Reason != api.AgentAnswered || *run.Answer != "done" || run.Turns != first.Turns || run.Cells != first.Cells || run.Usage != first.Usage {
			t.Errorf("cut after entry %d: %+v, want %+v", n, run, first)
		}
		for id, times := range d.ran {
			if times != 1 {
				t.Errorf("cut after entry %d: cell %s ran %d times", n, id, times)
			}
		}
		if last := told(events); !strings.Contains(last[len(last)-1], "All variables, imports and functions are lost") {
			t.Errorf("cut after entry %d: told last %q", n, last[len(last)-1])
		}
		s.Close()
	}
}

func TestWhatTheModelIsTold(t *testing.T) {
	long := strings.Repeat("row of a long table\n", 10) + strings.Repeat("x", 40_000)
	for _, tc := range []struct {
		name   string
		say    string
		events []api.Event
		want   []string
		not    []string
	}{
		{"nothing printed", fence("c"), []api.Event{ok()}, []string{"printed nothing", "print it"}, nil},
		{"order", fence("c"), []api.Event{printed("a\n"), warned("b\n"), printed("c\n"), result("text/plain", "7"), ok()}, []string{"a\n[stderr]\nb\n[stdout]\nc\n[result]\n7"}, nil},
		{"before an exception", fence("c"), []api.Event{printed("half\n"), raised("KeyError", "'x'")}, []string{"KeyError in 0.01 s", "half\n[error]\nTraceback", "----> 1"}, []string{"printed nothing"}},
		{"deadline", fence("c"), []api.Event{printed("half\n"), ended(api.Execution{End: api.EndTimeout, StateSurvived: true})},
			[]string{"half", "deadline of 15 seconds", "printed until then is above", "are still there"}, nil},
		{"deaf at the deadline", fence("c"), []api.Event{died(api.EndTimeout)}, []string{"did not react", "are lost; files are still there"}, nil},
		{"memory", fence("c"), []api.Event{printed("half\n"), died(api.EndOOM)}, []string{"half", "more memory than there is", "are lost"}, nil},
		{"dead kernel", fence("c"), []api.Event{died(api.EndKernelDied)}, []string{"interpreter ended", "are lost"}, nil},
		{"interrupted", fence("c"), []api.Event{ended(api.Execution{End: api.EndInterrupted, StateSurvived: true})}, []string{"was interrupted", "are still there"}, nil},
		{"long", fence("c"), []api.Event{printed(long), ok()}, []string{"[the line above 9 more times]", "bytes left out; all of it is in /tmp/cells/1-1.txt"}, []string{strings.Repeat("x", 17_000)}},
		{"a table", fence("c"), []api.Event{{Type: api.EventResult, Data: api.Bundle{"text/html": "<table>", "text/plain": "   a\n0  1"}}, ok()}, []string{"[result]\n   a\n0  1"}, []string{"<table>"}},
		{"no text", fence("c"), []api.Event{result("application/x", "z"), ok()}, []string{"a value of the types application/x"}, nil},
		{"lost on the way", fence("c"), []api.Event{printed("a\n"), {Type: api.EventGap, Stream: "stdout", Dropped: 9}, ok()}, []string{"9 bytes of stdout lost"}, nil},
		{"an observation made up", fence("c") + "\nObservation: 99", []api.Event{printed("1\n"), ok()}, []string{"You wrote an observation yourself"}, []string{"99"}},
		{"code and answer", fence("c") + "\nFINAL ANSWER: 99", []api.Event{printed("1\n"), ok()}, []string{"Your answer was not taken"}, []string{"99"}},
		{"the second cell is not run", fence("c") + "\n" + fence("e"), []api.Event{raised("ValueError", "v")}, []string{"cell 1 of 2: ValueError", "cell 2 of 2: not run. Cell 1 failed."}, nil},
		{"other code", fence("c") + "\n```bash\nls\n```", []api.Event{ok()}, []string{"not marked as Python was not run"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(scripted.Turn{Say: tc.say}, scripted.Turn{Say: "FINAL ANSWER: x"})
			d.knows["c"] = tc.events
			_, events := d.do(t, api.AgentRequest{})
			all := told(events)
			got := all[len(all)-1]
			for _, w := range tc.want {
				if !strings.Contains(got, w) {
					t.Errorf("lacks %q:\n%s", w, got)
				}
			}
			for _, w := range tc.not {
				if strings.Contains(got, w) {
					t.Errorf("has %.80q:\n%.2000s", w, got)
				}
			}
			if n := llm.Guess(got); n > 4300 {
				t.Errorf("%d tokens", n)
			}
		})
	}
}

// What a cell wrote that is too long for the model lies whole in the sandbox.
func TestTheWholeOutputIsKept(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x"})
	long := strings.Repeat("all different", 5000)
	d.knows["c"] = []api.Event{printed(long), ok()}
	d.do(t, api.AgentRequest{})
	if d.files["/tmp/cells/1-1.txt"] != long {
		t.Errorf("%d bytes were kept of %d", len(d.files["/tmp/cells/1-1.txt"]), len(long))
	}
}

func TestRepliesWithoutCode(t *testing.T) {
	filler := scripted.Turn{Say: "FINAL ANSWER: later"}
	for _, tc := range []struct {
		name   string
		turn   scripted.Turn
		tool   bool
		answer string // at once
		told   string // and then the filler
	}{
		{"plain words", scripted.Turn{Say: "It is 42."}, false, "It is 42.", ""},
		{"after thinking", scripted.Turn{Say: "<think>hm</think>It is 42."}, false, "It is 42.", ""},
		{"marked", scripted.Turn{Say: "So.\n**FINAL ANSWER:** 42"}, false, "42", ""},
		{"code in the answer", scripted.Turn{Say: "FINAL ANSWER: run\n```python\nx\n```"}, false, "run\n```python\nx\n```", ""},
		{"empty", scripted.Turn{Say: ""}, false, "", "Your reply was empty. "},
		{"only thinking", scripted.Turn{Say: "<think>hm</think>"}, false, "", "empty but for your thinking"},
		{"only reasoning", scripted.Turn{Reasoning: "hm"}, false, "", "empty but for your thinking"},
		{"cut", scripted.Turn{Say: "```python\nfor i in", Stop: llm.StopLength}, false, "", "was cut at its limit of 8192 tokens, and nothing of it was run"},
		{"cut words", scripted.Turn{Say: "I would say that", Stop: llm.StopLength}, false, "", "was cut at its limit"},
		{"only bash", scripted.Turn{Say: "```bash\nls\n```"}, false, "", "not marked as Python"},
		{"fence instead of a call", scripted.Turn{Say: fence("x")}, true, "", "did not call run_python"},
		{"words of a caller", scripted.Turn{Say: "It is 42."}, true, "It is 42.", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(tc.turn, filler)
			req := api.AgentRequest{Dialect: "text"}
			if tc.tool {
				req.Dialect = "tool"
			}
			run, events := d.do(t, req)
			want := tc.answer
			if want == "" {
				want = "later"
				if all := told(events); !strings.Contains(all[len(all)-1], tc.told) {
					t.Errorf("told %q", all[len(all)-1])
				}
			}
			if run.Answer == nil || *run.Answer != want || run.Cells != 0 {
				t.Errorf("%+v", run)
			}
		})
	}
}

func TestRunsThatLeadNowhere(t *testing.T) {
	same := []scripted.Turn{{Say: fence("c")}}
	for _, tc := range []struct {
		name   string
		turns  []scripted.Turn
		loop   bool
		limits api.AgentLimits
		price  *api.AgentPrice
		reason string
	}{
		{"empty replies", []scripted.Turn{{}}, true, api.AgentLimits{}, nil, api.AgentNoReply},
		{"cut replies", []scripted.Turn{{Say: "```python\nx", Stop: llm.StopLength}}, true, api.AgentLimits{}, nil, api.AgentNoReply},
		{"turns", same, true, api.AgentLimits{MaxTurns: 2}, nil, api.AgentMaxTurns},
		{"cells", same, true, api.AgentLimits{MaxCells: 2}, nil, api.AgentMaxCells},
		{"tokens", []scripted.Turn{{Say: fence("c"), Usage: &scripted.Usage{Input: 900, Output: 200}}}, true, api.AgentLimits{MaxTokens: 2500}, nil, api.AgentMaxTokens},
		{"money", []scripted.Turn{{Say: fence("c"), Usage: &scripted.Usage{Input: 1000, Output: 100}}}, true, api.AgentLimits{MaxCostUSD: 0.005}, &api.AgentPrice{Input: 2, Output: 10}, api.AgentMaxCost},
		{"circles", same, true, api.AgentLimits{}, nil, api.AgentStuck},
		{"the provider refuses", []scripted.Turn{{Say: "x", Faults: []scripted.Fault{{Status: 400}, {Status: 400}, {Status: 400}, {Status: 400}, {Status: 400}}}}, false, api.AgentLimits{}, nil, api.AgentModelFailed},
		{"withheld", []scripted.Turn{{Stop: llm.StopFilter}}, false, api.AgentLimits{}, nil, api.AgentModelFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDesk(tc.turns...)
			d.model.Script.Conversations[0].Loop = tc.loop
			d.knows["c"] = []api.Event{printed("1\n"), ok()}
			run, _ := d.do(t, api.AgentRequest{Limits: tc.limits, Price: tc.price})
			if run.Reason != tc.reason || run.Answer != nil || run.Error == "" || run.Status != api.AgentEnded {
				t.Errorf("%+v", run)
			}
			if !slices.Equal(d.killed, []string{"sb-1"}) {
				t.Errorf("the sandbox: %v", d.killed)
			}
		})
	}
}

func TestCircles(t *testing.T) {
	at := func(turn int, action, outcome, failure string) step { return step{turn, action, outcome, failure} }
	var swing, fails []step
	for i := range 8 {
		swing = append(swing, at(i+1, fmt.Sprint(i%2), fmt.Sprint(i%2), ""))
		fails = append(fails, at(i+1, fmt.Sprint(i), fmt.Sprint(i), "KeyError: x"))
	}
	for _, tc := range []struct {
		name  string
		steps []step
		since int
		back  bool
	}{
		{"nothing", nil, 0, false},
		{"twice", []step{at(1, "a", "x", ""), at(2, "a", "x", "")}, 0, false},
		{"three times", []step{at(1, "b", "x", ""), at(2, "a", "x", ""), at(3, "a", "x", ""), at(4, "a", "x", "")}, 2, false},
		{"four times", []step{at(1, "a", "x", ""), at(2, "a", "x", ""), at(3, "a", "x", ""), at(4, "a", "x", "")}, 1, true},
		{"another outcome", []step{at(1, "a", "1", ""), at(2, "a", "2", ""), at(3, "a", "3", ""), at(4, "a", "4", "")}, 0, false},
		{"three errors", fails[:3], 0, false},
		{"four errors", fails[:4], 1, false},
		{"six errors", fails[:6], 1, true},
		{"back and forth", swing[:5], 0, false},
		{"back and forth again", swing[:6], 1, false},
		{"and again", swing, 1, true},
	} {
		c := goingInCircles(tc.steps)
		switch {
		case tc.since == 0 && c != nil, tc.since != 0 && c == nil:
			t.Errorf("%s: %+v", tc.name, c)
		case c != nil && (c.since != tc.since || c.back != tc.back):
			t.Errorf("%s: %+v", tc.name, c)
		}
	}
}

func TestFinalAnswerFunction(t *testing.T) {
	for name, events := range map[string][]api.Event{
		"raised":    {printed("x\n"), answers("42"), raised("FinalAnswer", "42")},
		"swallowed": {answers("42"), printed("the except of the model\n"), ok()},
		"twice":     {answers("42"), answers("43"), ok()},
		"then dead": {answers("42"), died(api.EndKernelDied)},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(scripted.Turn{Say: fence("c") + "\n" + fence("never")})
			d.knows["c"] = events
			run, _ := d.do(t, api.AgentRequest{})
			if run.Reason != api.AgentAnswered || *run.Answer != "42" || run.Cells != 1 {
				t.Errorf("%+v", run)
			}
		})
	}
}

func TestNativeCalls(t *testing.T) {
	call := func(id, name, arguments string) scripted.Call {
		raw, _ := json.Marshal(arguments)
		return scripted.Call{ID: id, Name: name, Arguments: raw}
	}
	d := newDesk(
		scripted.Turn{Say: "I look.", Calls: []scripted.Call{call("a", "run_python", `{"code":"one"}`), call("b", "run_python", `{"code":"two"}`)}},
		scripted.Turn{Calls: []scripted.Call{call("c", "browse", `{}`), call("d", "run_python", `{"co`), call("e", "run_python", `{"code":""}`)},
			Expect: []string{"1 of 2: ok", "2 of 2: ok"}, Image: true},
		scripted.Turn{Calls: []scripted.Call{call("f", "run_python", `{"code":"final"}`)}, Expect: []string{`no tool "browse"`, "not of the form", "Cell 1 failed|There was no code"}},
	)
	d.knows["one"] = []api.Event{result("image/png", dot()), ok()}
	d.knows["two"] = []api.Event{printed("2\n"), ok()}
	d.knows["final"] = []api.Event{answers("done"), ok()}
	run, _ := d.do(t, api.AgentRequest{Dialect: "tool"})
	if run.Reason != api.AgentAnswered || *run.Answer != "done" {
		t.Fatalf("%+v", run)
	}
	for _, m := range d.model.Requests()[1].Messages[1:] {
		if m.Role == llm.ToolRole && m.CallID == "" {
			t.Errorf("an answer to no call: %+v", m)
		}
	}
	if tools := d.model.Requests()[0].Tools; len(tools) != 1 || tools[0].Name != "run_python" {
		t.Errorf("offered: %+v", tools)
	}
}

// dot is a picture of 2×3 pixels.
func dot() string {
	return "iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg=="
}

func TestFigures(t *testing.T) {
	small, err := decodeFigure("image/png", dot())
	if err != nil || small.width != 2 || small.height != 3 {
		t.Fatalf("%+v, %v", small, err)
	}
	for name, text := range map[string]string{"no base64": "%%%", "no picture": "aGVsbG8=", "": ""} {
		if _, err := decodeFigure("image/png", text); err == nil {
			t.Errorf("%q is a picture", name)
		}
	}
	big := drawPNG(t, 4000, 1000)
	d, err := decodeFigure("image/png", base64.StdEncoding.EncodeToString(big))
	if err != nil || d.width != maxSide || d.height != maxSide/4 {
		t.Errorf("%d×%d, %v", d.width, d.height, err)
	}
	bomb := drawPNG(t, 7000, 7000)
	if _, err := decodeFigure("image/png", base64.StdEncoding.EncodeToString(bomb)); err == nil || !strings.Contains(err.Error(), "too much to look at") {
		t.Errorf("49 megapixels: %v", err)
	}

	for _, sees := range []bool{true, false} {
		d := newDesk(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x", Image: sees})
		if !sees {
			d.model.Script = scripted.Of(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x", Expect: []string{"picture of 2×3 pixels, which you cannot see"}})
		}
		d.knows["c"] = []api.Event{result("image/png", dot()), ok()}
		if run, _ := d.do(t, api.AgentRequest{Vision: &sees}); run.Reason != api.AgentAnswered {
			t.Errorf("sees %v: %+v", sees, run)
		}
	}
}

func TestSecretsAreTakenOut(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: it is sk-abcdefghijklmnopqrstuvwxyz"})
	d.knows["c"] = []api.Event{printed("callers-own-key the-servers-own-key AKIAABCDEFGHIJKLMNOP\n"), ok()}
	dir := t.TempDir()
	s := d.service(t, dir)
	run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "find the key"}, "callers-own-key")
	if err != nil {
		t.Fatal(err)
	}
	_, events := wait(t, s, run.ID)
	raw, err := os.ReadFile(filepath.Join(dir, run.ID, transcriptName))
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := json.Marshal(events)
	for _, secret := range []string{"callers-own-key", "the-servers-own-key", "AKIAABCDEFGHIJKLMNOP", "sk-abcdef"} {
		if strings.Contains(string(raw), secret) || strings.Contains(string(shown), secret) {
			t.Errorf("%s is in the transcript, or is told", secret)
		}
	}
}

// A run whose model key came with the request cannot go on in another daemon.
func TestAKeyOfTheCallersIsNotStored(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")})
	release := make(chan struct{})
	dir := t.TempDir()
	s := New(Config{Dir: dir, Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: waiting{d, release}, Model: "openai:scripted"})
	run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x"}, "callers-own-key")
	if err != nil {
		t.Fatal(err)
	}
	<-release // the model was asked
	s.Close()
	s = d.service(t, dir)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if got, _ := wait(t, s, run.ID); got.Reason != api.AgentNoKey {
		t.Errorf("%+v", got)
	}
}

// waiting is a model that never answers.
type waiting struct {
	*desk
	asked chan struct{}
}

func (w waiting) Open(string, string, string) (llm.Provider, string, error) { return w, "x", nil }

func (w waiting) Complete(ctx context.Context, _ llm.Request, _ func(llm.Delta)) (llm.Reply, error) {
	close(w.asked)
	<-ctx.Done()
	return llm.Reply{}, context.Cause(ctx)
}

func TestCancel(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")})
	release := make(chan struct{})
	s := New(Config{Dir: t.TempDir(), Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: waiting{d, release}, Model: "openai:scripted"})
	defer s.Close()
	run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x"}, "")
	if err != nil {
		t.Fatal(err)
	}
	<-release
	if err := s.Delete(t.Context(), owner, run.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("deleting a run that goes on: %v", err)
	}
	got, err := s.Cancel(t.Context(), owner, run.ID)
	if err != nil || got.Reason != api.AgentCancelled || len(d.killed) != 1 {
		t.Errorf("%+v, %v, %v", got, err, d.killed)
	}
	if err := s.Delete(t.Context(), owner, run.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(t.Context(), owner, run.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("after it was removed: %v", err)
	}
}

func TestTimeIsUp(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")})
	s := New(Config{Dir: t.TempDir(), Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: waiting{d, make(chan struct{})}, Model: "openai:scripted"})
	defer s.Close()
	if run, _ := follow(t, s, api.AgentRequest{Limits: api.AgentLimits{MaxSeconds: 0.05}}); run.Reason != api.AgentMaxSeconds {
		t.Errorf("%+v", run)
	}
}

func TestSandboxesThatAreNot(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: fence("c")})
	if run, _ := d.do(t, api.AgentRequest{Template: "none"}); run.Reason != api.AgentNoSandbox || !strings.Contains(run.Error, "there is no room") {
		t.Errorf("%+v", run)
	}
	// One that ends in the middle.
	d = newDesk(scripted.Turn{Say: fence("takes its sandbox along")}, scripted.Turn{Say: fence("c")})
	d.knows["takes its sandbox along"] = []api.Event{printed("x"), died(api.EndKernelDied)}
	if got, _ := d.do(t, api.AgentRequest{}); got.Reason != api.AgentNoSandbox {
		t.Errorf("%+v", got)
	}
}

func TestKeep(t *testing.T) {
	for keep, want := range map[string]struct {
		killed   int
		snapshot string
	}{"kill": {1, ""}, "keep": {0, ""}, "snapshot": {1, "sn-1"}} {
		d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
		run, _ := d.do(t, api.AgentRequest{Keep: keep})
		if len(d.killed) != want.killed || run.SnapshotID != want.snapshot {
			t.Errorf("%s: %v ended, snapshot %q", keep, d.killed, run.SnapshotID)
		}
	}
}

// A run that goes on counts a cell once that began behind one that was refused.
func TestARefusedCallIsNoCell(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	d.knows["c"] = []api.Event{printed("1\n"), ok()}
	dir, id := t.TempDir(), "ag-0123456789abcdef"
	tr, _, err := openTranscript(filepath.Join(dir, id), new(redactor))
	if err != nil {
		t.Fatal(err)
	}
	run := api.AgentRun{ID: id, Workspace: owner, Task: "x", Dialect: "tool", Prompt: PromptVersion, Status: api.AgentRunning, CreatedAt: time.Now()}
	for i, e := range []api.AgentEvent{
		{Type: api.AgentEventStarted, Run: &run, Request: &api.AgentRequest{Task: "x", Model: "openai:x", Keep: "kill", Limits: withDefaults(api.AgentLimits{})}},
		{Type: api.AgentEventSandbox, SandboxID: "sb-1", ContextID: id},
		{Type: api.AgentEventPrompt, Text: "p"},
		{Type: api.AgentEventMessage, Messages: []api.AgentMessage{{Role: "user", Text: "x"}}},
		{Type: api.AgentEventReply, Turn: 1, Reply: &api.AgentReply{Calls: []api.AgentCall{{ID: "a", Name: "browse", Arguments: "{}"}}, Stop: "tool"}},
		{Type: api.AgentEventFound, Turn: 1, Found: &api.AgentFound{}},
	} {
		e.Seq, e.Time = int64(i+1), time.Now()
		if _, err := tr.append(e); err != nil {
			t.Fatal(err)
		}
	}
	tr.close()
	s := d.service(t, dir)
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if got, _ := wait(t, s, id); got.Reason != api.AgentAnswered || got.Cells != 0 {
		t.Errorf("%+v", got)
	}
}

// After an interpreter died, the next one gets what the first had.
func TestANewInterpreterIsSetUp(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("dies")}, scripted.Turn{Say: fence("c")}, scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x"})
	d.knows["dies"] = []api.Event{died(api.EndKernelDied)}
	d.knows["c"] = []api.Event{ok()}
	d.do(t, api.AgentRequest{})
	if d.setUps != 2 {
		t.Errorf("contexts were set up %d times, want once for each interpreter", d.setUps)
	}
}

// Runs of other workspaces cost a list nothing: what is in their folders is not read.
func TestListsAreOfOneWorkspace(t *testing.T) {
	var said bytes.Buffer
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	dir := t.TempDir()
	s := d.service(t, dir)
	s.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	mine, _ := follow(t, s, api.AgentRequest{})
	d.model.Script = scripted.Of(scripted.Turn{Say: "FINAL ANSWER: x"})
	theirs, err := s.Start(t.Context(), "bob", api.AgentRequest{Task: "add"}, "")
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(t.Context(), "bob", theirs.ID, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	for range events { // to its end
	}
	for range 2 { // the second time with a Service that found them
		if list, err := s.List(t.Context(), "bob", 9); err != nil || len(list) != 1 || list[0].ID != theirs.ID {
			t.Errorf("bob has %+v, %v", list, err)
		}
		file := filepath.Join(dir, theirs.ID, transcriptName)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("x\nx\n"), 0o600); err != nil { // whoever reads it complains
			t.Fatal(err)
		}
		if list, err := s.List(t.Context(), owner, 9); err != nil || len(list) != 1 || list[0].ID != mine.ID || strings.Contains(said.String(), "cannot be read") {
			t.Errorf("%+v, %v; the log has %s", list, err, said.String())
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		s.Close()
		s = d.service(t, dir)
		s.cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOldTranscriptsGo(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	dir := t.TempDir()
	s := d.service(t, dir)
	run, _ := follow(t, s, api.AgentRequest{})
	s.Close()
	for _, tc := range []struct {
		days  time.Duration
		there bool
	}{{29, true}, {31, false}} {
		s = New(Config{Dir: dir, Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: d, Now: func() time.Time { return time.Now().Add(tc.days * 24 * time.Hour) }})
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), owner, run.ID); tc.there != (err == nil) {
			t.Errorf("after %d days: %v", tc.days, err)
		}
		s.Close()
	}
}

func TestRunsOfOthersAreNotThere(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	s := d.service(t, t.TempDir())
	run, _ := follow(t, s, api.AgentRequest{})
	_, err := s.Get(t.Context(), "bob", run.ID)
	_, err2 := s.Events(t.Context(), "bob", run.ID, 0, false)
	list, err3 := s.List(t.Context(), "bob", 10)
	if !errors.Is(err, fault.NotFound) || !errors.Is(err2, fault.NotFound) || err3 != nil || len(list) != 0 {
		t.Errorf("%v, %v, %v, %v", err, err2, err3, list)
	}
	for _, id := range []string{"", "..", "ag-1/../../x", "ag-0000000000000000"} {
		if _, err := s.Get(t.Context(), owner, id); !errors.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := newDesk().service(t, t.TempDir())
	for field, req := range map[string]api.AgentRequest{
		"task":                      {Task: " "},
		"dialect":                   {Task: "x", Dialect: "json"},
		"keep":                      {Task: "x", Keep: "burn"},
		"files[0].path":             {Task: "x", Files: []api.AgentFile{{Path: "../../etc/passwd"}}},
		"limits.max_turns":          {Task: "x", Limits: api.AgentLimits{MaxTurns: -1}},
		"limits.cell_seconds":       {Task: "x", Limits: api.AgentLimits{CellSeconds: 1e9}},
		"limits.observation_tokens": {Task: "x", Limits: api.AgentLimits{ObservationTokens: 10}},
		"price":                     {Task: "x", Limits: api.AgentLimits{MaxCostUSD: 1}},
	} {
		_, err := s.Start(t.Context(), owner, req, "")
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if list, err := s.List(t.Context(), owner, 10); err != nil || len(list) != 0 {
		t.Errorf("left of them: %v, %v", list, err)
	}
}

func TestOldObservationsAreShortened(t *testing.T) {
	var turns []scripted.Turn
	d := newDesk(scripted.Turn{Say: "x"})
	for i := range 8 {
		code := fmt.Sprint("c", i)
		turns = append(turns, scripted.Turn{Say: fence(code)})
		d.knows[code] = []api.Event{printed(strings.Repeat(fmt.Sprintf("line of cell %d, ", i), 400)), ok()}
	}
	d.model.Script = scripted.Of(append(turns, scripted.Turn{Say: "FINAL ANSWER: x"})...)
	run, _ := d.do(t, api.AgentRequest{Limits: api.AgentLimits{ConversationTokens: 6000}})
	if run.Reason != api.AgentAnswered {
		t.Fatalf("%+v", run)
	}
	last := d.model.Requests()[len(d.model.Requests())-1]
	n := 0
	for _, m := range last.Messages {
		n += llm.Guess(m.Text)
	}
	if n > 6500 || !strings.Contains(last.Messages[2].Text, "shortened") || strings.Contains(last.Messages[len(last.Messages)-1].Text, "shortened: this was long ago") {
		t.Errorf("%d tokens:\n%.300s\n…\n%.300s", n, last.Messages[2].Text, last.Messages[len(last.Messages)-1].Text)
	}
}

// BenchmarkTurn is what the loop itself takes of a turn: the model and the
// sandbox answer at once.
func BenchmarkTurn(b *testing.B) {
	d := newDesk(scripted.Turn{Say: "x"})
	d.knows["c"] = []api.Event{printed("1\n"), ok()}
	s := d.service(b, b.TempDir())
	for b.Loop() {
		d.model.Script = scripted.Of(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x"})
		run, err := s.Start(context.Background(), owner, api.AgentRequest{Task: "x"}, "")
		if err != nil {
			b.Fatal(err)
		}
		events, err := s.Events(context.Background(), owner, run.ID, 0, true)
		if err != nil {
			b.Fatal(err)
		}
		for range events {
		}
	}
}

// What a turn costs with a model, a sandbox and cells that take no time.
func BenchmarkTurns(b *testing.B) {
	const turns = 100
	script := make([]scripted.Turn, turns)
	d := newDesk(scripted.Turn{Say: "x"})
	for i := range turns {
		code := fmt.Sprint("print(", i, ")")
		script[i], d.knows[code] = scripted.Turn{Say: fence(code)}, []api.Event{printed(fmt.Sprintln(i)), ok()}
	}
	s := d.service(b, b.TempDir())
	for b.Loop() {
		d.model.Script = scripted.Of(append(script, scripted.Turn{Say: "FINAL ANSWER: done"})...)
		run, err := s.Start(b.Context(), owner, api.AgentRequest{Task: "print", Limits: api.AgentLimits{MaxTurns: turns + 1, MaxCells: turns}}, "")
		if err != nil {
			b.Fatal(err)
		}
		s.mu.Lock()
		l := s.live[run.ID]
		s.mu.Unlock()
		if l != nil {
			<-l.done
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/turns, "µs/turn")
}
