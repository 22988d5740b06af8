// Package agent is the CodeAct loop: a model is asked, the Python in its reply
// is run in a sandbox, what happened is told to it, and so on until it answers
// or a limit is reached. The HTTP API calls it, and package daemon gives it what
// it works with.
//
// Each run has a transcript, which is written as things happen; a run is a fold
// over it, so the next daemon goes on where a crash cut it. The package knows no
// driver, no HTTP, and no provider by name.
package agent

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm"
)

// Sandboxes makes and ends sandboxes. It is sandbox.Manager.
type Sandboxes interface {
	Check(ctx context.Context, owner string, req api.CreateSandboxRequest) error
	Create(ctx context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error)
	Get(ctx context.Context, owner, id string) (api.SandboxInfo, error)
	Network(ctx context.Context, owner, id string) (api.NetworkInfo, error)
	Kill(ctx context.Context, owner, id string) error
	Snapshot(ctx context.Context, owner, id string, req api.SnapshotRequest) (api.Snapshot, error)
}

// Kernels runs cells. It is kernel.Service.
type Kernels interface {
	CreateContext(ctx context.Context, owner, sid string, req api.CreateContextRequest) (api.Context, error)
	CloseContext(ctx context.Context, owner, sid, cid string) error
	ForkContext(ctx context.Context, owner, sid, cid string, count int) (api.ForkContextResponse, error)
	Interrupt(ctx context.Context, owner, sid, cid string) error
	Stream(ctx context.Context, owner, sid, cid string, req api.RunRequest) iter.Seq2[api.Event, error]
}

// Files writes files into sandboxes.
type Files interface {
	Write(ctx context.Context, owner, sid, path string, data []byte) error
}

// Models finds a model by its name PROVIDER:NAME, elsewhere with a base URL, and
// with a key of the caller's.
type Models interface {
	Open(spec, baseURL, key string) (llm.Provider, string, error)
}

// Config is what a Service works with. Zero values mean the defaults beside
// them.
type Config struct {
	Dir       string // of transcripts, a folder a run
	Sandboxes Sandboxes
	Kernels   Kernels
	Files     Files
	Folders   Folders
	Models    Models
	Tools     Tools  // nil: cells call nothing outside
	Model     string // when a request names none
	Secrets   []string
	Logger    *slog.Logger
	Now       func() time.Time
	MostRuns  int           // of a workspace at once; default 32
	MostHeld  int64         // bytes of memory that all runs together may hold; default 512 MB
	KeepFor   time.Duration // transcripts of runs that ended; default 30 days
	MostKept  int64         // bytes of disk that the runs of a workspace that ended may take; default 4 GiB
}

const (
	maxTask   = 1 << 20
	maxFiles  = 64
	filesName = "files.json"

	keepKill     = "kill"
	keepKeep     = "keep"
	keepSnapshot = "snapshot"
)

// Service runs agents.
type Service struct {
	cfg    Config
	redact *redactor

	mu     sync.Mutex
	live   map[string]*live
	work   sync.WaitGroup
	ctx    context.Context
	stop   context.CancelCauseFunc
	ended  bool
	former map[string]formerRun // runs that have ended and are kept
	owners map[string]string    // workspaces of runs, as far as their folders were looked into
}

// live is a run that is worked on.
type live struct {
	owner   string
	follows string   // the run that it goes on from
	needs   []string // runs that it reads: that one, and what it replays or forks
	hub     *hub
	cancel  context.CancelCauseFunc
	done    chan struct{}
	held    atomic.Int64 // bytes of memory, about
}

// Held tells how many runs are worked on, and how many bytes of memory they hold,
// about.
func (s *Service) Held() (runs int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.live {
		bytes += l.held.Load()
	}
	return len(s.live), bytes
}

// New makes a Service. Resume goes on with what an earlier one left.
func New(cfg Config) *Service {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.MostRuns == 0 {
		cfg.MostRuns = 32
	}
	if cfg.MostHeld == 0 {
		cfg.MostHeld = 512 << 20
	}
	if cfg.KeepFor == 0 {
		cfg.KeepFor = 30 * 24 * time.Hour
	}
	if cfg.MostKept == 0 {
		cfg.MostKept = 4 << 30
	}
	s := &Service{cfg: cfg, live: map[string]*live{}, former: map[string]formerRun{}, owners: map[string]string{}, redact: new(redactor).with(cfg.Secrets...)}
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	return s
}

