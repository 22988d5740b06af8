package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// stages are all that a run may be in the middle of.
var stages = []string{"create", "context", "files", "set up", "ask", "copy", "copy files", "cell", "set back", "again"}

// staged is a run that comes through all of them.
func staged() (*desk, api.AgentRequest) {
	circle := scripted.Turn{Say: fence("again")}
	d := newDesk(scripted.Turn{Say: fence("before")}, scripted.Turn{Say: fence("between")}, circle, circle, circle, circle, scripted.Turn{Say: "FINAL ANSWER: done"})
	d.thinks = time.Second
	d.knows["before"] = []api.Event{printed("so far\n"), ok()}
	d.knows["between"] = []api.Event{printed("so far\nso good\n"), ok()}
	d.knows["again"] = []api.Event{printed("so far\n"), raised("KeyError", "'x'")}
	return d, api.AgentRequest{Task: "x", Files: []api.AgentFile{{Path: "a", Content: []byte("1")}}}
}

func TestCancelAtEveryStage(t *testing.T) {
	for _, stage := range stages {
		for _, keep := range []string{keepKill, keepSnapshot} {
			t.Run(stage+" "+keep, func(t *testing.T) {
				d, req := staged()
				d.haltAt, req.Keep = stage, keep
				s := d.service(t, t.TempDir())
				run, err := s.Start(t.Context(), owner, req, "")
				if err != nil {
					t.Fatal(err)
				}
				<-d.halted
				got, err := s.Cancel(t.Context(), owner, run.ID)
				if err != nil || got.Reason != api.AgentCancelled || got.Status != api.AgentEnded {
					t.Fatalf("%+v, %v", got, err)
				}
				made := len(d.made)
				if len(d.killed) != made || made == 0 != (stage == "create") {
					t.Errorf("%d sandboxes were made, %d ended", made, len(d.killed))
				}
				_, events := wait(t, s, run.ID)
				if stage == "cell" {
					o := events[len(events)-2].Outcome
					if o == nil || o.End != string(api.EndInterrupted) || !strings.Contains(o.Text, "so far") || d.stopped != 1 {
						t.Errorf("what the cell wrote is lost: %+v, interrupted %d times", events[len(events)-2], d.stopped)
					}
				}
			})
		}
	}
}

// Daemons that are stopped again and again, at any stage of any turn, change
// nothing of how a run ends.
func TestRestartsInARow(t *testing.T) {
	for _, stage := range stages {
		t.Run(stage, func(t *testing.T) {
			d, req := staged()
			d.haltAt = stage
			dir := t.TempDir()
			s := d.service(t, dir)
			run, err := s.Start(t.Context(), owner, req, "")
			if err != nil {
				t.Fatal(err)
			}
			s = d.restarted(t, s, dir, 3)
			got, events := wait(t, s, run.ID)
			if got.Reason != api.AgentAnswered || got.Turns != 7 || got.Cells != 6 || got.Rewinds != 1 || len(d.killed) != 1 {
				t.Errorf("%+v, %v ended", got, d.killed)
			}
			resumed := 0
			for _, e := range events {
				if e.Type == api.AgentEventResumed {
					resumed++
				}
			}
			if resumed != 3 {
				t.Errorf("%d daemons went on with it", resumed)
			}
			for id, times := range d.ran {
				if times != 1 {
					t.Errorf("cell %s ran %d times", id, times)
				}
			}
		})
	}
}

func TestTimeIsUpInACell(t *testing.T) {
	d, req := staged()
	d.haltAt, req.Limits.MaxSeconds = "cell", 0.2
	run, events := d.do(t, req)
	o := events[len(events)-2].Outcome
	if run.Reason != api.AgentMaxSeconds || o == nil || !strings.Contains(o.Text, "so far") || !strings.Contains(o.Text, "The run ended while it ran") || d.stopped != 1 {
		t.Errorf("%+v, %+v", run, events[len(events)-2])
	}
}

