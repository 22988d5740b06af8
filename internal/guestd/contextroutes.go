package guestd

import (
	"net/http"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
)

func (a *Agent) listContexts(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.kernels.List())
}

func (a *Agent) createContext(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateContextRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if err := checkEnvs("envs", req.Envs); err != nil {
		return err
	}
	if req.CWD != "" {
		if err := checkDir("cwd", req.CWD); err != nil {
			return err
		}
	}
	made, ok := a.watchdog.room(r.Context(), contextRoom, func() bool { return len(a.kernels.List()) == 0 })
	if !ok {
		return fault.New(api.CodeConflict, "there is no memory left for another context").
			WithHint("close some of the others, or create the sandbox with more memory_mb")
	}
	defer made()
	c, err := a.kernels.Create(r.Context(), req)
	if err != nil {
		return err
	}
	a.watchdog.wake()
	return writeJSON(w, http.StatusOK, c.Info())
}

func (a *Agent) context(r *http.Request) (*kernels.Context, error) {
	return a.kernels.Context(r.PathValue("cid"))
}

func (a *Agent) getContext(w http.ResponseWriter, r *http.Request) error {
	c, err := a.context(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.Info())
}

func (a *Agent) deleteContext(w http.ResponseWriter, r *http.Request) error {
	return noContent(w, a.kernels.Remove(r.PathValue("cid")))
}

func (a *Agent) interruptContext(w http.ResponseWriter, r *http.Request) error {
	c, err := a.context(r)
	if err != nil {
		return err
	}
	c.Interrupt()
	return noContent(w, nil)
}

func (a *Agent) restartContext(w http.ResponseWriter, r *http.Request) error {
	c, err := a.context(r)
	if err != nil {
		return err
	}
	if err := c.Restart(r.Context()); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.Info())
}

func (a *Agent) forkContext(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.ForkRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	resp, err := a.kernels.Fork(r.Context(), r.PathValue("cid"), req.IDs, func(copies int) (func(), error) {
		made, ok := a.watchdog.room(r.Context(), contextRoom*int64(copies), func() bool { return false })
		if !ok {
			return nil, fault.New(api.CodeConflict, "there is no memory left for %d copies of a context", copies).
				WithHint("close other contexts, or create the sandbox with more memory_mb")
		}
		return made, nil
	})
	if err != nil {
		return err
	}
	a.watchdog.wake()
	return writeJSON(w, http.StatusOK, resp)
}

func (a *Agent) postExecution(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.RunRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if req.After < 0 {
		return fault.InvalidField("after", "after is negative")
	}
	ex, err := a.kernels.Run(r.PathValue("cid"), req)
	if err != nil {
		return err
	}
	a.watchdog.wake()
	return streamEvents(w, r, ex.Log, req.After, req.Follow)
}

func (a *Agent) getExecution(w http.ResponseWriter, r *http.Request) error {
	after, follow, err := afterAndFollow(r)
	if err != nil {
		return err
	}
	ex, err := a.kernels.Execution(r.PathValue("cid"), r.PathValue("eid"))
	if err != nil {
		return err
	}
	return streamEvents(w, r, ex.Log, after, follow)
}

func (a *Agent) inputExecution(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.InputReply
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	if len(req.Value) > guestapi.MaxInput {
		return fault.InvalidField("value", "%d bytes are too many for an answer: there may be %d", len(req.Value), guestapi.MaxInput)
	}
	c, err := a.context(r)
	if err != nil {
		return err
	}
	ex, err := a.kernels.Execution(r.PathValue("cid"), r.PathValue("eid"))
	if err != nil {
		return err
	}
	return noContent(w, c.Input(ex, req.Value))
}

func (a *Agent) interruptExecution(w http.ResponseWriter, r *http.Request) error {
	c, err := a.context(r)
	if err != nil {
		return err
	}
	ex, err := a.kernels.Execution(r.PathValue("cid"), r.PathValue("eid"))
	if err != nil {
		return err
	}
	c.InterruptExecution(ex)
	return noContent(w, nil)
}