// Close stops the work. Runs that have not ended go on with the next Service.
func (s *Service) Close() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.stop(errStopping)
	s.work.Wait()
}

// Start begins a run. key is the caller's key for the model's provider, "" for
// the server's own; it is kept in memory alone.
func (s *Service) Start(ctx context.Context, owner string, req api.AgentRequest, key string) (api.AgentRun, error) {
	if req.ReplayOf != "" {
		if err := s.replaying(owner, &req); err != nil {
			return api.AgentRun{}, err
		}
	}
	if req.Fork != nil {
		if err := s.forking(owner, &req); err != nil {
			return api.AgentRun{}, err
		}
	}
	if req.Follows != "" {
		if err := s.following(owner, &req); err != nil {
			return api.AgentRun{}, err
		}
	}
	if req.Model == "" {
		req.Model = s.cfg.Model
	}
	if err := s.check(ctx, owner, &req, key); err != nil {
		return api.AgentRun{}, err
	}
	run := api.AgentRun{
		ID: newID(), Workspace: owner, Task: req.Task, Model: req.Model, Dialect: req.Dialect, Prompt: PromptVersion, Status: api.AgentRunning,
		Metadata: req.Metadata, OwnKey: key != "", ReplayOf: req.ReplayOf, Follows: req.Follows, CreatedAt: s.cfg.Now().UTC(),
	}
	if req.Tools != nil {
		for _, f := range req.Tools.Functions {
			run.Functions = append(run.Functions, f.Name)
		}
	} else if req.Follows != "" { // in whose sandbox they are
		before, err := s.Get(ctx, owner, req.Follows)
		if err != nil {
			return run, err
		}
		run.Functions = before.Functions
	}
	if req.Fork != nil {
		run.ForkOf, run.ForkAt = req.Fork.Of, req.Fork.At
		if req.Fork.Task != "" {
			run.Task = req.Fork.Task
		}
	}
	secrets := req.Secrets
	req.Secrets = withoutValues(secrets)
	redact := s.redact.with(key).with(valuesOf(secrets)...)
	t, _, err := openTranscript(s.dir(run.ID), redact)
	if err != nil {
		return run, errors.Join(err, os.RemoveAll(s.dir(run.ID)))
	}
	undo := func(err error) error { return errors.Join(err, t.close(), os.RemoveAll(t.dir)) }
	if err := s.keepFiles(run.ID, req.Files); err != nil {
		return run, undo(err)
	}
	for i, f := range req.Files {
		req.Files[i] = api.AgentFile{Path: f.Path}
	}
	r := &runner{s: s, log: s.cfg.Logger.With("agent", run.ID), hub: newHub(nil), t: t, key: key, secrets: secrets}
	if err := r.put(api.AgentEvent{Type: api.AgentEventStarted, Run: &run, Request: &req}); err != nil {
		return run, undo(err)
	}
	if err := s.begin(r, false); err != nil {
		return run, undo(err)
	}
	return run, nil
}

