package httpapi

import (
	"net/http"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	return ok(w, api.Health{Status: "ok"})
}

// unready is the body of a daemon that cannot make sandboxes: an error like
// any other, with the reasons beside it.
type unready struct {
	*api.Error
	api.Readiness
}

// ready is for those who wait: a load balancer, a test, `make demo`.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.Ready == nil {
		return ok(w, api.Readiness{Status: "ready", Reasons: []api.Reason{}, Warnings: []api.Reason{}})
	}
	state := s.Ready(r.Context())
	if len(state.Reasons) == 0 {
		return ok(w, state)
	}
	first := state.Reasons[0]
	body, status := s.failure(r, fault.New(api.CodeNoCapacity, "the server is not ready: %s", first.Detail).WithHint("%s", first.Fix))
	w.Header().Set("Retry-After", "1")
	writeJSON(w, status, unready{body, state})
	return nil
}

// metrics is the page of package metrics, behind a key. Without one it is only
// at the address of the setting metrics_listen.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	if s.MetricsPage == nil {
		return fault.New(api.CodeUnsupported, "this server counts nothing")
	}
	if err := stateOf(r.Context()).who.RequireServer(); err != nil {
		return err
	}
	s.MetricsPage.ServeHTTP(w, r)
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error { return ok(w, s.Version) }
