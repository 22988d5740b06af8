package kernel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/nearest"
)

const python = "python"

// pythonNames are what callers call Python.
var pythonNames = []string{"", "python", "python3", "py"}

// CreateContext makes a context; an empty ID is filled in.
func (s *Service) CreateContext(ctx context.Context, owner, sid string, req api.CreateContextRequest) (api.Context, error) {
	if !slices.Contains(pythonNames, strings.ToLower(req.Language)) {
		return api.Context{}, fault.InvalidField("language", "contexts speak python, not %.40q", req.Language).
			WithHint("run other languages as commands, or with POST …/repl")
	}
	req.Language = python
	if req.ID == "" {
		req.ID = newID("ctx-")
	}
	if err := guestapi.CheckID("id", req.ID); err != nil {
		return api.Context{}, err
	}
	if req.CWD == "" {
		req.CWD = guestapi.Workspace
	}
	if req.CWD[0] != '/' || strings.ContainsRune(req.CWD, 0) {
		return api.Context{}, fault.InvalidField("cwd", "cwd must be an absolute path, but is %.80q", req.CWD)
	}
	for k, v := range req.Envs {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return api.Context{}, fault.InvalidField("envs", "%.40q cannot be an environment variable", k)
		}
	}
	ctx = guest.Unrepeatable(ctx)
	out, err := withClient(ctx, s, owner, sid, func(c *guest.Client) (api.Context, error) { return c.CreateContext(ctx, req) })
	if err != nil {
		s.refused(owner, sid, "contexts", err)
		return out, err
	}
	s.noteContext(owner, sid, out.ID, api.LifeContextStarted)
	return out, nil
}

// Contexts lists the contexts of a sandbox.
func (s *Service) Contexts(ctx context.Context, owner, sid string) ([]api.Context, error) {
	return withClient(ctx, s, owner, sid, func(c *guest.Client) ([]api.Context, error) { return c.Contexts(ctx) })
}

// Context describes one; "default" is made if it does not exist yet.
func (s *Service) Context(ctx context.Context, owner, sid, cid string) (api.Context, error) {
	return onContext(ctx, s, owner, sid, cid, func(c *guest.Client) (api.Context, error) { return c.Context(ctx, cid) })
}

// CloseContext ends one. Closing one that does not exist is no error.
func (s *Service) CloseContext(ctx context.Context, owner, sid, cid string) error {
	_, err := withClient(ctx, s, owner, sid, func(c *guest.Client) (struct{}, error) {
		err := c.CloseContext(ctx, cid)
		switch {
		case err == nil:
			s.noteContext(owner, sid, cid, api.LifeContextEnded)
		case errors.Is(err, fault.NotFound):
			err = nil
		}
		return struct{}{}, err
	})
	return err
}

// Interrupt stops the running cell of a context, if any.
func (s *Service) Interrupt(ctx context.Context, owner, sid, cid string) error {
	_, err := withClient(ctx, s, owner, sid, func(c *guest.Client) (struct{}, error) {
		return struct{}{}, s.near(ctx, c, cid, c.InterruptContext(ctx, cid))
	})
	return err
}

// InterruptExecution stops one execution, running or queued.
func (s *Service) InterruptExecution(ctx context.Context, owner, sid, cid, eid string) error {
	_, err := withClient(ctx, s, owner, sid, func(c *guest.Client) (struct{}, error) {
		return struct{}{}, c.InterruptExecution(ctx, cid, eid)
	})
	return err
}

// Restart gives a context a new interpreter.
func (s *Service) Restart(ctx context.Context, owner, sid, cid string) (api.Context, error) {
	ctx = guest.Unrepeatable(ctx)
	out, err := onContext(ctx, s, owner, sid, cid, func(c *guest.Client) (api.Context, error) { return c.RestartContext(ctx, cid) })
	if err == nil {
		s.noteContext(owner, sid, cid, api.LifeContextRestarted)
	}
	return out, err
}

// ForkContext makes copies of a context, each with all that it holds; 0 for one.
func (s *Service) ForkContext(ctx context.Context, owner, sid, cid string, count int) (api.ForkContextResponse, error) {
	if count == 0 {
		count = 1
	}
	if count < 1 || count > guestapi.MaxForks {
		return api.ForkContextResponse{}, fault.InvalidField("count", "count must lie between 1 and %d, not %d", guestapi.MaxForks, count)
	}
	ctx = guest.Unrepeatable(ctx)
	var ids []string
	for range count {
		ids = append(ids, newID("ctx-"))
	}
	out, err := onContext(ctx, s, owner, sid, cid, func(c *guest.Client) (guestapi.ForkResponse, error) { return c.ForkContext(ctx, cid, ids) })
	if err != nil {
		s.refused(owner, sid, "contexts", err)
		return api.ForkContextResponse{}, err
	}
	for _, id := range ids {
		s.noteContext(owner, sid, id, api.LifeContextStarted)
	}
	return api.ForkContextResponse{Children: out.Contexts, Warnings: out.Warnings}, nil
}

// relinks is how often a call is made again when the link to the guest breaks
// under it, as it does when the sandbox is put to sleep.
const relinks = 3

// withClient makes a call to the guest of a sandbox. One whose context says
// that it cannot be made again is made once, and what breaks links on purpose
// waits for its end; any other must have the same effect once and twice.
func withClient[T any](ctx context.Context, s *Service, owner, sid string, f func(*guest.Client) (T, error)) (T, error) {
	for n := 0; ; n++ {
		client, done, err := s.guests.Guest(ctx, owner, sid)
		if err != nil {
			var zero T
			return zero, err
		}
		out, err := f(client)
		done()
		if n == relinks || !errors.Is(err, guest.ErrLinkLost) || guest.IsUnrepeatable(ctx) {
			return out, err
		}
	}
}

// onContext is withClient for a call about one context: the default one is
// made when it is missing, and for any other the nearest names are given.
func onContext[T any](ctx context.Context, s *Service, owner, sid, cid string, f func(*guest.Client) (T, error)) (T, error) {
	return withClient(ctx, s, owner, sid, func(c *guest.Client) (T, error) {
		out, err := f(c)
		if cid == api.DefaultContext && errors.Is(err, fault.NotFound) {
			if err := s.makeDefault(ctx, owner, sid, c); err != nil {
				return out, err
			}
			out, err = f(c)
		}
		return out, s.near(ctx, c, cid, err)
	})
}

// makeDefault makes the default context. Somebody else may be faster.
func (s *Service) makeDefault(ctx context.Context, owner, sid string, c *guest.Client) error {
	_, err := c.CreateContext(ctx, api.CreateContextRequest{ID: api.DefaultContext, Language: python, CWD: guestapi.Workspace})
	switch {
	case err == nil:
		s.noteContext(owner, sid, api.DefaultContext, api.LifeContextStarted)
	case errors.Is(err, fault.Conflict) && !errors.Is(err, guest.ErrLinkLost):
		return nil
	}
	return err
}

// near adds the nearest names to an error about an unknown context.
func (s *Service) near(ctx context.Context, c *guest.Client, cid string, err error) error {
	var f *fault.Error
	if !errors.Is(err, fault.NotFound) || !errors.As(err, &f) || f.Hint != "" {
		return err
	}
	list, lerr := c.Contexts(ctx)
	if lerr != nil {
		return err // it says enough
	}
	var names []string
	for _, x := range list {
		names = append(names, x.ID)
	}
	if slices.Contains(names, cid) {
		return err // it was something else that was not found
	}
	if hint := nearest.Hint(cid, names, "contexts"); hint != "" {
		return f.WithHint("%s", hint)
	}
	return err
}
