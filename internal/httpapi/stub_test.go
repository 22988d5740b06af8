package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/sandbox"
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

func (s *stub) Get(_ context.Context, _, id string) (api.SandboxInfo, error) {
	return info, s.known(id)
}

func (s *stub) List(_ context.Context, owner string, f sandbox.ListFilter) ([]api.SandboxInfo, error) {
	s.call("list %s %v %s %d", owner, f.Metadata, f.Status, f.Limit)
	return nil, nil
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

func (s *stub) Pause(context.Context, string, string) error  { return nil }
func (s *stub) Resume(context.Context, string, string) error { return nil }

func (s *stub) Guest(_ context.Context, _, id string) (*guest.Client, func(), error) {
	s.call("guest %s", id)
	if err := s.known(id); err != nil {
		return nil, nil, err
	}
	return nil, nil, fault.New(api.CodeConflict, "the sandbox is paused")
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
func (stubKeys) Create(_ context.Context, by auth.Identity, g auth.Grant) (string, auth.Key, error) {
	return testKey, auth.Key{Prefix: "pds_00112233", Owner: cmp.Or(g.Workspace, by.Owner), Label: g.Label, Scope: g.Scope, ExpiresAt: g.ExpiresAt}, nil
}
func (stubKeys) List(auth.Identity, string) ([]auth.Key, error) { return nil, nil }
func (stubKeys) Revoke(context.Context, auth.Identity, string) error {
	return fault.New(api.CodeNotFound, "there is no such key")
}