// check refuses a request that cannot work, and fills in what it leaves open.
func (s *Service) check(ctx context.Context, owner string, req *api.AgentRequest, key string) error {
	switch {
	case strings.TrimSpace(req.Task) == "":
		return fault.InvalidField("task", "task must say what is to be done")
	case len(req.Task) > maxTask:
		return fault.InvalidField("task", "task has %d bytes; at most %d are taken", len(req.Task), maxTask).WithHint("give large inputs as files")
	case req.Fork != nil && len(req.Fork.Task) > maxTask:
		return fault.InvalidField("fork.task", "fork.task has %d bytes; at most %d are taken", len(req.Fork.Task), maxTask)
	case len(req.Files) > maxFiles:
		return fault.InvalidField("files", "there are %d files; at most %d are taken", len(req.Files), maxFiles).WithHint("write them into a sandbox and name it in sandbox_id")
	case req.SandboxID != "" && req.Keep != "" && req.Keep != keepKeep:
		return fault.InvalidField("keep", "a sandbox that was there before is kept").WithHint("leave keep out")
	}
	if req.Dialect == "" {
		req.Dialect = dialectText
	}
	if req.Dialect != dialectText && req.Dialect != dialectTool {
		return fault.InvalidField("dialect", "dialect must be text or tool, not %.40q", req.Dialect)
	}
	if req.Keep == "" {
		req.Keep = keepKill
	}
	if !slices.Contains([]string{keepKill, keepKeep, keepSnapshot}, req.Keep) {
		return fault.InvalidField("keep", "keep must be kill, keep or snapshot, not %.40q", req.Keep)
	}
	if req.SandboxID == "" && req.FromSnapshot == "" && req.Template == "" {
		req.Template = "code-interpreter"
	}
	for i, f := range req.Files {
		field := fmt.Sprintf("files[%d].path", i)
		if f.Path == "" || strings.ContainsRune(f.Path, 0) || strings.HasSuffix(f.Path, "/") {
			return fault.InvalidField(field, "%s must be the path of a file", field)
		}
		if !path.IsAbs(f.Path) && !filepath.IsLocal(f.Path) {
			return fault.InvalidField(field, "%s leads out of /workspace", field).WithHint("give an absolute path")
		}
	}
	if err := checkData(req.Data); err != nil {
		return err
	}
	if req.Tools != nil {
		if s.cfg.Tools == nil {
			return fault.InvalidField("tools", "this server has no tools")
		}
		if _, err := s.cfg.Tools.Plan(ctx, owner, req.Tools); err != nil {
			return err
		}
	}
	if err := checkLimits(req.Limits, req.Price); err != nil {
		return err
	}
	req.Limits = withDefaults(req.Limits)
	if req.Model == "" {
		return fault.InvalidField("model", "no model is named, and the server has none of its own").WithHint("give model as PROVIDER:NAME, or set agent_model on the server")
	}
	if req.ReplayOf == "" {
		if _, _, err := s.cfg.Models.Open(req.Model, req.BaseURL, key); err != nil {
			return err
		}
	}
	if req.SandboxID == "" {
		return s.checkNew(ctx, owner, req)
	}
	if field := ofNew(req); field != "" {
		return fault.InvalidField(field, "%s is for a new sandbox, and sandbox_id names one that is there", field).WithHint("leave one of them out")
	}
	_, err := s.cfg.Sandboxes.Get(ctx, owner, req.SandboxID)
	return err
}

// begin works on a run in the background, unless there are too many. One that
// goes on has its place.
func (s *Service) begin(r *runner, goesOn bool) error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	run := r.state.run
	l := &live{owner: run.Workspace, follows: run.Follows, needs: []string{run.Follows, run.ReplayOf, run.ForkOf}, hub: r.hub, cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, held := 0, int64(0)
	for _, other := range s.live {
		held += other.held.Load()
		if other.owner == l.owner {
			n++
		}
	}
	err := s.followed(l.follows) // also by one that was begun at the same moment
	switch {
	case s.ended:
		err = fault.New(api.CodeNoCapacity, "the server is stopping")
	case goesOn:
		err = nil
	case err != nil:
	case held >= s.cfg.MostHeld:
		err = fault.New(api.CodeNoCapacity, "the agents that run hold %d MB of the server's memory, and may hold %d", held>>20, s.cfg.MostHeld>>20).
			WithHint("wait for one to end, cancel one, or raise agents_memory_mb").After(10 * time.Second)
	case n >= s.cfg.MostRuns:
		err = fault.New(api.CodeRateLimited, "%d agents of this workspace run already, which is the most", n).WithHint("wait for one to end, or cancel one").After(10 * time.Second)
	}
	if err != nil {
		cancel(nil)
		return err
	}
	r.live = l
	r.weigh()
	s.live[r.state.run.ID], s.owners[r.state.run.ID] = l, l.owner
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		defer close(l.done)
		defer cancel(nil)
		if err := r.survive(ctx); err != nil && !errors.Is(err, errStopping) {
			r.log.Error("an agent's run cannot be written down", "error", err)
		}
		if err := r.t.close(); err != nil {
			r.log.Warn("closing a transcript", "error", err)
		}
		s.mu.Lock()
		delete(s.live, r.state.run.ID)
		s.mu.Unlock()
		r.hub.end()
		if run := r.state.run; run.EndedAt != nil {
			s.keep(run)
		}
	}()
	return nil
}

