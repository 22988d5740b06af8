package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

const owner = "ann"

// desk is everything that the loop works with: one sandbox, whose cells do what
// their code is known for, and the scripted model. It outlives services, as
// sandboxes outlive daemons.
type desk struct {
	model *scripted.Provider
	knows map[string][]api.Event // code to its events, without started

	mu          sync.Mutex
	made        map[string]string // idempotency key to sandbox
	asked       api.CreateSandboxRequest
	killed      []string
	contexts    map[string]bool
	ran         map[string]int         // execution id to how often it ran
	past        map[string][]api.Event // execution id to its events
	codes       []string
	deadlines   map[string]int64 // code to the milliseconds that it was given
	files       map[string]string
	closed      []string
	setUps      int
	haltAt      string        // a stage that does not end before its context does
	halted      chan struct{} // a value when it was reached
	stopped     int           // cells that were interrupted
	copies      int
	packs       int // how often the files were read
	unforkable  bool
	chance      string // code that prints something else each time
	noContexts  bool   // but the first
	noSnapshots bool
	full        bool          // they are too many for checkpoints
	thinks      time.Duration // the model, for each reply, by the clock of the services
	thought     time.Duration // all that it has
}

func newDesk(turns ...scripted.Turn) *desk {
	return &desk{
		model: &scripted.Provider{Script: scripted.Of(turns...)}, knows: map[string][]api.Event{}, made: map[string]string{}, contexts: map[string]bool{},
		deadlines: map[string]int64{}, ran: map[string]int{}, past: map[string][]api.Event{}, files: map[string]string{}, halted: make(chan struct{}, 100),
	}
}

func (d *desk) service(t testing.TB, dir string) *Service {
	s := New(Config{Dir: dir, Sandboxes: d, Kernels: d, Files: d, Folders: d, Models: d, Model: "openai:scripted", Secrets: []string{"the-servers-own-key"}, Now: d.now})
	t.Cleanup(s.Close)
	return s
}

func (d *desk) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.thought)
}

func (d *desk) Open(spec, _, _ string) (llm.Provider, string, error) {
	return &llm.Retrying{Provider: halting{d}, Sleep: func(context.Context, time.Duration) error { return nil }}, strings.TrimPrefix(spec, "openai:"), nil
}

// stage halts where the test wants a run to be when something happens to it.
func (d *desk) stage(ctx context.Context, name string) error {
	d.mu.Lock()
	here := d.haltAt == name
	d.mu.Unlock()
	if !here {
		return nil
	}
	d.halted <- struct{}{}
	<-ctx.Done()
	return context.Cause(ctx)
}

// halting is the scripted model.
type halting struct{ *desk }

func (h halting) Complete(ctx context.Context, req llm.Request, tell func(llm.Delta)) (llm.Reply, error) {
	if err := h.stage(ctx, "ask"); err != nil {
		return llm.Reply{}, err
	}
	h.mu.Lock()
	h.thought += h.thinks
	h.mu.Unlock()
	return h.model.Complete(ctx, req, tell)
}

func (d *desk) Check(_ context.Context, _ string, req api.CreateSandboxRequest) error {
	if req.Network != nil && len(req.Network.Unknown) > 0 {
		return fault.InvalidField("network", "network has no %q", req.Network.Unknown)
	}
	if *req.TTLSeconds > 50_000 {
		return fault.InvalidField("ttl_seconds", "ttl_seconds must be between 1 and 50000, but is %d", *req.TTLSeconds)
	}
	return nil
}

func (d *desk) Network(context.Context, string, string) (api.NetworkInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	info := api.NetworkInfo{Policy: api.NetworkPolicy{Mode: api.NetworkDeny}}
	if d.asked.Network != nil {
		info.Policy = *d.asked.Network
	}
	for host, use := range d.asked.Secrets {
		info.Secrets = map[string]api.SecretShown{host: {Header: use.Header, Ref: use.Ref}}
	}
	return info, nil
}

