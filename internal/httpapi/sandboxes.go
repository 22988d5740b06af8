package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// Sandboxes is the domain. Every call names the owner that asks; what belongs
// to another does not exist for them.
type Sandboxes interface {
	Create(ctx context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error)
	Get(ctx context.Context, owner, id string) (api.SandboxInfo, error)
	Page(ctx context.Context, owner string, f sandbox.ListFilter) (list []api.SandboxInfo, next string, err error)
	Kill(ctx context.Context, owner, id string) error
	Lifecycle(ctx context.Context, owner, id string) (api.Lifecycle, error)
	PatchLifecycle(ctx context.Context, owner, id string, p api.LifecyclePatch) (api.Lifecycle, error)
	Pause(ctx context.Context, owner, id string) error
	Resume(ctx context.Context, owner, id string) error
	Metrics(ctx context.Context, owner, id string) (api.Metrics, error)
	Hibernate(ctx context.Context, owner, id string, req api.CarryRequest) error
	Wake(ctx context.Context, owner, id string) error
	Snapshot(ctx context.Context, owner, id string, req api.SnapshotRequest) (api.Snapshot, error)
	Snapshots(ctx context.Context, owner, sandboxID string) ([]api.Snapshot, error)
	GetSnapshot(ctx context.Context, owner, id string) (api.Snapshot, error)
	PatchSnapshot(ctx context.Context, owner, id string, p api.SnapshotPatch) (api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, owner, id string) error
	ExportSnapshot(ctx context.Context, owner, id string, begin func() io.Writer) error
	ImportSnapshot(ctx context.Context, owner string, how sandbox.Import, in io.Reader) (api.SnapshotImport, error)
	Fork(ctx context.Context, owner, id string, req api.ForkRequest) (api.Fork, error)
	ForkTree(ctx context.Context, owner, id string, req api.ForkRequest) (api.Fork, error)
	Promote(ctx context.Context, owner, id string, req api.PromoteRequest) (api.Promotion, error)
	Guest(ctx context.Context, owner, id string) (*guest.Client, func(), error)
	Templates(ctx context.Context) ([]api.TemplateInfo, error)
	EventsOf(ctx context.Context, owner, id string) (journal.Of, error)
	Network(ctx context.Context, owner, id string) (api.NetworkInfo, error)
	SetNetwork(ctx context.Context, owner, id string, p api.NetworkPatch) (api.NetworkInfo, error)
	Tools(ctx context.Context, owner, id string) (api.ToolList, error)
	SetTools(ctx context.Context, owner, id string, t api.Tools) (api.ToolList, error)
	OwnerOf(ctx context.Context, id string, port int) (owner string, p store.Port, err error)
	Ports(ctx context.Context, owner, id string) ([]store.Port, error)
	SetPort(ctx context.Context, owner, id string, p store.Port) error
	RemovePort(ctx context.Context, owner, id string, port int) error
}

var _ Sandboxes = (*sandbox.Manager)(nil)

func (s *Server) createSandbox(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		api.CreateSandboxRequest
		absentFields
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	req := body.CreateSandboxRequest
	if err := body.absentFields.refuse(); err != nil {
		return err
	}
	if err := checkCreate(&req); err != nil {
		return err
	}
	if err := s.checkTools(r, req.Tools); err != nil {
		return err
	}
	switch keys := r.Header.Values("Idempotency-Key"); {
	case len(keys) > 1:
		return fault.InvalidField("Idempotency-Key", "Idempotency-Key is there %d times", len(keys))
	case len(keys) == 1:
		if req.IdempotencyKey = keys[0]; req.IdempotencyKey == "" {
			return fault.InvalidField("Idempotency-Key", "Idempotency-Key is empty").WithHint("a UUID will do")
		}
	}
	info, err := s.Sandboxes.Create(r.Context(), owner(r), req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, info)
	return nil
}

