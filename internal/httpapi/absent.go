package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
)

// absent lists what clients call, published ones and our own, and this server does not have. Their
// users get a clear 501 instead of a 404 that looks like a wrong id. Routes that
// are served come first: take one off this list when it is. docs/published-clients.md
// has the same list.
var absent = []struct {
	what, hint string
	patterns   []string // of http.ServeMux, any method unless one is said
}{
	{"template builds over HTTP", "build templates on the server: pandastack template build RECIPE", []string{
		"POST /v1/templates/build", "DELETE /v1/templates/{name}", "GET /v1/templates/builds/{build}", "GET /v1/templates/builds/{build}/logs",
	}},
	{"volumes", "write files into the sandbox, or build a template that has them", []string{
		"/v1/volumes", "/v1/volumes/{name}",
	}},
	{"functions", "run the code in a sandbox: POST …/exec or …/repl", []string{"/v1/functions", "/v1/functions/"}},
	{"schedules", "call the API from cron or a timer of yours", []string{"/v1/schedules", "/v1/schedules/"}},
	{"databases", "run one beside this server, or in a sandbox", []string{"/v1/databases", "/v1/databases/"}},
	{"apps", "this server runs sandboxes and publishes nothing", []string{
		"/v1/apps", "/v1/apps/", "/v1/preview-repos", "/v1/preview-repos/", "/v1/repos/",
	}},
}

func (s *Server) absentRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, a := range absent {
		for _, pattern := range a.patterns {
			s.on(mux, pattern, s.authenticated(auth.Read, notHere(a.what, a.hint)))
		}
	}
	return mux
}

// absentFields are what clients may ask of a new sandbox and this server does
// not have. Unknown fields are ignored, but whoever writes to a volume must not
// believe that it is there.
type absentFields struct {
	Volumes json.RawMessage `json:"volumes"`
}

func (f absentFields) refuse() error {
	for _, a := range []struct {
		field, hint string
		asked       json.RawMessage
	}{
		{"volumes", "write files into the sandbox, or build a template that has them", f.Volumes},
	} {
		if asksForNothing := slices.Contains([]string{"", "null", "[]", "{}", "false"}, string(a.asked)); !asksForNothing {
			e := fault.New(api.CodeUnsupported, "this server does not have %s of sandboxes", a.field)
			e.Field = a.field
			return e.WithHint("%s", a.hint)
		}
	}
	return nil
}

func notHere(what, hint string) handler {
	return func(http.ResponseWriter, *http.Request) error {
		return fault.New(api.CodeUnsupported, "this server does not have %s", what).WithHint("%s", hint)
	}
}

// listBuilds has a route of its own because a template could have its name.
func (s *Server) listBuilds(w http.ResponseWriter, r *http.Request) error {
	return notHere("template builds over HTTP", "build templates on the server: pandastack template build RECIPE")(w, r)
}