// Resume goes on with the runs that an earlier Service did not end, and removes
// those that are kept no longer.
func (s *Service) Resume() error {
	ids, err := s.ids()
	for _, id := range ids {
		entries, rerr := readTranscript(s.dir(id))
		if rerr != nil || len(entries) == 0 || entries[0].Run == nil || entries[0].Request == nil {
			s.cfg.Logger.Warn("a transcript cannot be read", "agent", id, "error", rerr)
			continue
		}
		if last := entries[len(entries)-1]; last.Type == api.AgentEventEnded {
			p := formerRun{id, entries[0].Run.Workspace, entries[0].Run.Follows, last.Time, folderSize(s.dir(id))}
			s.mu.Lock()
			s.former[id], s.owners[id] = p, p.owner
			s.mu.Unlock()
			continue
		}
		err = errors.Join(err, s.resume(id))
	}
	return errors.Join(err, s.forgetOld())
}

func (s *Service) resume(id string) error {
	t, entries, err := openTranscript(s.dir(id), s.redact)
	if err != nil {
		return err
	}
	r := &runner{s: s, log: s.cfg.Logger.With("agent", id), hub: newHub(entries), t: t}
	for _, e := range entries {
		r.state.fold(e)
	}
	if err := r.put(api.AgentEvent{Type: api.AgentEventResumed, Note: "another daemon goes on with this run"}); err != nil {
		t.close()
		return err
	}
	if err := s.begin(r, true); err != nil {
		return errors.Join(err, t.close())
	}
	return nil
}

// Get describes a run.
func (s *Service) Get(_ context.Context, owner, id string) (api.AgentRun, error) {
	if !validID.MatchString(id) {
		return api.AgentRun{}, errNoRun(id)
	}
	s.mu.Lock()
	l := s.live[id]
	s.mu.Unlock()
	if l == nil {
		if last, err := lastEntry(s.dir(id)); err == nil && last.Type == api.AgentEventEnded && last.Run != nil {
			if last.Run.Workspace != owner {
				return api.AgentRun{}, errNoRun(id)
			}
			return *last.Run, nil // without reading all of it
		}
	}
	entries, err := s.entries(owner, id)
	if err != nil {
		return api.AgentRun{}, err
	}
	return describe(entries), nil
}

func describe(entries []api.AgentEvent) api.AgentRun {
	var st state
	for _, e := range entries {
		st.fold(e)
	}
	return st.run
}

