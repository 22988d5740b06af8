package guest

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const notebooks = 8 // the protocol that has them

// contextPath is where a context is. The id was checked, or is refused here:
// it must not lead to another route.
func contextPath(cid string, rest string) (string, error) {
	if !guestapi.ValidID(cid) {
		return "", fault.New(api.CodeNotFound, "no context %q", cut(cid, maxName))
	}
	return "/contexts/" + cid + rest, nil
}

func executionPath(cid, eid, rest string) (string, error) {
	if !guestapi.ValidID(eid) {
		return "", fault.New(api.CodeNotFound, "no execution %q", cut(eid, maxName))
	}
	return contextPath(cid, "/executions/"+eid+rest)
}

// Contexts lists the code contexts.
func (c *Client) Contexts(ctx context.Context) ([]api.Context, error) {
	var out []api.Context
	if err := c.do(ctx, call{method: http.MethodGet, path: "/contexts"}, &out); err != nil {
		return nil, err
	}
	if len(out) > guestapi.MaxContexts {
		return nil, nonsense("%d contexts", len(out))
	}
	for i := range out {
		if err := checkContext(&out[i], c.sandboxID); err != nil {
			return nil, nonsense("%w", err)
		}
	}
	return out, nil
}

// CreateContext makes a code context under the id in the request.
func (c *Client) CreateContext(ctx context.Context, req api.CreateContextRequest) (api.Context, error) {
	return c.oneContext(ctx, call{method: http.MethodPost, path: "/contexts", json: req, time: slowCallTime}, req.ID)
}

// Context describes a code context.
func (c *Client) Context(ctx context.Context, cid string) (api.Context, error) {
	path, err := contextPath(cid, "")
	if err != nil {
		return api.Context{}, err
	}
	return c.oneContext(ctx, call{method: http.MethodGet, path: path}, cid)
}

// CloseContext ends a code context.
func (c *Client) CloseContext(ctx context.Context, cid string) error {
	path, err := contextPath(cid, "")
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodDelete, path: path}, nil)
}

// InterruptContext stops the running cell of a context, if any.
func (c *Client) InterruptContext(ctx context.Context, cid string) error {
	path, err := contextPath(cid, "/interrupt")
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: path}, nil)
}

// RestartContext gives a context a new interpreter.
func (c *Client) RestartContext(ctx context.Context, cid string) (api.Context, error) {
	path, err := contextPath(cid, "/restart")
	if err != nil {
		return api.Context{}, err
	}
	return c.oneContext(ctx, call{method: http.MethodPost, path: path, time: slowCallTime}, cid)
}

// ForkContext makes copies of a code context, one under each id.
func (c *Client) ForkContext(ctx context.Context, cid string, ids []string) (guestapi.ForkResponse, error) {
	var out guestapi.ForkResponse
	path, err := contextPath(cid, "/fork")
	if err != nil {
		return out, err
	}
	in := call{method: http.MethodPost, path: path, json: guestapi.ForkRequest{IDs: ids}, time: slowCallTime}
	if err := c.do(ctx, in, &out); err != nil {
		return guestapi.ForkResponse{}, err
	}
	if len(out.Contexts) != len(ids) || len(out.Warnings) > maxSteps {
		return guestapi.ForkResponse{}, nonsense("%d copies with %d warnings for %d ids", len(out.Contexts), len(out.Warnings), len(ids))
	}
	for i := range out.Contexts {
		if err := checkContext(&out.Contexts[i], c.sandboxID); err != nil {
			return guestapi.ForkResponse{}, nonsense("%w", err)
		}
		if out.Contexts[i].ID != ids[i] {
			return guestapi.ForkResponse{}, nonsense("context %s instead of %s", out.Contexts[i].ID, ids[i])
		}
	}
	for i, w := range out.Warnings {
		out.Warnings[i] = plain(w, maxMessage)
	}
	return out, nil
}

func (c *Client) oneContext(ctx context.Context, in call, cid string) (api.Context, error) {
	var out api.Context
	if err := c.do(ctx, in, &out); err != nil {
		return api.Context{}, err
	}
	if err := checkContext(&out, c.sandboxID); err != nil {
		return api.Context{}, nonsense("%w", err)
	}
	if cid != "" && out.ID != cid {
		return api.Context{}, nonsense("context %s instead of %s", out.ID, cid)
	}
	return out, nil
}

// Run starts an execution, or attaches to the one that has its id already.
func (c *Client) Run(ctx context.Context, cid string, req guestapi.RunRequest) (*Events, error) {
	path, err := contextPath(cid, "/executions")
	if err != nil {
		return nil, err
	}
	if req.Notebook != nil || req.Ask != nil {
		if err := c.needs(notebooks, "run cells of notebooks"); err != nil {
			return nil, err
		}
	}
	return c.events(ctx, call{method: http.MethodPost, path: path, json: req}, req.After)
}

// Attach gives the events of an execution that have a number above after.
// With follow they come as they happen; without it the answer waits for the
// end and gives what was kept.
func (c *Client) Attach(ctx context.Context, cid, eid string, after int64, follow bool) (*Events, error) {
	path, err := executionPath(cid, eid, "")
	if err != nil {
		return nil, err
	}
	return c.events(ctx, call{method: http.MethodGet, path: path, query: afterQuery(after, follow)}, after)
}

// InterruptExecution stops one execution, running or queued.
func (c *Client) InterruptExecution(ctx context.Context, cid, eid string) error {
	path, err := executionPath(cid, eid, "/interrupt")
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: path}, nil)
}

// Input answers the input() of a running execution.
func (c *Client) Input(ctx context.Context, cid, eid, value string) error {
	if err := c.needs(notebooks, "be answered in input()"); err != nil {
		return err
	}
	path, err := executionPath(cid, eid, "/input")
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: path, json: guestapi.InputReply{Value: value}}, nil)
}

func afterQuery(after int64, follow bool) url.Values {
	q := url.Values{"after": {strconv.FormatInt(after, 10)}, "follow": {"0"}}
	if follow {
		q.Set("follow", "1")
	}
	return q
}
