package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

const testKey = "pds_00112233445566778899aabbccddeeff"

// stub is everything behind the API. It writes down what it was asked, so that
// a scenario can say what must have happened and that nothing else did.
type stub struct {
	mu    sync.Mutex
	calls []string

	events []api.Event // what every stream gives
	fail   error       // and how it ends then
	exec   api.ExecResult
	block  bool // calls wait for the end of their context
}

func (s *stub) call(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *stub) wait(ctx context.Context) error {
	if s.block {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.fail
}

var info = api.SandboxInfo{ID: "sb-1", Template: "base", Status: api.StatusRunning, CreatedAt: time.Unix(1700000000, 0).UTC()}

func (s *stub) known(id string) error {
	switch id {
	case "sb-1":
		return nil
	case "panics":
		panic("a bug")
	case "breaks":
		return fmt.Errorf("reading /var/lib/secret: no such file")
	}
	return fault.New(api.CodeNotFound, "there is no sandbox %q", id).WithHint("the nearest is sb-1")
}

func (s *stub) Create(_ context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error) {
	ttl := -1
	if req.TTLSeconds != nil {
		ttl = *req.TTLSeconds
	}
	if req.IdempotencyKey != "" {
		owner += " once=" + req.IdempotencyKey
	}
	s.call("create %s template=%s ttl=%d", owner, req.Template, ttl)
	if req.Template == "full" {
		return api.SandboxInfo{}, fault.New(api.CodeNoCapacity, "no room")
	}
	return info, nil
}

func (s *stub) Tools(_ context.Context, _, id string) (api.ToolList, error) {
	return api.ToolList{Tools: []api.ToolInfo{{Name: "crm.find", Source: "http"}}}, s.known(id)
}

func (s *stub) SetTools(_ context.Context, _, id string, t api.Tools) (api.ToolList, error) {
	s.call("tools of %s: %d functions", id, len(t.Functions))
	return api.ToolList{Tools: []api.ToolInfo{}, Policy: t.Policy}, s.known(id)
}

func (s *stub) Get(_ context.Context, _, id string) (api.SandboxInfo, error) {
	return info, s.known(id)
}

func (s *stub) Page(_ context.Context, owner string, f sandbox.ListFilter) ([]api.SandboxInfo, string, error) {
	s.call("list %s %v %s %s %d %s", owner, f.Metadata, f.Status, f.Template, f.Limit, f.Cursor)
	if f.Limit == 1 {
		return []api.SandboxInfo{info}, "next", nil
	}
	return nil, "", nil
}

func (s *stub) Kill(_ context.Context, _, id string) error {
	s.call("kill %s", id)
	return s.known(id)
}

func (s *stub) Lifecycle(_ context.Context, _, id string) (api.Lifecycle, error) {
	return api.Lifecycle{TTLSeconds: 300}, s.known(id)
}

func (s *stub) PatchLifecycle(_ context.Context, _, id string, p api.LifecyclePatch) (api.Lifecycle, error) {
	s.call("patch %s", id)
	return api.Lifecycle{TTLSeconds: *p.TTLSeconds}, nil
}

func (s *stub) Metrics(_ context.Context, _, id string) (api.Metrics, error) {
	s.call("metrics %s", id)
	return api.Metrics{PID: 7, Limits: api.Limits{CPU: 1}}, s.known(id)
}

func (s *stub) Pause(context.Context, string, string) error  { return nil }
func (s *stub) Resume(context.Context, string, string) error { return nil }

func (s *stub) Hibernate(_ context.Context, _, id string, req api.CarryRequest) error {
	s.call("hibernate %s %v", id, req.CarryRunning)
	return s.known(id)
}

func (s *stub) Wake(_ context.Context, _, id string) error {
	s.call("wake %s", id)
	return s.known(id)
}

var taken = api.Snapshot{ID: "sn-1", SandboxID: "sb-1", Template: "base", SizeBytes: 5, Workspace: "ann", CreatedAt: time.Unix(1700000000, 0).UTC()}

func (s *stub) Snapshot(_ context.Context, _, id string, req api.SnapshotRequest) (api.Snapshot, error) {
	s.call("snapshot %s %q %v %v", id, req.Name, req.Metadata, req.CarryRunning)
	return taken, s.known(id)
}

func (s *stub) Snapshots(_ context.Context, owner, sandboxID string) ([]api.Snapshot, error) {
	s.call("snapshots %s %s", owner, sandboxID)
	if sandboxID == "none" {
		return nil, nil
	}
	return []api.Snapshot{taken}, nil
}

func (s *stub) Fork(_ context.Context, _, id string, req api.ForkRequest) (api.Fork, error) {
	n := 1
	if req.Count != nil {
		n = *req.Count
	}
	s.call("fork %s %d %v", id, n, req.CarryRunning)
	return api.Fork{ParentID: id, Children: []api.SandboxInfo{info}}, s.known(id)
}

func (s *stub) ForkTree(_ context.Context, _, id string, req api.ForkRequest) (api.Fork, error) {
	s.call("fork-tree %s %v", id, req.Metadata)
	return api.Fork{TreeID: "tr-1", ParentID: id, Children: []api.SandboxInfo{info}, Errors: []api.ForkError{{Index: 1, Message: "no room", Code: api.CodeNoCapacity}}}, s.known(id)
}

func (s *stub) Promote(_ context.Context, _, id string, req api.PromoteRequest) (api.Promotion, error) {
	s.call("promote %s %v", id, req.CleanupSiblings)
	return api.Promotion{Winner: id, TreeID: "tr-1", Deleted: []string{}, Failures: map[string]string{}}, s.known(id)
}

func (s *stub) knownSnapshot(id string) error {
	if id == "sn-1" {
		return nil
	}
	return fault.New(api.CodeNotFound, "there is no snapshot %q", id)
}

func (s *stub) GetSnapshot(_ context.Context, _, id string) (api.Snapshot, error) {
	return taken, s.knownSnapshot(id)
}

func (s *stub) PatchSnapshot(_ context.Context, _, id string, p api.SnapshotPatch) (api.Snapshot, error) {
	if p.Name != nil {
		s.call("rename %s %s", id, *p.Name)
	}
	return taken, s.knownSnapshot(id)
}

func (s *stub) DeleteSnapshot(_ context.Context, _, id string) error {
	s.call("delete %s", id)
	return s.knownSnapshot(id)
}

func (s *stub) ExportSnapshot(_ context.Context, _, id string, begin func() io.Writer) error {
	s.call("export %s", id)
	if id == "sn-cut" {
		_, _ = begin().Write([]byte("half"))
		return fault.New(api.CodeConflict, "the snapshot is damaged")
	}
	if err := s.knownSnapshot(id); err != nil {
		return err
	}
	_, err := begin().Write([]byte("an archive"))
	return err
}

func (s *stub) ImportSnapshot(_ context.Context, owner string, how sandbox.Import, in io.Reader) (api.SnapshotImport, error) {
	raw, err := io.ReadAll(in)
	s.call("import %s %+v %s", owner, how, raw)
	if string(raw) == "bad" {
		return api.SnapshotImport{}, fault.New(api.CodeInvalid, "the archive is damaged or none")
	}
	return api.SnapshotImport{Snapshot: taken}, err
}

func (s *stub) Guest(_ context.Context, _, id string) (*guest.Client, func(), error) {
	s.call("guest %s", id)
	if err := s.known(id); err != nil {
		return nil, nil, err
	}
	return nil, nil, fault.New(api.CodeConflict, "the sandbox is paused")
}

func (s *stub) Network(_ context.Context, _, id string) (api.NetworkInfo, error) {
	return api.NetworkInfo{Policy: api.NetworkPolicy{Mode: api.NetworkAllowList, Allow: []api.NetworkRule{api.Rule("example.com")}}}, s.known(id)
}

func (s *stub) SetNetwork(ctx context.Context, owner, id string, p api.NetworkPatch) (api.NetworkInfo, error) {
	s.call("network %s", id)
	return s.Network(ctx, owner, id)
}

func (s *stub) OwnerOf(_ context.Context, id string, port int) (string, store.Port, error) {
	return "ann", store.Port{Port: port, Public: port == 9000}, s.known(id)
}

func (s *stub) Ports(_ context.Context, owner, id string) ([]store.Port, error) {
	s.call("ports %s %s", owner, id)
	return []store.Port{{Port: 8000, Label: "web"}}, s.known(id)
}

func (s *stub) SetPort(_ context.Context, _, id string, p store.Port) error {
	s.call("port %s %d %q %v", id, p.Port, p.Label, p.Public)
	return s.known(id)
}

func (s *stub) RemovePort(_ context.Context, _, id string, port int) error {
	s.call("no port %s %d", id, port)
	return s.known(id)
}

func (s *stub) EventsOf(_ context.Context, owner, id string) (journal.Of, error) {
	return journal.Of{Owner: owner, SandboxID: id}, s.known(id)
}

var lifeEvent = api.LifeEvent{ID: 7, Time: time.Unix(1700000000, 0).UTC(), SandboxID: "sb-1", Type: api.LifeReady, Payload: map[string]any{"path": "pool"}}

func (s *stub) Last(_ context.Context, of journal.Of, limit int) ([]api.LifeEvent, error) {
	s.call("events %s %s last %d", of.Owner, of.SandboxID, limit)
	return []api.LifeEvent{lifeEvent}, nil
}

func (s *stub) After(_ context.Context, of journal.Of, after int64, limit int) ([]api.LifeEvent, error) {
	s.call("events %s %s after %d", of.Owner, of.SandboxID, after)
	return []api.LifeEvent{}, nil
}

func (s *stub) Follow(_ context.Context, of journal.Of, after int64, tail int) iter.Seq2[api.LifeEvent, error] {
	s.call("follow %s %s after %d tail %d", of.Owner, of.SandboxID, after, tail)
	return func(yield func(api.LifeEvent, error) bool) { yield(lifeEvent, nil) }
}

func (s *stub) Templates(context.Context) ([]api.TemplateInfo, error) {
	return []api.TemplateInfo{{Name: "base", Aliases: []string{"ubuntu-24.04"}}}, nil
}

func (s *stub) CreateContext(_ context.Context, _, sid string, req api.CreateContextRequest) (api.Context, error) {
	s.call("context %s %s", sid, req.Language)
	return api.Context{ID: "c-1", SandboxID: sid, Language: "python"}, s.known(sid)
}
func (s *stub) Contexts(context.Context, string, string) ([]api.Context, error) { return nil, nil }
func (s *stub) Context(_ context.Context, _, _, cid string) (api.Context, error) {
	return api.Context{ID: cid}, nil
}
func (s *stub) CloseContext(context.Context, string, string, string) error { return nil }
func (s *stub) Interrupt(context.Context, string, string, string) error    { return nil }
func (s *stub) Restart(_ context.Context, _, _, cid string) (api.Context, error) {
	return api.Context{ID: cid, Incarnation: 2}, nil
}

func (s *stub) ForkContext(_ context.Context, _, sid, cid string, count int) (api.ForkContextResponse, error) {
	s.call("fork %s %s %d", sid, cid, count)
	return api.ForkContextResponse{Children: []api.Context{{ID: "c-2", SandboxID: sid, ForkedFrom: cid}}}, s.known(sid)
}

func (s *stub) Run(ctx context.Context, _, _, cid string, req api.RunRequest) (api.Execution, error) {
	s.call("run %s %q %d", cid, req.Code, req.TimeoutMS)
	if err := s.wait(ctx); err != nil {
		return api.Execution{}, err
	}
	return api.Execution{ExecutionID: "e-1", End: api.EndOK, StateSurvived: true}, nil
}

func (s *stub) stream(ctx context.Context) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for _, e := range s.events {
			if !yield(e, nil) {
				return
			}
		}
		if err := s.wait(ctx); err != nil {
			yield(api.Event{}, err)
		}
	}
}