func checkCreate(req *api.CreateSandboxRequest) error {
	for _, err := range []error{
		noNUL("template", req.Template),
		noNUL("from_snapshot", req.FromSnapshot),
		notNegative("ttl_seconds", req.TTLSeconds),
		notNegative("idle_timeout_seconds", req.IdleTimeoutSeconds),
		notNegative("cpu", req.CPU),
		notNegative("memory_mb", req.MemoryMB),
		notNegative("disk_mb", req.DiskMB),
		notNegative("pids", req.PIDs),
		envs("envs", req.Envs),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// maxPage is how many items a page may have.
const maxPage = 1000

// listSandboxes answers a bare array: all, or with ?limit= a page, whose
// headers lead to the next one. ?status=, ?template= and any number of
// ?metadata.KEY=VALUE narrow it.
func (s *Server) listSandboxes(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	limit, err := natural(q, "limit", 0)
	if err != nil {
		return err
	}
	if limit > maxPage {
		return fault.InvalidField("limit", "limit must be at most %d, but is %d", maxPage, limit).WithHint("the header X-Next-Cursor leads to more")
	}
	f := sandbox.ListFilter{Status: api.Status(q.Get("status")), Template: q.Get("template"), Limit: int(limit), Cursor: q.Get("cursor")}
	if f.Status != "" && !knownStatus[f.Status] {
		return fault.InvalidField("status", "there is no status %s", shown(string(f.Status)))
	}
	for name, values := range q {
		key, found := strings.CutPrefix(name, "metadata.")
		if !found {
			continue
		}
		if len(values) > 1 {
			return fault.InvalidField("metadata", "%s is there %d times; a sandbox has one value of it", shown(name), len(values))
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[key] = values[0]
	}
	list, next, err := s.Sandboxes.Page(r.Context(), owner(r), f)
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.SandboxInfo{} // an empty array, never null
	}
	if next != "" {
		q.Set("cursor", next)
		w.Header().Set("X-Next-Cursor", next)
		w.Header().Set("Link", fmt.Sprintf("<%s?%s>; rel=\"next\"", r.URL.EscapedPath(), q.Encode()))
	}
	return ok(w, list)
}

var knownStatus = map[api.Status]bool{
	api.StatusCreating: true, api.StatusRunning: true, api.StatusPaused: true, api.StatusHibernated: true,
	api.StatusStopping: true, api.StatusDeleted: true, api.StatusFailed: true,
}

func (s *Server) getSandbox(w http.ResponseWriter, r *http.Request) error {
	info, err := s.Sandboxes.Get(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return ok(w, info)
}

func (s *Server) killSandbox(w http.ResponseWriter, r *http.Request) error {
	if err := s.Sandboxes.Kill(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return noContent(w)
}

func (s *Server) getLifecycle(w http.ResponseWriter, r *http.Request) error {
	l, err := s.Sandboxes.Lifecycle(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return ok(w, l)
}

func (s *Server) patchLifecycle(w http.ResponseWriter, r *http.Request) error {
	var p api.LifecyclePatch
	if err := decode(w, r, &p); err != nil {
		return err
	}
	if err := notNegative("ttl_seconds", p.TTLSeconds); err != nil {
		return err
	}
	if err := notNegative("idle_timeout_seconds", p.IdleTimeoutSeconds); err != nil {
		return err
	}
	l, err := s.Sandboxes.PatchLifecycle(r.Context(), owner(r), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	return ok(w, l)
}

func (s *Server) pauseSandbox(w http.ResponseWriter, r *http.Request) error {
	if err := s.Sandboxes.Pause(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return noContent(w)
}

func (s *Server) resumeSandbox(w http.ResponseWriter, r *http.Request) error {
	if err := s.Sandboxes.Resume(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return noContent(w)
}

func (s *Server) sandboxMetrics(w http.ResponseWriter, r *http.Request) error {
	m, err := s.Sandboxes.Metrics(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return ok(w, m)
}
