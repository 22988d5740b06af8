package template

import (
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Driver is what a build needs of a driver. A driver that also is a
// driver.Fingerprinter has new snapshots made when its fingerprint changes.
type Driver interface {
	driver.Driver
	driver.Builder
	driver.Snapshotter
}

// Guest is the host's end of a link, as far as a build needs it.
type Guest interface {
	Health(ctx context.Context) (guestapi.Health, error)
	Warm(ctx context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error)
	Close() error
}

// Linker listens on guestapi's socket in a host folder. Accept, which is
// called after the sandbox was started, waits for its agent.
type Linker func(ctx context.Context, linkDir string) (accept func(ctx context.Context) (Guest, error), err error)

// Builder makes templates.
type Builder struct {
	Store    *Store
	Driver   Driver
	Link     Linker
	Programs fs.FS  // guest (the static agent) and kernel/ (the interpreter side)
	Mirror   string // a line of sources.list instead of the machine's own, with the suite replaced
	Log      *slog.Logger
	Now      func() time.Time // nil: the clock
}

// Build makes the template of a recipe, or finds that it is there already.
// Progress may be nil.
func (b *Builder) Build(ctx context.Context, recipe Recipe, progress func(Event)) (Template, error) {
	return Template{}, nil
}