// entries gives the transcript of an owner's run.
func (s *Service) entries(owner, id string) ([]api.AgentEvent, error) {
	if !validID.MatchString(id) {
		return nil, errNoRun(id)
	}
	s.mu.Lock()
	l := s.live[id]
	s.mu.Unlock()
	var entries []api.AgentEvent
	if l != nil {
		entries = l.hub.all()
	} else {
		var err error
		entries, err = readTranscript(s.dir(id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading the transcript of %s: %w", id, err)
		}
	}
	if len(entries) == 0 || entries[0].Run == nil || entries[0].Run.Workspace != owner {
		return nil, errNoRun(id)
	}
	return entries, nil
}

func errNoRun(id string) error {
	return fault.New(api.CodeNotFound, "there is no agent's run %.60q", id).WithHint("pandastack agent ls lists them")
}

// List describes an owner's runs, the newest first. Folders of runs that are
// known to be others' are not looked into.
func (s *Service) List(ctx context.Context, owner string, limit int) ([]api.AgentRun, error) {
	ids, err := s.ids()
	s.mu.Lock()
	ids = slices.DeleteFunc(ids, func(id string) bool {
		whose, known := s.owners[id]
		return known && whose != owner
	})
	s.mu.Unlock()
	out := []api.AgentRun{}
	for _, id := range ids {
		run, err := s.Get(ctx, owner, id)
		if errors.Is(err, fault.NotFound) {
			continue
		}
		if err != nil { // of one that is broken; the others are there
			s.cfg.Logger.Warn("a transcript cannot be read", "agent", id, "error", err)
			continue
		}
		out = append(out, run)
	}
	slices.SortFunc(out, func(a, b api.AgentRun) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return out[:min(len(out), limit)], err
}

func (s *Service) ids() ([]string, error) {
	dirs, err := os.ReadDir(s.cfg.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the folder of agents' runs: %w", err)
	}
	var out []string
	for _, d := range dirs {
		if validID.MatchString(d.Name()) {
			out = append(out, d.Name())
		}
	}
	return out, nil
}

// Events gives the entries of a run with numbers above after. With follow it
// goes on with what happens until the run ends.
func (s *Service) Events(ctx context.Context, owner, id string, after int64, follow bool) (iter.Seq2[api.AgentEvent, error], error) {
	entries, err := s.entries(owner, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	l := s.live[id]
	s.mu.Unlock()
	if follow && l != nil {
		return func(yield func(api.AgentEvent, error) bool) {
			l.hub.follow(ctx, after, func(e api.AgentEvent, err error) bool { return yield(shown(e), err) })
		}, nil
	}
	return func(yield func(api.AgentEvent, error) bool) {
		if l == nil { // it may have ended just now
			if again, err := s.entries(owner, id); err == nil {
				entries = again
			}
		}
		for _, e := range entries {
			if e.Seq > after && !yield(shown(e), nil) {
				return
			}
		}
	}, nil
}

// shown is an entry as it leaves the server. A run is gone on with, and done again,
// with what the entry has.
func shown(e api.AgentEvent) api.AgentEvent {
	if e.Request == nil {
		return e
	}
	req := *e.Request
	req.BaseURL, req.Tools = api.ShownURL(req.BaseURL), req.Tools.Shown()
	e.Request = &req
	return e
}

// Cancel ends a run, and returns when it has ended. One that has is left alone.
func (s *Service) Cancel(ctx context.Context, owner, id string) (api.AgentRun, error) {
	if _, err := s.entries(owner, id); err != nil {
		return api.AgentRun{}, err
	}
	s.mu.Lock()
	l := s.live[id]
	s.mu.Unlock()
	if l != nil {
		l.cancel(errCancelled)
		select {
		case <-l.done:
		case <-ctx.Done():
			return api.AgentRun{}, context.Cause(ctx)
		}
	}
	return s.Get(ctx, owner, id)
}

// Delete removes a run that has ended, with all that is known of it.
func (s *Service) Delete(_ context.Context, owner, id string) error {
	entries, err := s.entries(owner, id)
	if err != nil {
		return err
	}
	if entries[len(entries)-1].Type != api.AgentEventEnded {
		return fault.New(api.CodeConflict, "the run %s has not ended", id).WithHint("cancel it first")
	}
	s.mu.Lock()
	needing := s.needing(id)
	if needing == "" {
		delete(s.former, id)
		delete(s.owners, id)
	}
	s.mu.Unlock()
	if needing != "" {
		return fault.New(api.CodeConflict, "the run %s needs what is known of %s", needing, id).WithHint("delete that first")
	}
	return os.RemoveAll(s.dir(id))
}

// Figure gives a picture that a cell of a run drew.
func (s *Service) Figure(_ context.Context, owner, id, name string) (mime string, data []byte, err error) {
	if _, err := s.entries(owner, id); err != nil {
		return "", nil, err
	}
	if figureName.MatchString(name) {
		data, err = readFigure(s.dir(id), name)
	}
	if data == nil {
		return "", nil, fault.New(api.CodeNotFound, "the run %s has no figure %.60q", id, name)
	}
	mime = "image/png"
	if strings.HasSuffix(name, ".jpeg") {
		mime = "image/jpeg"
	}
	return mime, data, err
}

var (
	validID    = regexp.MustCompile(`^ag-[0-9a-f]{16}$`)
	figureName = regexp.MustCompile(`^\d+-\d+-\d+\.(png|jpeg)$`)
)

func newID() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return "ag-" + hex.EncodeToString(b)
}

func (s *Service) dir(id string) string { return filepath.Join(s.cfg.Dir, id) }

// keepFiles keeps what is to be written into a sandbox that is not there yet.
func (s *Service) keepFiles(id string, files []api.AgentFile) error {
	if len(files) == 0 {
		return nil
	}
	stored := map[string]string{}
	for _, f := range files {
		stored[f.Path] = base64.StdEncoding.EncodeToString(f.Content)
	}
	raw, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir(id), filesName), raw, 0o600); err != nil {
		return full(err, "keeping the files of a run")
	}
	return nil
}

// files gives them back, in the order of the request.
func (s *Service) files(id string, named []api.AgentFile) ([]api.AgentFile, error) {
	if len(named) == 0 {
		return nil, nil
	}
	raw, err := os.ReadFile(filepath.Join(s.dir(id), filesName))
	stored := map[string]string{}
	if err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	out := slices.Clone(named)
	for i, f := range out {
		if err == nil {
			out[i].Content, err = base64.StdEncoding.DecodeString(stored[f.Path])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the files of %s: %w", id, err)
	}
	return out, nil
}