func (s *stub) Stream(ctx context.Context, _, _, cid string, req api.RunRequest) iter.Seq2[api.Event, error] {
	s.call("stream %s %q", cid, req.Code)
	return s.stream(ctx)
}

func (s *stub) Attach(ctx context.Context, _, _, cid, eid string, after int64, _ bool) iter.Seq2[api.Event, error] {
	s.call("attach %s %s %d", cid, eid, after)
	return s.stream(ctx)
}

func (s *stub) Wait(ctx context.Context, _, _, cid, eid string) (api.Execution, error) {
	s.call("wait %s %s", cid, eid)
	return api.Execution{ExecutionID: eid, End: api.EndOK}, s.wait(ctx)
}

func (s *stub) OneShot(_ context.Context, _, _, language, code string, timeout time.Duration) (api.OneShotResult, error) {
	s.call("oneshot %s %q %s", language, code, timeout)
	return api.OneShotResult{Language: language, Execution: api.Execution{End: api.EndOK}}, nil
}

func (s *stub) Exec(ctx context.Context, _, _ string, req api.ExecRequest) (api.ExecResult, error) {
	s.call("exec %q %q", req.Cmd.Shell, req.Cmd.Argv)
	return s.exec, s.wait(ctx)
}

func (s *stub) ExecStream(ctx context.Context, _, _ string, req api.ExecRequest) iter.Seq2[api.Event, error] {
	s.call("exec %q %q", req.Cmd.Shell, req.Cmd.Argv)
	return s.stream(ctx)
}

