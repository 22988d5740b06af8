package guest

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func processPath(pid int, rest string) string { return "/processes/" + strconv.Itoa(pid) + rest }

// Processes lists the processes that were started through the guest, running
// or ended a while ago.
func (c *Client) Processes(ctx context.Context) ([]api.Process, error) {
	var out []api.Process
	if err := c.do(ctx, call{method: http.MethodGet, path: "/processes"}, &out); err != nil {
		return nil, err
	}
	if len(out) > maxListed {
		return nil, nonsense("%d processes", len(out))
	}
	for i := range out {
		if err := checkProcess(&out[i]); err != nil {
			return nil, nonsense("%w", err)
		}
	}
	return out, nil
}

// StartProcess starts a process and returns at once.
func (c *Client) StartProcess(ctx context.Context, req guestapi.StartProcess) (api.Process, error) {
	if req.PTY != nil {
		if err := c.needs(terminals, "give a process a terminal"); err != nil {
			return api.Process{}, err
		}
	}
	return c.oneProcess(ctx, call{method: http.MethodPost, path: "/processes", json: req})
}

// terminals is the version of the protocol that brought them.
const terminals = 4

// ResizeProcess sets the size of a process's terminal.
func (c *Client) ResizeProcess(ctx context.Context, pid int, size api.PTY) error {
	if err := c.needs(terminals, "resize a terminal"); err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodPost, path: processPath(pid, "/resize"), json: size}, nil)
}

// Process describes a process.
func (c *Client) Process(ctx context.Context, pid int) (api.Process, error) {
	return c.oneProcess(ctx, call{method: http.MethodGet, path: processPath(pid, "")})
}

func (c *Client) oneProcess(ctx context.Context, in call) (api.Process, error) {
	var out api.Process
	if err := c.do(ctx, in, &out); err != nil {
		return api.Process{}, err
	}
	if err := checkProcess(&out); err != nil {
		return api.Process{}, nonsense("%w", err)
	}
	return out, nil
}

// ProcessEvents gives the output of a process with a number above after, and
// its exit. Follow is as in Attach.
func (c *Client) ProcessEvents(ctx context.Context, pid int, after int64, follow bool) (*Events, error) {
	return c.events(ctx, call{method: http.MethodGet, path: processPath(pid, "/events"), query: afterQuery(after, follow)}, after)
}

// WriteStdin appends to the standard input of a process. A program may take
// its time until it reads.
func (c *Client) WriteStdin(ctx context.Context, pid int, r io.Reader) error {
	src := &source{r: r}
	err := c.do(ctx, call{method: http.MethodPost, path: processPath(pid, "/stdin"), body: src, time: longCall}, nil)
	if serr := src.failed(); serr != nil {
		return serr // ours, not the guest's
	}
	return err
}

// CloseStdin ends the standard input of a process; to a terminal it is a Ctrl-D.
func (c *Client) CloseStdin(ctx context.Context, pid int) error {
	return c.do(ctx, call{method: http.MethodPost, path: processPath(pid, "/stdin/close")}, nil)
}

// SignalProcess sends a signal to the group of a process.
func (c *Client) SignalProcess(ctx context.Context, pid int, signal string) error {
	return c.do(ctx, call{method: http.MethodPost, path: processPath(pid, "/signal"), json: api.SignalRequest{Signal: signal}}, nil)
}

// KillProcess kills the group of a process.
func (c *Client) KillProcess(ctx context.Context, pid int) error {
	return c.do(ctx, call{method: http.MethodDelete, path: processPath(pid, "")}, nil)
}