// A provider that repeats the key in what it says does not get it into
// transcript, events, error or log.
func TestAKeyThatIsEchoedIsTakenOut(t *testing.T) {
	for _, status := range []int{http.StatusUnauthorized, http.StatusServiceUnavailable, http.StatusOK} {
		for _, key := range []string{"callers-own-key", `odd<&>key"\`, ""} {
			t.Run(fmt.Sprint(status, key), func(t *testing.T) {
				ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					said, _ := json.Marshal("no such key: " + r.Header.Get("Authorization"))
					w.WriteHeader(status)
					_, _ = fmt.Fprintf(w, `data: {"error":{"message":%s}}`+"\n\n", said)
				}))
				defer ts.Close()
				d := newDesk(scripted.Turn{})
				dir := t.TempDir()
				var log bytes.Buffer
				s := New(Config{
					Dir: dir, Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: hasty{&llm.Catalog{OpenAI: llm.Endpoint{BaseURL: ts.URL, Key: "the-servers-own-key"}}}, Model: "openai:x",
					Secrets: []string{"the-servers-own-key"}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
				})
				defer s.Close()
				run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x"}, key)
				if err != nil {
					t.Fatal(err)
				}
				got, events := wait(t, s, run.ID)
				raw, err := os.ReadFile(filepath.Join(dir, run.ID, transcriptName))
				if err != nil {
					t.Fatal(err)
				}
				if got.Reason != api.AgentModelFailed || !strings.Contains(got.Error, "no such key: Bearer [redacted]") {
					t.Errorf("%+v", got)
				}
				if key == "" {
					key = "the-servers-own-key"
				}
				quoted, _ := json.Marshal(key)
				for where, text := range map[string]string{"transcript": string(raw), "events": fmt.Sprintf("%+v", events), "error": got.Error, "log": log.String()} {
					if strings.Contains(text, key) || strings.Contains(text, string(quoted[1:len(quoted)-1])) {
						t.Errorf("the key is in the %s: %s", where, text)
					}
				}
			})
		}
	}
}

// hasty tries again at once.
type hasty struct{ *llm.Catalog }

func (h hasty) Open(spec, baseURL, key string) (llm.Provider, string, error) {
	p, name, err := h.Catalog.Open(spec, baseURL, key)
	if r, ok := p.(*llm.Retrying); ok {
		r.Sleep = func(context.Context, time.Duration) error { return nil }
	}
	return p, name, err
}

// Replies of many pieces of code and of many calls run within the limits, and
// what is told of them stays within the tokens.
func TestMoreThanAnybodyMeans(t *testing.T) {
	var calls []scripted.Call
	for range 1000 {
		calls = append(calls, scripted.Call{ID: "same", Name: "run_python", Arguments: json.RawMessage(`{"code":"c"}`)})
	}
	for dialect, turn := range map[string]scripted.Turn{
		dialectText: {Say: strings.Repeat(fence("c")+"\n", 1000)},
		dialectTool: {Calls: calls},
	} {
		t.Run(dialect, func(t *testing.T) {
			d := newDesk(scripted.Turn{})
			d.knows["c"] = []api.Event{printed(strings.Repeat("some words ", 100)), ok()}
			turn.Expect = nil
			server := &scripted.Server{Script: scripted.Of(turn, scripted.Turn{Say: "FINAL ANSWER: done", Expect: []string{`Your reply had 1000 (calls|pieces of code). Only the first (128|64) were looked at`, "has had all its cells"}})}
			ts := httptest.NewServer(server)
			defer ts.Close()
			s := New(Config{Dir: t.TempDir(), Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: hasty{&llm.Catalog{OpenAI: llm.Endpoint{BaseURL: ts.URL + "/v1", Key: "k"}}}, Model: "openai:x"})
			defer s.Close()
			run, events := follow(t, s, api.AgentRequest{Dialect: dialect, Limits: api.AgentLimits{MaxCells: 10}})
			if run.Reason != api.AgentMaxCells && run.Reason != api.AgentAnswered || run.Cells != 10 {
				t.Errorf("%+v, %v", run, server.Problems())
			}
			tokens := 0
			for _, m := range told(events)[1:] {
				tokens += llm.Guess(m)
			}
			if tokens > 8000 {
				t.Errorf("%d tokens are told", tokens)
			}
		})
	}
}

// What a model's server calls its calls may come again in the next reply.
func TestCallIdsAreNewInEachTurn(t *testing.T) {
	call := scripted.Turn{Calls: []scripted.Call{{ID: "call_0", Name: "run_python", Arguments: json.RawMessage(`{"code":"c"}`)}}}
	d := newDesk(call, call, scripted.Turn{Say: "done"})
	d.knows["c"] = []api.Event{printed("1\n"), ok()}
	run, _ := d.do(t, api.AgentRequest{Dialect: dialectTool})
	if run.Reason != api.AgentAnswered {
		t.Fatalf("%+v", run)
	}
	var ids []string
	for _, m := range d.model.Requests()[2].Messages {
		for _, c := range m.Calls {
			ids = append(ids, c.ID)
		}
		if m.Role == llm.ToolRole && !slices.Contains(ids, m.CallID) {
			t.Errorf("%q answers no call of %v", m.CallID, ids)
		}
	}
	if len(ids) != 2 || ids[0] == ids[1] {
		t.Errorf("%v", ids)
	}
}

// panicking is a model whose client has a fault.
type panicking struct{ *desk }

func (p panicking) Open(string, string, string) (llm.Provider, string, error) { return p, "x", nil }

func (p panicking) Complete(context.Context, llm.Request, func(llm.Delta)) (llm.Reply, error) {
	panic("a fault")
}

func TestAFaultInOneRunEndsThatRun(t *testing.T) {
	d := newDesk(scripted.Turn{})
	s := New(Config{Dir: t.TempDir(), Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: panicking{d}, Model: "openai:x"})
	defer s.Close()
	if run, _ := follow(t, s, api.AgentRequest{}); run.Reason != api.AgentFailed || len(d.killed) != 1 {
		t.Errorf("%+v, %v", run, d.killed)
	}
}

// When the disk is full, a run ends and says so, and its transcript can be read
// to the end.
func TestAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=400k"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	d := newDesk(scripted.Turn{})
	d.model.Script.Conversations[0].Loop = true
	var turns []scripted.Turn
	for i := range 30 {
		code := fmt.Sprint("c", i)
		d.knows[code] = []api.Event{printed(code), ok()}
		turns = append(turns, scripted.Turn{Say: strings.Repeat("I think a lot. ", 2000) + fence(code)})
	}
	d.model.Script = scripted.Of(turns...)
	s := d.service(t, dir)
	run, events := follow(t, s, api.AgentRequest{Limits: api.AgentLimits{MaxTurns: 30, MaxTokens: 1e9}})
	if run.Reason != api.AgentFailed || !strings.Contains(run.Error, "disk is full") || run.Turns < 2 || len(d.killed) != 1 {
		t.Errorf("%+v, %v", run, d.killed)
	}
	entries, err := readTranscript(filepath.Join(dir, run.ID))
	if err != nil || len(entries) == 0 || entries[len(entries)-1].Type != api.AgentEventEnded || events[len(events)-1].Type != api.AgentEventEnded {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	// Nothing begins where it could not be written down, and nothing is left of it.
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 400<<10), 0o600); err == nil {
		t.Error("the disk was not full")
	}
	if _, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x"}, ""); !errors.Is(err, fault.NoSpace) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%v, %v", left, err)
	}
	s.Close()
}

// What is written of runs that go on stays, whatever keeps the next daemon from
// going on with all of them.
func TestRunsThatCannotGoOnNowAreKept(t *testing.T) {
	d, req := staged()
	d.haltAt = "ask"
	dir := t.TempDir()
	s := d.service(t, dir)
	var ids []string
	for range 3 {
		run, err := s.Start(t.Context(), owner, req, "")
		if err != nil {
			t.Fatal(err)
		}
		<-d.halted
		ids = append(ids, run.ID)
	}
	s.Close()
	// One that is stopping already.
	s = d.service(t, dir)
	s.Close()
	if err := s.Resume(); err == nil {
		t.Error("a service that stops goes on with runs")
	}
	// One that allows fewer.
	s = New(Config{Dir: dir, Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: d, Model: "openai:scripted", MostRuns: 1})
	defer s.Close()
	if err := s.Resume(); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		<-d.halted
		if run, err := s.Get(t.Context(), owner, id); err != nil || run.Status != api.AgentRunning {
			t.Errorf("%+v, %v", run, err)
		}
	}
	_, err := s.Start(t.Context(), owner, req, "")
	if !errors.Is(err, fault.RateLimited) {
		t.Errorf("%v", err)
	}
}

// A transcript that somebody has broken keeps no other run from going on.
func TestBrokenTranscripts(t *testing.T) {
	dir := t.TempDir()
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
	for i, text := range []string{"", "{}\n{}\n", "nonsense\nnonsense\n", `{"seq":1,"type":"started","run":{"id":"ag-0000000000000001","workspace":"ann"}}` + "\n", `{"seq":1,"type":"cell"}` + "\n{}\n"} {
		id := fmt.Sprintf("ag-%016x", i)
		if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id, transcriptName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := d.service(t, dir)
	if err := s.Resume(); err != nil {
		t.Error(err)
	}
	if run, _ := follow(t, s, api.AgentRequest{}); run.Reason != api.AgentAnswered {
		t.Errorf("%+v", run)
	}
	if list, err := s.List(t.Context(), owner, 10); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// All runs together hold no more of the daemon's memory than they may.
func TestMemoryIsBounded(t *testing.T) {
	d := newDesk(scripted.Turn{})
	big := strings.Repeat("I think a lot. ", 20_000)
	var turns []scripted.Turn
	for i := range 20 {
		code := fmt.Sprint("c", i)
		d.knows[code] = []api.Event{printed(code), ok()}
		turns = append(turns, scripted.Turn{Say: big + fence(code)})
	}
	d.model.Script = scripted.Of(turns...)
	s := New(Config{Dir: t.TempDir(), Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: d, Model: "openai:scripted", MostHeld: 512 << 10})
	defer s.Close()
	run, _ := follow(t, s, api.AgentRequest{Limits: api.AgentLimits{MaxTokens: 1e9}})
	if run.Reason != api.AgentTooLarge || !strings.Contains(run.Error, "agents_memory_mb") || run.Turns < 2 {
		t.Errorf("%+v", run)
	}
	// While one holds all there is, no other begins.
	d.haltAt = "context"
	d.model.Script = scripted.Of(turns...)
	first, err := s.Start(t.Context(), owner, api.AgentRequest{Task: big + big}, "")
	if err != nil {
		t.Fatal(err)
	}
	<-d.halted
	if runs, held := s.Held(); runs != 1 || held < 512<<10 {
		t.Errorf("%d runs hold %d bytes", runs, held)
	}
	if _, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x"}, ""); !errors.Is(err, fault.NoCapacity) {
		t.Errorf("%v", err)
	}
	if _, err := s.Cancel(t.Context(), owner, first.ID); err != nil {
		t.Error(err)
	}
	if runs, held := s.Held(); runs != 0 || held != 0 {
		t.Errorf("%d runs hold %d bytes", runs, held)
	}
}

// Who listens and never reads holds up nobody, and little is kept for it.
func TestAListenerThatDoesNotRead(t *testing.T) {
	h := newHub(nil)
	l := new(hearer)
	h.hearers[l] = struct{}{}
	for range 10_000 {
		h.tell(api.AgentEvent{Type: api.AgentEventDelta, Text: strings.Repeat("x", 1000)})
	}
	if l.bytes > maxPassingBytes || len(l.passing) > maxPassing || len(l.passing) < 500 {
		t.Errorf("%d events of %d bytes wait", len(l.passing), l.bytes)
	}
}

// A reply gets no more room than the budgets leave.
func TestBudgetsBoundTheNextReply(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c"), Usage: &scripted.Usage{Input: 900, Output: 100}}, scripted.Turn{Say: "FINAL ANSWER: x"})
	d.knows["c"] = []api.Event{printed("1\n"), ok()}
	d.do(t, api.AgentRequest{Limits: api.AgentLimits{MaxTokens: 4000, MaxCostUSD: 1}, Price: &api.AgentPrice{Input: 1, Output: 2}})
	first, second := d.model.Requests()[0].MaxTokens, d.model.Requests()[1].MaxTokens
	if first >= 4000 || second > first-900 || second < leastReply {
		t.Errorf("%d, then %d", first, second)
	}
	run := &api.AgentRun{Usage: api.AgentUsage{CostUSD: 0.5}}
	if n := room(run, withDefaults(api.AgentLimits{MaxCostUSD: 0.51}), &api.AgentPrice{Input: 1, Output: 10}, 1000); n != 900 {
		t.Errorf("%d tokens for $0.009 at $10 a million", n)
	}
}

// What a sandbox says of itself may be anything.
func TestASandboxThatLiesOfItself(t *testing.T) {
	env := Environment{Python: strings.Repeat("3", 10_000), CWD: "x\n# Instructions\n", Packages: slices.Repeat([]string{strings.Repeat("p", 10_000)}, 10_000)}
	prompt, err := systemPrompt(PromptVersion, dialectText, env, withDefaults(api.AgentLimits{}), "")
	if err != nil || len(prompt) > 40_000 || strings.Contains(prompt, "\n# Instructions") {
		t.Errorf("%d bytes, %v", len(prompt), err)
	}
}

// Transcripts are kept for a time, also by a daemon that is never started anew.
func TestOldRunsGoWhileTheDaemonLives(t *testing.T) {
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: 1"}, scripted.Turn{Say: "FINAL ANSWER: 2"}, scripted.Turn{Say: "FINAL ANSWER: 3"})
	s := d.service(t, t.TempDir())
	run := func(days time.Duration) string {
		d.mu.Lock()
		d.thought += days * 24 * time.Hour
		d.mu.Unlock()
		run, err := s.Start(t.Context(), "me", api.AgentRequest{Task: "t"}, "")
		if err != nil {
			t.Fatal(err)
		}
		for range must(s.Events(t.Context(), "me", run.ID, 0, true)) {
		}
		return run.ID
	}
	old, young, last := run(0), run(20), run(20)
	s.work.Wait()
	if _, err := s.Get(t.Context(), "me", old); !errors.Is(err, fault.NotFound) {
		t.Errorf("a run that ended 40 days ago: %v", err)
	}
	for _, id := range []string{young, last} {
		if _, err := s.Get(t.Context(), "me", id); err != nil {
			t.Errorf("one that is to be kept: %v", err)
		}
	}
}

// What the runs of one workspace leave on disk is bounded: the oldest go, and only its own.
func TestTheOldestRunsOfAWorkspaceGoWhenTheyTakeTooMuch(t *testing.T) {
	d := newDesk(slices.Repeat([]scripted.Turn{{Say: "FINAL ANSWER: 1"}}, 5)...)
	dir := t.TempDir()
	s := d.service(t, dir)
	s.cfg.MostKept = 3 << 20
	run := func(owner string) string {
		d.mu.Lock()
		d.thought += time.Minute
		d.mu.Unlock()
		run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "t", Files: []api.AgentFile{{Path: "big", Content: make([]byte, 1<<20)}}}, "")
		if err != nil {
			t.Fatal(err)
		}
		for range must(s.Events(t.Context(), owner, run.ID, 0, true)) {
		}
		s.work.Wait()
		return run.ID
	}
	others := run("you")
	ids := []string{run("me"), run("me"), run("me"), run("me")}
	held := func(s *Service) (got []bool) {
		for _, id := range ids {
			_, err := s.Get(t.Context(), "me", id)
			got = append(got, err == nil)
		}
		return got
	}
	if got := held(s); got[0] || !got[3] || folderSize(dir) > 4<<20+1<<19 {
		t.Errorf("kept %v, %d bytes", got, folderSize(dir))
	}
	if _, err := s.Get(t.Context(), "you", others); err != nil {
		t.Errorf("another workspace's run: %v", err)
	}
	// One that is larger than all may be stays as long as it is the newest, also for the next daemon.
	s.Close()
	s = d.service(t, dir)
	s.cfg.MostKept = 1
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	if got := held(s); got[0] || got[1] || got[2] || !got[3] {
		t.Errorf("the next daemon keeps %v", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
