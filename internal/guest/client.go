package guest

import (
	"context"
	"io"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Client speaks with the guest of one generation of a sandbox over one
// connection. When that breaks, calls fail with ErrLinkLost and the Listener
// has a new Client as soon as the guest has dialled again.
type Client struct{}

// Events is a numbered stream of output. Close it.
type Events struct{}

// File is the content of a file in the guest. Close Body.
type File struct {
	Body    io.ReadCloser
	Size    int64 // of this answer
	Start   int64 // offset of the first byte
	Total   int64 // size of the whole file
	Partial bool  // a range of it
	ModTime time.Time
}

// Next gives the next event, io.EOF after the last.
func (e *Events) Next() (api.Event, error) { return api.Event{}, io.EOF }

// Close ends the stream; what produces it goes on.
func (e *Events) Close() error { return nil }

var errSoon = fault.New(api.CodeUnsupported, "not yet")

func (c *Client) Health(ctx context.Context) (guestapi.Health, error) {
	return guestapi.Health{}, errSoon
}
func (c *Client) Assign(ctx context.Context, req guestapi.AssignRequest) (guestapi.AssignResponse, error) {
	return guestapi.AssignResponse{}, errSoon
}
func (c *Client) Warm(ctx context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error) {
	return guestapi.WarmResponse{}, errSoon
}
func (c *Client) Contexts(ctx context.Context) ([]api.Context, error) { return nil, errSoon }
func (c *Client) CreateContext(ctx context.Context, req api.CreateContextRequest) (api.Context, error) {
	return api.Context{}, errSoon
}
func (c *Client) Context(ctx context.Context, cid string) (api.Context, error) {
	return api.Context{}, errSoon
}
func (c *Client) CloseContext(ctx context.Context, cid string) error     { return errSoon }
func (c *Client) InterruptContext(ctx context.Context, cid string) error { return errSoon }
func (c *Client) RestartContext(ctx context.Context, cid string) (api.Context, error) {
	return api.Context{}, errSoon
}
func (c *Client) Run(ctx context.Context, cid string, req guestapi.RunRequest) (*Events, error) {
	return nil, errSoon
}
func (c *Client) Attach(ctx context.Context, cid, eid string, after int64, follow bool) (*Events, error) {
	return nil, errSoon
}
func (c *Client) InterruptExecution(ctx context.Context, cid, eid string) error { return errSoon }

func (c *Client) Processes(ctx context.Context) ([]api.Process, error) { return nil, errSoon }
func (c *Client) StartProcess(ctx context.Context, req guestapi.StartProcess) (api.Process, error) {
	return api.Process{}, errSoon
}
func (c *Client) Process(ctx context.Context, pid int) (api.Process, error) {
	return api.Process{}, errSoon
}
func (c *Client) ProcessEvents(ctx context.Context, pid int, after int64, follow bool) (*Events, error) {
	return nil, errSoon
}
func (c *Client) WriteStdin(ctx context.Context, pid int, r io.Reader) error { return errSoon }
func (c *Client) CloseStdin(ctx context.Context, pid int) error              { return errSoon }
func (c *Client) SignalProcess(ctx context.Context, pid int, signal string) error {
	return errSoon
}
func (c *Client) KillProcess(ctx context.Context, pid int) error { return errSoon }

func (c *Client) ReadFile(ctx context.Context, path, rangeHeader string) (*File, error) {
	return nil, errSoon
}
func (c *Client) WriteFile(ctx context.Context, path, mode string, r io.Reader) (api.WriteResult, error) {
	return api.WriteResult{}, errSoon
}
func (c *Client) RemoveFile(ctx context.Context, path string, recursive bool) error { return errSoon }
func (c *Client) Stat(ctx context.Context, path string) (api.FileInfo, error) {
	return api.FileInfo{}, errSoon
}
func (c *Client) ListDir(ctx context.Context, path string) (api.DirListing, error) {
	return api.DirListing{}, errSoon
}
func (c *Client) Mkdir(ctx context.Context, path string) error        { return errSoon }
func (c *Client) Move(ctx context.Context, req api.MoveRequest) error { return errSoon }
