// Package kernel is code contexts and executions as the host sees them: it
// runs cells in the guest, follows their numbered events, puts an Execution
// together from them, and attaches again when the link breaks in the middle.
// The HTTP API and the agent loop call it.
//
// It never sends a cell twice under different ids, never keeps state that a
// restart of the daemon would miss, and never talks to a driver or the store.
package kernel

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/process"
)

// Guests gives the link to a sandbox for the length of one call. It is
// sandbox.Manager.
type Guests interface {
	Guest(ctx context.Context, owner, sandboxID string) (*guest.Client, func(), error)
}

// Notes keeps what happens in a sandbox. It is sandbox.Manager.
type Notes interface {
	Note(owner, sandboxID, kind string, payload map[string]any)
}

// Metrics is told of each cell that ended: how, see api.End, and how long the
// guest says that it ran.
type Metrics interface {
	CellEnded(end api.End, took time.Duration)
}

// Config bounds executions. Zero values mean the defaults beside them.
type Config struct {
	Logger         *slog.Logger
	Notes          Notes         // nil: nothing is noted
	Metrics        Metrics       // nil: nothing is counted
	DefaultTimeout time.Duration // 30 s
	MaxTimeout     time.Duration // 1 h; a request for more is invalid
	DisconnectWait time.Duration // 10 s until the cell of a client that is gone is interrupted
	HoldBytes      int           // 512 MiB of output that all answers being put together hold, one owner's half of it

	// Hint says which limit of a sandbox explains the end of a cell, "" when none does.
	Hint func(ctx context.Context, owner, sandboxID, end, words string) string
	// Held is how long calls of a sandbox have waited for people's decisions, all
	// together: the deadlines of its cells stand still meanwhile. nil: none ever do.
	Held func(sandboxID string) time.Duration
}

// Service runs code in contexts. Close it before the requests in progress are
// cancelled at the end of the daemon, so that they do not count as clients
// that went away.
type Service struct {
	guests   Guests
	cfg      Config
	commands *process.Service
	watch    *watch
	budget   *budget
	told     *told
	taps     taps
}

// New makes a Service.
func New(guests Guests, cfg Config) *Service {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for v, def := range map[*time.Duration]time.Duration{
		&cfg.DefaultTimeout: 30 * time.Second, &cfg.MaxTimeout: time.Hour, &cfg.DisconnectWait: 10 * time.Second,
	} {
		if *v == 0 {
			*v = def
		}
	}
	if cfg.HoldBytes == 0 {
		cfg.HoldBytes = 512 << 20
	}
	s := &Service{
		guests: guests, cfg: cfg, taps: taps{known: map[string]map[*tap]bool{}}, budget: newBudget(cfg.HoldBytes), told: newTold(),
		commands: process.New(guests, process.Config{MaxTimeout: cfg.MaxTimeout, Notes: cfg.Notes, Hint: cfg.Hint}),
	}
	s.watch = newWatch(cfg.DisconnectWait, s.interruptLeft)
	return s
}

// Close ends the watch over clients that went away; running cells go on.
func (s *Service) Close() {
	s.watch.close()
	s.commands.Close()
}

func (s *Service) link(owner, sid string) guest.Link {
	return func(ctx context.Context) (*guest.Client, func(), error) { return s.guests.Guest(ctx, owner, sid) }
}

// newID makes the id of a context or an execution.
func newID(prefix string) string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return prefix + hex.EncodeToString(b)
}
