package httpapi

import (
	"fmt"
	"io"
	"net/http"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/sandbox"
)

func (s *Server) takeSnapshot(w http.ResponseWriter, r *http.Request) error {
	var req api.SnapshotRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := noNUL("name", req.Name); err != nil {
		return err
	}
	sn, err := s.Sandboxes.Snapshot(r.Context(), owner(r), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, sn)
	return nil
}

// listSnapshots answers the newest first; ?sandbox_id= narrows it to those of
// one sandbox.
func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	list, err := s.Sandboxes.Snapshots(r.Context(), owner(r), q.Get("sandbox_id"))
	if err != nil {
		return err
	}
	if list == nil {
		list = []api.Snapshot{} // an empty array, never null
	}
	return ok(w, api.SnapshotList{Snapshots: list})
}

func (s *Server) getSnapshot(w http.ResponseWriter, r *http.Request) error {
	sn, err := s.Sandboxes.GetSnapshot(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return ok(w, sn)
}

func (s *Server) patchSnapshot(w http.ResponseWriter, r *http.Request) error {
	var p api.SnapshotPatch
	if err := decode(w, r, &p); err != nil {
		return err
	}
	if p.Name != nil {
		if err := noNUL("name", *p.Name); err != nil {
			return err
		}
	}
	sn, err := s.Sandboxes.PatchSnapshot(r.Context(), owner(r), r.PathValue("id"), p)
	if err != nil {
		return err
	}
	return ok(w, sn)
}

func (s *Server) deleteSnapshot(w http.ResponseWriter, r *http.Request) error {
	if err := s.Sandboxes.DeleteSnapshot(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return noContent(w)
}

// exportSnapshot streams a snapshot as an archive. One that breaks off breaks the
// connection, too.
func (s *Server) exportSnapshot(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if r.Method == http.MethodHead {
		if _, err := s.Sandboxes.GetSnapshot(r.Context(), owner(r), id); err != nil {
			return err
		}
		exportHeader(w, id)
		return nil
	}
	return s.Sandboxes.ExportSnapshot(r.Context(), owner(r), id, func() io.Writer {
		exportHeader(w, id)
		return draining{http.NewResponseController(w), w}
	})
}

func exportHeader(w http.ResponseWriter, id string) {
	h := w.Header()
	h.Set("Content-Type", archiveType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", id+".tar.zst"))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

// archiveType is the type of an archive.
const archiveType = "application/zstd"

// importSnapshot makes a snapshot of an archive.
func (s *Server) importSnapshot(w http.ResponseWriter, r *http.Request) error {
	body := flowing{http.NewResponseController(w), r.Body}
	done, err := s.takeSnapshotIn(r, body)
	if err != nil {
		drain(body)
		return err
	}
	writeJSON(w, http.StatusCreated, done)
	return nil
}

func (s *Server) takeSnapshotIn(r *http.Request, body io.Reader) (api.SnapshotImport, error) {
	q, err := query(r)
	if err != nil {
		return api.SnapshotImport{}, err
	}
	how := sandbox.Import{Name: q.Get("name"), Admin: stateOf(r.Context()).who.Scope.Covers(auth.Admin)}
	if err := noNUL("name", how.Name); err != nil {
		return api.SnapshotImport{}, err
	}
	done, err := s.Sandboxes.ImportSnapshot(r.Context(), owner(r), how, body)
	done.Missing = orEmpty(done.Missing)
	return done, err
}

func (s *Server) hibernateSandbox(w http.ResponseWriter, r *http.Request) error {
	var req api.CarryRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := s.Sandboxes.Hibernate(r.Context(), owner(r), r.PathValue("id"), req); err != nil {
		return err
	}
	return ok(w, api.StatusAnswer{Status: api.StatusHibernated})
}

func (s *Server) wakeSandbox(w http.ResponseWriter, r *http.Request) error {
	if err := s.Sandboxes.Wake(r.Context(), owner(r), r.PathValue("id")); err != nil {
		return err
	}
	return ok(w, api.StatusAnswer{Status: api.StatusRunning})
}
