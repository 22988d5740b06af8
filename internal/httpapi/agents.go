package httpapi

import (
	"context"
	"iter"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
)

// Agents are runs of models that act by writing Python.
type Agents interface {
	Start(ctx context.Context, owner string, req api.AgentRequest, key string) (api.AgentRun, error)
	Get(ctx context.Context, owner, id string) (api.AgentRun, error)
	List(ctx context.Context, owner string, limit int) ([]api.AgentRun, error)
	Events(ctx context.Context, owner, id string, after int64, follow bool) (iter.Seq2[api.AgentEvent, error], error)
	Cancel(ctx context.Context, owner, id string) (api.AgentRun, error)
	Delete(ctx context.Context, owner, id string) error
	Figure(ctx context.Context, owner, id, name string) (mime string, data []byte, err error)
	Notebook(ctx context.Context, owner, id string) ([]byte, error)
	Report(ctx context.Context, owner, id string) ([]byte, error)
}

var _ Agents = (*agent.Service)(nil)

const (
	defaultRuns = 100
	maxRuns     = 1000 // in one answer
)

// startAgent begins a run and answers with it, or with its events when these
// are asked for. The run does not end when the caller leaves.
func (s *Server) startAgent(w http.ResponseWriter, r *http.Request) error {
	var req api.AgentRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	for _, err := range []error{
		noNUL("task", req.Task), noNUL("model", req.Model), noNUL("instructions", req.Instructions), noNUL("template", req.Template),
		noNUL("from_snapshot", req.FromSnapshot), notNegative("cpu", req.CPU), notNegative("memory_mb", req.MemoryMB), notNegative("disk_mb", req.DiskMB),
		notNegative("pids", req.PIDs), envs("envs", req.Envs),
	} {
		if err != nil {
			return err
		}
	}
	if req.Fork != nil {
		if err := noNUL("fork.task", req.Fork.Task); err != nil {
			return err
		}
	}
	if req.BaseURL != "" && !stateOf(r.Context()).who.Scope.Covers(auth.Admin) && !slices.Contains(s.ModelURLs, req.BaseURL) {
		return fault.New(api.CodeDenied, "this key may not have the server call a base_url of its choice").
			WithHint("use a key with the scope admin, or have the address put into the setting model_base_urls")
	}
	if err := s.checkTools(r, req.Tools); err != nil {
		return err
	}
	run, err := s.Agents.Start(r.Context(), owner(r), req, r.Header.Get(api.ModelKeyHeader))
	if err != nil {
		return err
	}
	if !wantsEvents(r) {
		writeJSON(w, http.StatusCreated, run)
		return nil
	}
	return s.streamAgent(w, r, run.ID, 0)
}

// wantsEvents tells whether a client asked for events where JSON is the rule.
func wantsEvents(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == "text/event-stream" {
			return true
		}
	}
	return false
}

func (s *Server) streamAgent(w http.ResponseWriter, r *http.Request, id string, after int64) error {
	events, err := s.Agents.Events(r.Context(), owner(r), id, after, true)
	if err != nil {
		return err
	}
	out := newSSE(w, keepAlive)
	defer out.close()
	if err := out.begin(); err != nil {
		return err
	}
	ended := false
	for e, err := range events {
		if err == nil {
			seq := e.Seq
			if seq == 0 {
				seq = -1
			}
			err = out.send(seq, e.Type, e)
		}
		if err != nil {
			return err // the connection is cut: the client comes back with the last number
		}
		ended = e.Type == api.AgentEventEnded
	}
	if !ended {
		return http.ErrAbortHandler
	}
	return nil
}

func (s *Server) listAgents(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	limit, err := upTo(q, "limit", defaultRuns, maxRuns)
	if err != nil {
		return err
	}
	runs, err := s.Agents.List(r.Context(), owner(r), int(limit))
	return answer(w, api.AgentRuns{Runs: orEmpty(runs)}, err)
}

func (s *Server) getAgent(w http.ResponseWriter, r *http.Request) error {
	run, err := s.Agents.Get(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, run, err)
}

func (s *Server) deleteAgent(w http.ResponseWriter, r *http.Request) error {
	return done(w, s.Agents.Delete(r.Context(), owner(r), r.PathValue("id")))
}

func (s *Server) cancelAgent(w http.ResponseWriter, r *http.Request) error {
	run, err := s.Agents.Cancel(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, run, err)
}

// agentEvents gives a run's transcript: as events, which go on until it ends,
// or as it is now when JSON is asked for.
func (s *Server) agentEvents(w http.ResponseWriter, r *http.Request) error {
	after, err := attachAfter(r)
	if err != nil {
		return err
	}
	if !wantsJSON(r) {
		return s.streamAgent(w, r, r.PathValue("id"), after)
	}
	events, err := s.Agents.Events(r.Context(), owner(r), r.PathValue("id"), after, false)
	if err != nil {
		return err
	}
	out := []api.AgentEvent{}
	for e, err := range events {
		if err != nil {
			return err
		}
		out = append(out, e)
	}
	return ok(w, api.AgentEvents{Events: out})
}

func (s *Server) agentFigure(w http.ResponseWriter, r *http.Request) error {
	kind, data, err := s.Agents.Figure(r.Context(), owner(r), r.PathValue("id"), r.PathValue("file"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // nobody to tell
	return nil
}

// agentNotebook gives a run, and those that it follows, for Jupyter.
func (s *Server) agentNotebook(w http.ResponseWriter, r *http.Request) error {
	data, err := s.Agents.Notebook(r.Context(), owner(r), r.PathValue("id"))
	return asFile(w, "application/x-ipynb+json", r.PathValue("id")+".ipynb", data, err)
}

// agentReport gives a run, and those that it follows, as one page.
func (s *Server) agentReport(w http.ResponseWriter, r *http.Request) error {
	data, err := s.Agents.Report(r.Context(), owner(r), r.PathValue("id"))
	return asFile(w, "text/html; charset=utf-8", r.PathValue("id")+".html", data, err)
}

// asFile answers with something to be kept. A browser does not run it as a page
// of this server's.
func asFile(w http.ResponseWriter, kind, name string, data []byte, err error) error {
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(data) // nobody to tell
	return nil
}
