package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/nearest"
	"github.com/pandastack/pandastack/internal/store"
)

var errClosed = fault.New(api.CodeNoCapacity, "the server is shutting down").WithHint("try again in a few seconds")

// errUnknown is for an id that is nobody's, or somebody else's: the two must
// look the same.
func errUnknown(id string, mine []string) error {
	e := fault.New(api.CodeNotFound, "there is no sandbox %.80q", id)
	if near := nearest.Names(id, mine); len(near) > 0 {
		return e.WithHint("%s", nearest.Hint(id, mine, "sandboxes"))
	}
	return e
}

// errState says why a sandbox in this state cannot take a call.
func errState(row store.Sandbox) error {
	switch row.State {
	case store.Creating:
		return fault.New(api.CodeConflict, "sandbox %s is still being created", row.ID).WithHint("try again in a moment")
	case store.Hibernated:
		return fault.Wrap(errAsleep, api.CodeConflict, "sandbox %s was hibernated", row.ID).WithHint("any new call wakes it")
	case store.Paused:
		return fault.New(api.CodeConflict, "sandbox %s is paused", row.ID).WithHint("resume it first")
	case store.Stopping, store.Deleted, store.Failed:
		e := fault.New(api.CodeConflict, "sandbox %s has ended: %s", row.ID, reasonWords(row.EndReason))
		if row.State == store.Deleted {
			e.Code = api.CodeNotFound
		}
		e.Err = &guest.EndedError{Reason: row.EndReason}
		return e.WithHint("create a new one")
	default:
		return fault.New(api.CodeConflict, "sandbox %s is %s", row.ID, row.State)
	}
}

// errAsleep marks what a hibernated sandbox cannot do until it is woken.
var errAsleep = errors.New("it sleeps")

// The reasons for an end that are kept in EndReason.
const (
	reasonKilled    = "killed"  // somebody asked for it
	reasonTTL       = "ttl"     // its time was up
	reasonOOM       = "oom"     // it used more memory than it may
	reasonCrashed   = "crashed" // the sandbox itself failed
	reasonExited    = "exited"  // its first program ended
	reasonLost      = "lost"    // gone when the daemon came back
	reasonCreate    = "create_failed"
	reasonUnused    = "unused"    // from a pool
	reasonRetention = "retention" // it was hibernated for too long
)

func reasonWords(reason string) string {
	switch reason {
	case reasonKilled:
		return "it was killed"
	case reasonTTL:
		return "its time to live was over"
	case reasonOOM:
		return "it used more memory than it may"
	case reasonCrashed:
		return "it crashed"
	case reasonExited:
		return "its first program ended"
	case reasonLost:
		return "it was gone when the server came back"
	case reasonRetention:
		return "it was hibernated for longer than this server keeps such"
	case reasonCreate:
		return "it could not be created"
	default:
		return reason
	}
}

func errUnsupported(field, what string) error {
	e := fault.New(api.CodeUnsupported, "%s is not supported by this server yet", what)
	e.Field = field
	return e
}

// errStale is for a template that this program cannot restore.
func errStale(template string, err error) error {
	return fault.Wrap(err, api.CodeConflict, "the template %s was built for another version of PandaStack or another machine", template).
		WithHint("rebuild it: pandastack template build %s", template)
}

// isStale tells whether a template has to be built again: the driver cannot
// read its snapshot, or the agent in it speaks a language of the past.
func isStale(err error) bool {
	return errors.Is(err, driver.ErrStale) || errors.Is(err, guest.ErrProtocol)
}

// ours turns an error of the driver or the guest into one that is not the
// user's: to them it makes no difference that, say, a snapshot was not found.
// What they can act upon stays.
func ours(err error, words string) error {
	for _, kind := range []error{fault.NoCapacity, fault.NoSpace, fault.Timeout, errKilled, errClosed, context.Canceled} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%s: %w", words, err)
		}
	}
	if e := short(err); e != nil {
		return fmt.Errorf("%s: %w", words, e)
	}
	e := fault.Wrap(err, api.CodeInternal, "%s", words)
	var inner *fault.Error
	if errors.As(err, &inner) {
		switch inner.Field {
		case "cpu", "memory_mb", "disk_mb", "pids": // a limit that this driver cannot give
			return inner
		}
		e.Hint = inner.Hint
	}
	return e
}

// rebuild says what helps when the snapshot of a template is damaged. It may
// be that without anybody having noticed, so also where no remedy is known.
func rebuild(err error, template string) error {
	var e *fault.Error
	if !errors.As(err, &e) || e.Code != api.CodeInternal {
		return err
	}
	const build = "the operator has to build the template again: pandastack template build %s"
	switch {
	case errors.Is(err, fault.Conflict), errors.Is(err, fault.NotFound):
		return e.WithHint(build, template)
	case e.Hint == "":
		return e.WithHint("if it happens again, "+build, template)
	}
	return err
}

// cause joins what went wrong with what went wrong while cleaning up.
func cause(err, cleanup error) error {
	if cleanup == nil {
		return err
	}
	return errors.Join(err, fmt.Errorf("and cleaning up: %w", cleanup))
}

// stopped gives the reason why work was stopped in place of an error that only
// says that it was.
func stopped(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && errors.Is(err, context.Canceled) {
		return c
	}
	return err
}