func (d *desk) Create(ctx context.Context, _ string, req api.CreateSandboxRequest) (api.SandboxInfo, error) {
	if err := d.stage(ctx, "create"); err != nil {
		return api.SandboxInfo{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if req.Template == "none" {
		return api.SandboxInfo{}, fault.New(api.CodeNoCapacity, "there is no room")
	}
	if req.FromSnapshot != "" && d.noSnapshots {
		return api.SandboxInfo{}, fault.New(api.CodeNotFound, "there is no snapshot %q", req.FromSnapshot)
	}
	d.asked = req
	if d.made[req.IdempotencyKey] == "" {
		d.made[req.IdempotencyKey] = fmt.Sprintf("sb-%d", len(d.made)+1)
	}
	return api.SandboxInfo{ID: d.made[req.IdempotencyKey]}, nil
}

func (d *desk) Get(_ context.Context, _, id string) (api.SandboxInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.killed, id) {
		return api.SandboxInfo{}, fault.New(api.CodeNotFound, "there is no sandbox %q", id)
	}
	return api.SandboxInfo{ID: id}, nil
}

func (d *desk) Kill(ctx context.Context, _, id string) error {
	if _, err := d.Get(ctx, owner, id); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killed = append(d.killed, id)
	return nil
}

func (d *desk) Snapshot(context.Context, string, string, api.SnapshotRequest) (api.Snapshot, error) {
	return api.Snapshot{ID: "sn-1"}, nil
}

func (d *desk) CreateContext(ctx context.Context, _, _ string, req api.CreateContextRequest) (api.Context, error) {
	if err := d.stage(ctx, "context"); err != nil {
		return api.Context{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noContexts && len(d.contexts) > 0 {
		return api.Context{}, fault.New(api.CodeNoCapacity, "there is no room for another context")
	}
	if d.contexts[req.ID] {
		return api.Context{}, fault.New(api.CodeConflict, "there is a context %q", req.ID)
	}
	d.contexts[req.ID] = true
	return api.Context{ID: req.ID}, nil
}

func (d *desk) CloseContext(_ context.Context, _, _, cid string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = append(d.closed, cid)
	delete(d.contexts, cid)
	return nil
}

func (d *desk) ForkContext(ctx context.Context, _, _, cid string, _ int) (api.ForkContextResponse, error) {
	if err := d.stage(ctx, "copy"); err != nil {
		return api.ForkContextResponse{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unforkable {
		return api.ForkContextResponse{}, fault.New(api.CodeConflict, "it cannot be copied")
	}
	d.copies++
	id := fmt.Sprintf("copy-%d", d.copies)
	d.contexts[id] = true
	return api.ForkContextResponse{Children: []api.Context{{ID: id, ForkedFrom: cid}}}, nil
}

func (d *desk) Interrupt(context.Context, string, string, string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped++
	return nil
}

func (d *desk) Write(ctx context.Context, _, _, path string, data []byte) error {
	if err := d.stage(ctx, "files"); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[path] = string(data)
	return nil
}

// Sum, Pack and Replace are about files that the test has put into /workspace.
func (d *desk) Sum(ctx context.Context, _, _, dir string, _ int64, _ int) (string, int64, error) {
	if err := d.stage(ctx, "copy files"); err != nil {
		return "", 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return "", 0, fault.New(api.CodeTooLarge, "too many files")
	}
	sum, n := "", 0
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if strings.HasPrefix(name, dir+"/") {
			sum, n = sum+name+"="+d.files[name]+"\n", n+len(d.files[name])
		}
	}
	return "of: " + sum, int64(n), nil
}

func (d *desk) Pack(_ context.Context, _, _, dir string) (io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.packs++
	kept := map[string]string{}
	for name, content := range d.files {
		if strings.HasPrefix(name, dir+"/") {
			kept[name] = content
		}
	}
	raw, err := json.Marshal(kept)
	return io.NopCloser(bytes.NewReader(raw)), err
}

func (d *desk) Replace(ctx context.Context, _, _, dir string, r io.ReadSeeker) error {
	if err := d.stage(ctx, "set back"); err != nil {
		return err
	}
	kept := map[string]string{}
	if err := json.NewDecoder(r).Decode(&kept); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.files, func(name, _ string) bool { return strings.HasPrefix(name, dir+"/") })
	maps.Copy(d.files, kept)
	return nil
}

func (d *desk) Stream(ctx context.Context, _, sid, cid string, req api.RunRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if _, err := d.Get(ctx, owner, sid); err != nil {
			yield(api.Event{}, err)
			return
		}
		d.mu.Lock()
		d.deadlines[req.Code] = req.TimeoutMS
		d.mu.Unlock()
		stage := "cell"
		if strings.Contains(req.Code, "pandastack_agent") {
			stage = "set up"
		}
		if strings.Count(req.ExecutionID, "ag-") > 1 {
			stage = "again"
		}
		if req.Code == "takes its sandbox along" {
			if err := d.Kill(ctx, owner, sid); err != nil {
				yield(api.Event{}, err)
				return
			}
		}
		for _, e := range d.events(cid, req) {
			if e.Type == api.EventEnd {
				if err := d.stage(ctx, stage); err != nil {
					yield(api.Event{}, err)
					return
				}
			}
			if ctx.Err() != nil {
				yield(api.Event{}, context.Cause(ctx))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (d *desk) events(cid string, req api.RunRequest) []api.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	if strings.Contains(req.Code, "pandastack_agent") {
		d.setUps++
		return []api.Event{result(environmentType, `{"python":"3.12.3","cwd":"/workspace","packages":["numpy 2.3.1"],"more_packages":40,"memory_mb":1024,"cpus":1}`), ok()}
	}
	if past, known := d.past[req.ExecutionID]; known {
		return past
	}
	d.ran[req.ExecutionID]++
	d.codes = append(d.codes, cid+" "+req.Code)
	if name, content, ok := strings.Cut(req.Code, " writes "); ok {
		d.files["/workspace/"+name] = content
	}
	events, known := d.knows[req.Code]
	if !known {
		events = []api.Event{raised("NameError", "the test knows no "+req.Code)}
	}
	if req.Code == d.chance {
		events = append([]api.Event{printed(fmt.Sprint("by chance ", len(d.ran)))}, events...)
	}
	d.past[req.ExecutionID] = events
	return events
}

func ended(x api.Execution) api.Event { return api.Event{Type: api.EventEnd, Execution: &x} }
func ok() api.Event                   { return ended(api.Execution{End: api.EndOK, StateSurvived: true, DurationMS: 10}) }

func raised(name, value string) api.Event {
	trace := "Traceback (most recent call last):\n  Cell In[2], line 1\n  ----> 1 …\n" + name + ": " + value
	return ended(api.Execution{End: api.EndError, StateSurvived: true, DurationMS: 10, ErrorName: name, ErrorValue: value, Error: &trace})
}

func died(end api.End) api.Event {
	words := "words of the kernel"
	return ended(api.Execution{End: end, DurationMS: 10, Error: &words})
}

func printed(text string) api.Event { return api.Event{Type: api.EventStdout, Text: text} }
func warned(text string) api.Event  { return api.Event{Type: api.EventStderr, Text: text} }

func result(mime, value string) api.Event {
	return api.Event{Type: api.EventResult, Data: api.Bundle{mime: value}}
}

func answers(text string) api.Event {
	raw, _ := json.Marshal(map[string]string{"text": text})
	return result(answerType, string(raw))
}

// do runs a task to its end.
func (d *desk) do(t *testing.T, req api.AgentRequest) (api.AgentRun, []api.AgentEvent) {
	t.Helper()
	return follow(t, d.service(t, t.TempDir()), req)
}

func follow(t *testing.T, s *Service, req api.AgentRequest) (api.AgentRun, []api.AgentEvent) {
	t.Helper()
	if req.Task == "" && req.ReplayOf == "" && req.Fork == nil {
		req.Task = "add"
	}
	run, err := s.Start(t.Context(), owner, req, "")
	if err != nil {
		t.Fatal(err)
	}
	return wait(t, s, run.ID)
}

func wait(t *testing.T, s *Service, id string) (api.AgentRun, []api.AgentEvent) {
	t.Helper()
	events, err := s.Events(t.Context(), owner, id, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	var all []api.AgentEvent
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	run, err := s.Get(t.Context(), owner, id)
	if err != nil {
		t.Fatal(err)
	}
	return run, all
}

// restarted ends a Service when the run that it works on halts, and has another one
// go on with it: so many times, and the last one may work to the end.
func (d *desk) restarted(t *testing.T, s *Service, dir string, times int) *Service {
	t.Helper()
	for n := range times {
		<-d.halted
		s.Close()
		if n == times-1 {
			d.mu.Lock()
			d.haltAt = ""
			d.mu.Unlock()
		}
		s = d.service(t, dir)
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// linesOf gives the entries of a run as lines.
func linesOf(t *testing.T, dir, id string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, id, transcriptName))
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n")
}

// crashed makes the folder that a crash leaves after these lines of a run, with
// what was written of the next one, and gives the entries in it.
func crashed(t *testing.T, id string, lines []string, torn string) (dir string, entries []api.AgentEvent) {
	t.Helper()
	dir = t.TempDir()
	for _, l := range lines {
		var e api.AgentEvent
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, id, transcriptName), []byte(strings.Join(lines, "")+torn), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, entries
}

// told is all that the model was told, in order.
func told(events []api.AgentEvent) (out []string) {
	for _, e := range events {
		for _, m := range e.Messages {
			out = append(out, m.Text)
		}
	}
	return out
}
