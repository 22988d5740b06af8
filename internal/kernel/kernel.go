// Package kernel is code contexts and executions as the host sees them: it
// runs cells in the guest, follows their numbered events, puts an Execution
// together from them, and attaches again when the link breaks in the middle.
// The HTTP API and the agent loop call it.
//
// It never sends a cell twice under different ids, never keeps state that a
// restart of the daemon would lose, and never talks to a driver or the store.
package kernel

import (
	"context"
	"iter"
	"log/slog"
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

// Config bounds executions. Zero values mean the defaults beside them.
type Config struct {
	Logger         *slog.Logger
	DefaultTimeout time.Duration // 30 s
	MaxTimeout     time.Duration // 1 h; a request for more is invalid
	DisconnectWait time.Duration // 10 s until the cell of a client that is gone is interrupted
}

// Service runs code in contexts. Close it before the requests in progress are
// cancelled at the end of the daemon, so that they do not count as clients
// that went away.
type Service struct{}

// New makes a Service.
func New(guests Guests, cfg Config) *Service { return &Service{} }

// Close ends the watch over clients that went away; running cells go on.
func (s *Service) Close() {}

var errSoon = fault.New(api.CodeUnsupported, "not yet")

// CreateContext makes a context; an empty ID is filled in.
func (s *Service) CreateContext(ctx context.Context, owner, sid string, req api.CreateContextRequest) (api.Context, error) {
	return api.Context{}, errSoon
}

// Contexts lists the contexts of a sandbox.
func (s *Service) Contexts(ctx context.Context, owner, sid string) ([]api.Context, error) {
	return nil, errSoon
}

// Context describes one; "default" is made if it does not exist yet.
func (s *Service) Context(ctx context.Context, owner, sid, cid string) (api.Context, error) {
	return api.Context{}, errSoon
}

// CloseContext ends one. Closing one that does not exist is no error.
func (s *Service) CloseContext(ctx context.Context, owner, sid, cid string) error { return errSoon }

// Interrupt stops the running cell of a context, if any.
func (s *Service) Interrupt(ctx context.Context, owner, sid, cid string) error { return errSoon }

// InterruptExecution stops one execution, running or queued.
func (s *Service) InterruptExecution(ctx context.Context, owner, sid, cid, eid string) error {
	return errSoon
}

// Restart gives a context a new interpreter.
func (s *Service) Restart(ctx context.Context, owner, sid, cid string) (api.Context, error) {
	return api.Context{}, errSoon
}

// Run runs a cell and waits for its end. A cell that raises or hits its
// deadline is an outcome, not an error.
func (s *Service) Run(ctx context.Context, owner, sid, cid string, req api.RunRequest) (api.Execution, error) {
	return api.Execution{}, errSoon
}

// Stream runs a cell and gives its events as they happen, ending with the end
// event. Its Execution holds all but the streamed parts.
func (s *Service) Stream(ctx context.Context, owner, sid, cid string, req api.RunRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) { yield(api.Event{}, errSoon) }
}

// Attach gives the events of an execution from after on. With follow it goes
// on until the end, without it waits for the end and gives what was kept.
func (s *Service) Attach(ctx context.Context, owner, sid, cid, eid string, after int64, follow bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) { yield(api.Event{}, errSoon) }
}

// Wait waits for an execution and gives it whole.
func (s *Service) Wait(ctx context.Context, owner, sid, cid, eid string) (api.Execution, error) {
	return api.Execution{}, errSoon
}

// Languages names what OneShot runs.
func Languages() []string { return []string{"python", "bash", "sh", "node"} }

// OneShot runs code that leaves no state: Python in a context of its own, the
// others as processes. A timeout of 0 is the default.
func (s *Service) OneShot(ctx context.Context, owner, sid, language, code string, timeout time.Duration) (OneShot, error) {
	return OneShot{}, errSoon
}

// OneShot is what OneShot gives: the answer of POST …/repl.
type OneShot struct {
	Language string `json:"language"`
	api.Execution
}
