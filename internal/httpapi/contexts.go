package httpapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/kernel"
)

// Kernels is code contexts and what runs in them.
type Kernels interface {
	CreateContext(ctx context.Context, owner, sid string, req api.CreateContextRequest) (api.Context, error)
	Contexts(ctx context.Context, owner, sid string) ([]api.Context, error)
	Context(ctx context.Context, owner, sid, cid string) (api.Context, error)
	CloseContext(ctx context.Context, owner, sid, cid string) error
	Interrupt(ctx context.Context, owner, sid, cid string) error
	Restart(ctx context.Context, owner, sid, cid string) (api.Context, error)
	ForkContext(ctx context.Context, owner, sid, cid string, count int) (api.ForkContextResponse, error)
	Run(ctx context.Context, owner, sid, cid string, req api.RunRequest) (api.Execution, error)
	Stream(ctx context.Context, owner, sid, cid string, req api.RunRequest) iter.Seq2[api.Event, error]
	Attach(ctx context.Context, owner, sid, cid, eid string, after int64, follow bool) iter.Seq2[api.Event, error]
	Wait(ctx context.Context, owner, sid, cid, eid string) (api.Execution, error)
	OneShot(ctx context.Context, owner, sid, language, code string, timeout time.Duration) (api.OneShotResult, error)
}

var _ Kernels = (*kernel.Service)(nil)

func (s *Server) listContexts(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Kernels.Contexts(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, orEmpty(list), err)
}

func (s *Server) createContext(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateContextRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	for _, err := range []error{
		clientName("id", req.ID),
		noNUL("language", req.Language),
		optionalPath("cwd", req.CWD),
		envs("envs", req.Envs),
	} {
		if err != nil {
			return err
		}
	}
	c, err := s.Kernels.CreateContext(r.Context(), owner(r), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, c)
	return nil
}

func (s *Server) getContext(w http.ResponseWriter, r *http.Request) error {
	c, err := s.Kernels.Context(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid"))
	return answer(w, c, err)
}

func (s *Server) closeContext(w http.ResponseWriter, r *http.Request) error {
	return done(w, s.Kernels.CloseContext(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid")))
}

func (s *Server) interrupt(w http.ResponseWriter, r *http.Request) error {
	return done(w, s.Kernels.Interrupt(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid")))
}

func (s *Server) restart(w http.ResponseWriter, r *http.Request) error {
	c, err := s.Kernels.Restart(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid"))
	return answer(w, c, err)
}

func (s *Server) forkContext(w http.ResponseWriter, r *http.Request) error {
	var req api.ForkContextRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	out, err := s.Kernels.ForkContext(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid"), req.Count)
	if err != nil {
		return err
	}
	out.Children, out.Warnings = orEmpty(out.Children), orEmpty(out.Warnings)
	writeJSON(w, http.StatusCreated, out)
	return nil
}

func decodeRun(w http.ResponseWriter, r *http.Request) (api.RunRequest, error) {
	var req api.RunRequest
	if err := decode(w, r, &req); err != nil {
		return req, err
	}
	if err := guestapi.CheckCode(req.Code); err != nil {
		return req, err
	}
	if _, err := millis("timeout_ms", req.TimeoutMS); err != nil {
		return req, err
	}
	return req, clientName("execution_id", req.ExecutionID)
}

// run answers when the cell has ended. A cell that raised or hit its deadline
// is an answer like any other.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	req, err := decodeRun(w, r)
	if err != nil {
		return err
	}
	ex, err := s.Kernels.Run(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid"), req)
	if err != nil {
		return s.cut(r, req.ExecutionID, err)
	}
	return ok(w, whole(ex))
}

// cut breaks the connection of a caller that waits for an execution with an id
// while the daemon stops: a broken connection is what makes a client attach
// again, and the cell goes on.
func (s *Server) cut(r *http.Request, eid string, err error) error {
	if eid != "" && errors.Is(context.Cause(r.Context()), ErrStopping) {
		return http.ErrAbortHandler
	}
	return err
}

// whole fills in what must be there even when empty.
func whole(ex api.Execution) api.Execution {
	ex.Results, ex.ResultsMeta = orEmpty(ex.Results), orEmpty(ex.ResultsMeta)
	return ex
}

func (s *Server) runStream(w http.ResponseWriter, r *http.Request) error {
	req, err := decodeRun(w, r)
	if err != nil {
		return err
	}
	return s.events(w, r, s.Kernels.Stream(r.Context(), owner(r), r.PathValue("id"), r.PathValue("cid"), req))
}

// events sends a numbered stream. When it fails before its last event the
// connection breaks, so that the client attaches again from its number and
// hears then what is wrong.
func (s *Server) events(w http.ResponseWriter, r *http.Request, events iter.Seq2[api.Event, error]) error {
	out := newSSE(w, keepAlive)
	defer out.close()
	ended := false
	for e, err := range events {
		if err == nil {
			err = out.send(e.Seq, e.Type, dataOf(e))
		}
		if err != nil {
			return err // once the response has begun, fail cuts the connection
		}
		ended = e.Type == api.EventEnd || e.Type == api.EventExit
	}
	if !ended {
		return http.ErrAbortHandler
	}
	return nil
}

// attach gives an execution from a number on: as events, or whole when JSON is
// asked for.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) error {
	after, err := attachAfter(r)
	if err != nil {
		return err
	}
	id, cid, eid := r.PathValue("id"), r.PathValue("cid"), r.PathValue("eid")
	if wantsJSON(r) {
		ex, err := s.Kernels.Wait(r.Context(), owner(r), id, cid, eid)
		if err != nil {
			return s.cut(r, eid, err)
		}
		return ok(w, whole(ex))
	}
	return s.events(w, r, s.Kernels.Attach(r.Context(), owner(r), id, cid, eid, after, true))
}

func (s *Server) languages(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.Sandboxes.Get(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return ok(w, api.Languages{Languages: kernel.Languages()})
}

func (s *Server) oneShot(w http.ResponseWriter, r *http.Request) error {
	var req api.OneShotRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	timeout, err := millis("timeout_ms", req.TimeoutMS)
	if err != nil {
		return err
	}
	if err := guestapi.CheckCode(req.Code); err != nil {
		return err
	}
	res, err := s.Kernels.OneShot(r.Context(), owner(r), r.PathValue("id"), req.Language, req.Code, timeout)
	if err != nil {
		return err
	}
	res.Execution = whole(res.Execution)
	return ok(w, res)
}
