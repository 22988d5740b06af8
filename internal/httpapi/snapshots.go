package httpapi

import (
	"net/http"

	"github.com/pandastack/pandastack/api"
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
