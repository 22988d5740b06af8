package httpapi

import (
	"context"
	"net/http"

	"github.com/pandastack/pandastack/api"
)

func (s *Server) fork(w http.ResponseWriter, r *http.Request) error {
	return s.forked(w, r, s.Sandboxes.Fork)
}

func (s *Server) forkTree(w http.ResponseWriter, r *http.Request) error {
	return s.forked(w, r, s.Sandboxes.ForkTree)
}

// forked answers 201 when at least one copy was made; the body says which were
// not.
func (s *Server) forked(w http.ResponseWriter, r *http.Request, do func(context.Context, string, string, api.ForkRequest) (api.Fork, error)) error {
	var req api.ForkRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	for _, err := range []error{notNegative("count", req.Count), notNegative("ttl_seconds", req.TTLSeconds), envs("envs", req.Envs)} {
		if err != nil {
			return err
		}
	}
	made, err := do(r.Context(), owner(r), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, made)
	return nil
}

func (s *Server) promote(w http.ResponseWriter, r *http.Request) error {
	var req api.PromoteRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	p, err := s.Sandboxes.Promote(r.Context(), owner(r), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	return ok(w, p)
}
