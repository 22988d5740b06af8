package httpapi

import (
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
)

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return ok(w, api.Health{Status: "ok"})
}

// ready is for those who wait: a load balancer, a test, `make demo`.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.Ready != nil {
		if err := s.Ready(r.Context()); err != nil {
			return fault.Wrap(err, api.CodeNoCapacity, "the server is not ready")
		}
	}
	return ok(w, api.Health{Status: "ready"})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error { return ok(w, s.Version) }

func (s *Server) me(w http.ResponseWriter, r *http.Request) error {
	who := stateOf(r.Context()).who
	return ok(w, api.Me{ID: who.Owner, Workspace: who.Owner, AuthMethod: "api_key", KeyPrefix: who.Prefix, KeyLabel: who.Label})
}

func keyInfo(k auth.Key) api.KeyInfo {
	return api.KeyInfo{Prefix: k.Prefix, Label: k.Label, CreatedAt: k.CreatedAt.UTC().Truncate(time.Second)}
}

func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) error {
	out := []api.KeyInfo{}
	for _, k := range s.Keys.List(owner(r)) {
		out = append(out, keyInfo(k))
	}
	return ok(w, out)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) error {
	var req api.CreateKeyRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	secret, key, err := s.Keys.Create(r.Context(), owner(r), req.Label)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, api.NewKey{Token: secret, KeyInfo: keyInfo(key)})
	return nil
}

func (s *Server) revokeKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.Keys.Revoke(r.Context(), owner(r), r.PathValue("prefix")); err != nil {
		return err
	}
	return noContent(w)
}
