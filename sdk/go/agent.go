package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// AgentOptions say what an agent is to do and with which model. Task is needed;
// without a Model the server's own is taken.
type AgentOptions struct {
	api.AgentRequest

	// ModelKey is the key for the model's provider, for this run; "" takes the
	// server's. The server does not store it.
	ModelKey string

	// Functions are those of this program that the code can call, besides Tools.
	// They are called for as long as the run goes on and this program lives. A fork, a
	// replay, and a run that follows one, need those that that run had.
	Functions []Function
}

// AgentRun is a handle on the run of an agent: a model that does a task by
// writing Python in a sandbox.
type AgentRun struct {
	ID   string
	Info api.AgentRun

	client *Client
	path   string
}

// StartAgent begins a run, which goes on by itself. Follow it with
// [AgentRun.Events], or wait for its end with [AgentRun.Wait]. One whose functions
// are not called any more, because the program was started again, has them called
// with [Client.ServeAgentTools].
func (c *Client) StartAgent(ctx context.Context, o AgentOptions) (*AgentRun, error) {
	again := o.ReplayOf
	if o.Fork != nil {
		again = o.Fork.Of
	}
	if again == "" {
		o.Tools = with(o.Tools, o.Functions)
		if o.Tools == nil { // it has those of the run before
			again = o.Follows
		}
	}
	if again != "" {
		if err := c.lacking(ctx, again, o.Functions); err != nil {
			return nil, err
		}
	}
	header := http.Header{}
	if o.ModelKey != "" {
		header.Set(api.ModelKeyHeader, o.ModelKey)
	}
	var info api.AgentRun
	if err := c.callWith(ctx, http.MethodPost, "/agents", nil, header, o.AgentRequest, &info); err != nil {
		return nil, err
	}
	run := c.agent(info)
	if len(o.Functions) > 0 {
		if _, err := c.keepServing(ctx, run.path+"/connect", o.Functions); err != nil && !errors.Is(err, ErrConflict) { // it has ended already
			return nil, errors.Join(err, run.Cancel(context.WithoutCancel(ctx)))
		}
	}
	return run, nil
}

// Agents describes the runs of the key's workspace, the newest first; at most
// limit of them, 0 meaning 100.
func (c *Client) Agents(ctx context.Context, limit int) ([]api.AgentRun, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	var list api.AgentRuns
	return list.Runs, c.call(ctx, http.MethodGet, "/agents", q, nil, &list)
}

// GetAgent finds a run.
func (c *Client) GetAgent(ctx context.Context, id string) (*AgentRun, error) {
	r := c.agent(api.AgentRun{ID: id})
	return r, r.Refresh(ctx)
}

func (c *Client) agent(info api.AgentRun) *AgentRun {
	return &AgentRun{ID: info.ID, Info: info, client: c, path: "/agents/" + url.PathEscape(info.ID)}
}

// Refresh brings Info up to date.
func (r *AgentRun) Refresh(ctx context.Context) error {
	var info api.AgentRun
	if err := r.client.call(ctx, http.MethodGet, r.path, nil, nil, &info); err != nil {
		return err
	}
	r.Info = info
	return nil
}

// Events gives what happens in the run, from after a number on (0: from the
// start), until it ends. When the connection breaks it goes on where it was;
// events without a number may then be missing.
func (r *AgentRun) Events(ctx context.Context, after int64) iter.Seq2[api.AgentEvent, error] {
	return func(yield func(api.AgentEvent, error) bool) {
		var broken time.Time
		for wait := firstPause; ; wait = min(2*wait, lastPause) {
			var failure error
			q := url.Values{"after": {strconv.FormatInt(after, 10)}}
			for raw, err := range r.client.events(ctx, http.MethodGet, r.path+"/events", q, nil) {
				if err != nil {
					failure = err
					break
				}
				var e api.AgentEvent
				if err := json.Unmarshal(raw.data, &e); err != nil {
					yield(e, fmt.Errorf("pandastack: an event cannot be read: %w", err))
					return
				}
				after = max(after, e.Seq)
				broken, wait = time.Time{}, firstPause
				if !yield(e, nil) {
					return
				}
				if e.Type == api.AgentEventEnded {
					r.Info = *e.Run
					return
				}
			}
			if failure == nil {
				failure = connectionError(ctx, r.client.root, io.ErrUnexpectedEOF)
			}
			if broken.IsZero() {
				broken = time.Now()
			}
			if !errors.Is(failure, ErrConnection) || time.Since(broken) > reattach || pause(ctx, wait) != nil {
				yield(api.AgentEvent{}, failure)
				return
			}
		}
	}
}

// Wait waits for the end of the run and gives it, Answer among the rest.
func (r *AgentRun) Wait(ctx context.Context) (api.AgentRun, error) {
	for _, err := range r.Events(ctx, 0) {
		if err != nil {
			return r.Info, err
		}
	}
	return r.Info, nil
}

// Transcript gives all that is written of the run so far.
func (r *AgentRun) Transcript(ctx context.Context) ([]api.AgentEvent, error) {
	var out api.AgentEvents
	return out.Events, r.client.call(ctx, http.MethodGet, r.path+"/events", nil, nil, &out)
}

// Figure gives a picture that a cell drew, by the name that its event has.
func (r *AgentRun) Figure(ctx context.Context, file string) ([]byte, error) {
	return r.bytes(ctx, "/figures/"+url.PathEscape(file))
}

// Notebook gives the run, and those that it follows, as a Jupyter notebook.
func (r *AgentRun) Notebook(ctx context.Context) ([]byte, error) { return r.bytes(ctx, "/notebook") }

// Report gives the run, and those that it follows, as one page of HTML that needs
// nothing beside it.
func (r *AgentRun) Report(ctx context.Context) ([]byte, error) { return r.bytes(ctx, "/report") }

func (r *AgentRun) bytes(ctx context.Context, what string) ([]byte, error) {
	res, err := r.client.request(ctx, http.MethodGet, r.path+what, nil, nil, http.Header{})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

// Cancel ends the run, and returns when it has ended.
func (r *AgentRun) Cancel(ctx context.Context) error {
	return r.client.call(ctx, http.MethodPost, r.path+"/cancel", nil, nil, &r.Info)
}

// Delete removes a run that has ended, and its transcript.
func (r *AgentRun) Delete(ctx context.Context) error {
	return r.client.call(ctx, http.MethodDelete, r.path, nil, nil, nil)
}
