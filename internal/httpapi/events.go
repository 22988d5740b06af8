package httpapi

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/journal"
)

const (
	defaultTail = 50
	maxEvents   = 1000 // in one answer
)

// Events are what happened to sandboxes.
type Events interface {
	Last(ctx context.Context, of journal.Of, limit int) ([]api.LifeEvent, error)
	After(ctx context.Context, of journal.Of, after int64, limit int) ([]api.LifeEvent, error)
	Follow(ctx context.Context, of journal.Of, after int64, tail int) iter.Seq2[api.LifeEvent, error]
}

var _ Events = (*journal.Journal)(nil)

func (s *Server) sandboxEvents(w http.ResponseWriter, r *http.Request) error {
	of, err := s.Sandboxes.EventsOf(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.lifeEvents(w, r, of)
}

func (s *Server) allEvents(w http.ResponseWriter, r *http.Request) error {
	return s.lifeEvents(w, r, journal.Of{Owner: owner(r)})
}

// lifeEvents gives the last events, ?tail= of them, or those ?after= a number.
// With ?follow=1 more come as they happen; a broken stream goes on after
// Last-Event-ID.
func (s *Server) lifeEvents(w http.ResponseWriter, r *http.Request, of journal.Of) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	tail, err := upTo(q, "tail", defaultTail, maxEvents)
	if err != nil {
		return err
	}
	after, err := natural(q, "after", -1)
	if err != nil {
		return err
	}
	follows, err := boolean(q, "follow")
	if err != nil {
		return err
	}
	if r.Header.Get("Last-Event-ID") != "" {
		if after, err = lastEventID(r); err != nil {
			return err
		}
	}
	if follows {
		return s.followLife(w, r, s.Events.Follow(r.Context(), of, after, int(tail)))
	}
	var list []api.LifeEvent
	if after >= 0 {
		list, err = s.Events.After(r.Context(), of, after, maxEvents)
	} else {
		list, err = s.Events.Last(r.Context(), of, int(tail))
	}
	if err != nil {
		return err
	}
	return ok(w, api.LifeEvents{Events: list})
}

func (s *Server) followLife(w http.ResponseWriter, r *http.Request, events iter.Seq2[api.LifeEvent, error]) error {
	out := newSSE(w, keepAlive)
	defer out.close()
	if err := out.begin(); err != nil { // it may stay silent for long
		return err
	}
	for e, err := range events {
		if err == nil {
			err = out.send(e.ID, "event", e)
		}
		if err != nil {
			return err // the connection is cut: the client comes back with Last-Event-ID
		}
	}
	return nil
}

// boolean reads 1, true, 0 or false from the query; false when it is absent.
func boolean(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, fault.InvalidField(name, "%s must be 1 or 0, but is %s", name, shown(v))
	}
}
