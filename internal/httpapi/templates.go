package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

func (s *Server) listTemplates(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Sandboxes.Templates(r.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.TemplateInfo{}
	}
	return ok(w, list)
}

func (s *Server) getTemplate(w http.ResponseWriter, r *http.Request) error {
	list, err := s.Sandboxes.Templates(r.Context())
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	names := make([]string, 0, len(list))
	for _, t := range list {
		if t.Name == name || slices.Contains(t.Aliases, name) {
			return ok(w, t)
		}
		names = append(names, t.Name)
	}
	e := fault.New(api.CodeNotFound, "there is no template %s", shown(name))
	if len(names) == 0 {
		return e.WithHint("none is built yet: pandastack template build code-interpreter")
	}
	return e.WithHint("there are: %s", strings.Join(names, ", "))
}
