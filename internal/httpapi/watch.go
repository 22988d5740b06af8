package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
)

// watchFiles gives the changes of a file or of what is in a folder as they
// happen, also across a link that breaks. A broken stream goes on after
// Last-Event-ID or ?after= when ?watch_id= is that of its event "started".
func (s *Server) watchFiles(w http.ResponseWriter, r *http.Request, path string, q url.Values) error {
	recursive, err := truth(q, "recursive")
	if err != nil {
		return err
	}
	after, err := attachAfter(r)
	if err != nil {
		return err
	}
	of := guest.Watch{ID: q.Get("watch_id"), Path: path, Recursive: recursive}
	if err := clientName("watch_id", of.ID); err != nil {
		return err
	}
	if of.ID == "" {
		of.ID = rand.Text()
	}
	link := func(ctx context.Context) (*guest.Client, func(), error) {
		return s.Sandboxes.Guest(ctx, owner(r), r.PathValue("id"))
	}
	out := newSSE(w, keepAlive)
	defer out.close()
	for e, err := range guest.FollowWatch(r.Context(), of, after, link) {
		if err != nil && out.started() {
			if reason := s.notReachable(r, err); reason != "" {
				e, err = api.FileEvent{Seq: after + 1, Type: api.FileEnded, Reason: reason}, nil
			}
		}
		if err == nil {
			after, err = e.Seq, out.send(e.Seq, "event", e)
		}
		if err != nil {
			return err // once the response has begun, fail cuts the connection
		}
	}
	return nil
}

// notReachable gives the state of a sandbox for which a stream from it broke
// off, when that is one in which nothing more will come; "" otherwise.
func (s *Server) notReachable(r *http.Request, err error) string {
	var ended *guest.EndedError
	switch {
	case r.Context().Err() != nil:
		return ""
	case errors.As(err, &ended), errors.Is(err, fault.NotFound):
		return api.WatchSandbox
	case !errors.Is(err, fault.Conflict):
		return ""
	}
	info, err := s.Sandboxes.Get(r.Context(), owner(r), r.PathValue("id"))
	switch {
	case errors.Is(err, fault.NotFound):
		return api.WatchSandbox
	case err != nil:
		return ""
	case info.Status == api.StatusHibernated:
		return api.WatchHibernated
	}
	return ""
}
