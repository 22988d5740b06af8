package httpapi

import (
	"net/http"

	"github.com/pandastack/pandastack/api"
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
