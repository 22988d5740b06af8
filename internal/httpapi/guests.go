package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/pandastack/pandastack/internal/guest"
)

// relinks is how often a call that changes nothing is asked again when the
// link to the guest breaks under it.
const relinks = 3

// withGuest makes a call that may be made again when the link breaks, since it
// has the same effect once and twice.
func (s *Server) withGuest(r *http.Request, call func(ctx context.Context, g *guest.Client) error) error {
	for n := 0; ; n++ {
		err := s.callGuest(r.Context(), r, call)
		if n == relinks || !errors.Is(err, guest.ErrLinkLost) || stateOf(r.Context()).wrote {
			return err
		}
	}
}

// onceWithGuest makes a call that must not be made twice.
func (s *Server) onceWithGuest(r *http.Request, call func(ctx context.Context, g *guest.Client) error) error {
	return s.callGuest(guest.Unrepeatable(r.Context()), r, call)
}

func (s *Server) callGuest(ctx context.Context, r *http.Request, call func(ctx context.Context, g *guest.Client) error) error {
	g, done, err := s.Sandboxes.Guest(ctx, owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer done()
	return call(ctx, g)
}