// stubKeys knows one key, and keys of one scope.
type stubKeys struct{}

func (stubKeys) Check(secret string) (auth.Identity, bool) {
	if secret == "pds_nobody" {
		return auth.Identity{Prefix: "pds_nobody"}, true
	}
	who := auth.Identity{Owner: "ann", Prefix: "pds_00112233", Scope: auth.Admin}
	if scope, found := strings.CutPrefix(secret, "pds_only_"); found {
		who.Scope = auth.Scope(scope)
		return who, true
	}
	return who, secret == testKey
}
func (stubKeys) Life(prefix string) (context.Context, bool) {
	return context.Background(), prefix == "pds_00112233"
}
func (stubKeys) Create(_ context.Context, by auth.Identity, g auth.Grant) (string, auth.Key, error) {
	return testKey, auth.Key{Prefix: "pds_00112233", Owner: cmp.Or(g.Workspace, by.Owner), Label: g.Label, Scope: g.Scope, ExpiresAt: g.ExpiresAt}, nil
}
func (stubKeys) List(auth.Identity, string) ([]auth.Key, error) { return nil, nil }
func (stubKeys) Revoke(context.Context, auth.Identity, string) error {
	return fault.New(api.CodeNotFound, "there is no such key")
}

// keysOfAll takes every key for a workspace's.
type keysOfAll struct{ stubKeys }

func (keysOfAll) Check(secret string) (auth.Identity, bool) {
	return auth.Identity{Owner: secret, Prefix: "pds_test", Scope: auth.Admin}, secret != ""
}
