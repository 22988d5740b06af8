package template

import (
	"context"
	"log/slog"

	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Guest is the host's end of a link, as far as a build needs it.
type Guest interface {
	Health(ctx context.Context) (guestapi.Health, error)
	Warm(ctx context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error)
}

var _ Guest = (*guest.Client)(nil)

// Link waits for the agent of one sandbox.
type Link interface {
	Guest(ctx context.Context) (Guest, error)
	Close() error
}

// Linker listens in the host folder that a sandbox sees as guestapi.LinkDir.
type Linker func(dir, sandboxID string) (Link, error)

// guestLinker makes links with package guest.
func guestLinker(log *slog.Logger) Linker {
	return func(dir, sandboxID string) (Link, error) {
		l, err := guest.Listen(guest.Options{Dir: dir, SandboxID: sandboxID, Logger: log})
		if err != nil {
			return nil, err
		}
		return guestLink{l}, nil
	}
}

type guestLink struct{ *guest.Listener }

func (l guestLink) Guest(ctx context.Context) (Guest, error) { return l.Client(ctx) }
