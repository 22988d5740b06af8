// Package process runs commands in a sandbox and waits for them: it starts
// them in the guest, follows their output, attaches again when the link breaks
// in the middle, and keeps the deadline. The HTTP API calls it, and package
// kernel for one-shot code in other languages.
//
// Processes that are only started and listed need none of it: those calls go
// straight to guest.Client.
package process

import (
	"context"
	"iter"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
)

// Guests gives the link to a sandbox for the length of one call. It is
// sandbox.Manager.
type Guests interface {
	Guest(ctx context.Context, owner, sandboxID string) (*guest.Client, func(), error)
}

// Config bounds commands. Zero values mean the defaults beside them.
type Config struct {
	DefaultTimeout time.Duration // 60 s
	MaxTimeout     time.Duration // 24 h; a request for more is invalid
}

// Service runs commands. Close it before the requests in progress are
// cancelled at the end of the daemon, so that their commands go on.
type Service struct{}

// New makes a Service.
func New(guests Guests, cfg Config) *Service { return &Service{} }

// Close keeps commands alive whose callers go away from now on.
func (s *Service) Close() {}

var errSoon = fault.New(api.CodeUnsupported, "not yet")

// Exec runs a command and waits for its end. A command that fails or runs out
// of time is an outcome, not an error. When the context ends first, the
// command's whole group is killed.
func (s *Service) Exec(ctx context.Context, owner, sid string, req api.ExecRequest) (api.ExecResult, error) {
	return api.ExecResult{}, errSoon
}

// ExecStream is Exec with the events as they happen: started, stdout, stderr,
// gap, and exit at the end, whose Exit.Reason is "timeout" when time ran out.
func (s *Service) ExecStream(ctx context.Context, owner, sid string, req api.ExecRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) { yield(api.Event{}, errSoon) }
}
