package pandastack

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// Network tells what the sandbox may reach, and what it has carried.
func (s *Sandbox) Network(ctx context.Context) (api.NetworkInfo, error) {
	var n api.NetworkInfo
	return n, s.client.call(ctx, http.MethodGet, s.path+"/network", nil, nil, &n)
}

// SetNetwork changes what the sandbox may reach, from now on. What is nil
// stays. Connections that would not be allowed any more are cut.
func (s *Sandbox) SetNetwork(ctx context.Context, p api.NetworkPatch) (api.NetworkInfo, error) {
	var n api.NetworkInfo
	return n, s.client.call(ctx, http.MethodPatch, s.path+"/network", nil, p, &n)
}

// NetworkLogOptions say which lines are meant.
type NetworkLogOptions struct {
	Tail   int  // so many of the last ones, at most 500; 0: 50
	Follow bool // go on as they are written
}

// NetworkLog gives what the sandbox tried to reach and what became of it, the
// oldest first. With Follow it goes on until the context ends, across
// connections that break.
func (s *Sandbox) NetworkLog(ctx context.Context, o NetworkLogOptions) iter.Seq2[api.NetworkLine, error] {
	q := url.Values{}
	if o.Tail > 0 {
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	path := s.path + "/network/log"
	return func(yield func(api.NetworkLine, error) bool) {
		if !o.Follow {
			var log api.NetworkLog
			if err := s.client.call(ctx, http.MethodGet, path, q, nil, &log); err != nil {
				yield(api.NetworkLine{}, err)
				return
			}
			for _, line := range log.Lines {
				if !yield(line, nil) {
					return
				}
			}
			return
		}
		q.Set("follow", "1")
		err := s.client.stayOn(ctx, path, q, func(raw sseEvent) (more bool, err error) {
			var line api.NetworkLine
			if err := json.Unmarshal(raw.data, &line); err != nil {
				return false, fmt.Errorf("pandastack: a line cannot be read: %w", err)
			}
			return yield(line, nil), nil
		})
		if err != nil {
			yield(api.NetworkLine{}, err)
		}
	}
}

func secretPath(name string) string { return "/secrets/" + url.PathEscape(name) }

// SetSecret keeps a secret for the workspace, in place of an earlier one of the
// same name; needs the scope admin. Its value never comes back.
func (c *Client) SetSecret(ctx context.Context, name, value string) (api.SecretInfo, error) {
	var s api.SecretInfo
	return s, c.call(ctx, http.MethodPut, secretPath(name), nil, api.PutSecretRequest{Value: value}, &s)
}

// Secrets lists the workspace's secrets by name.
func (c *Client) Secrets(ctx context.Context) ([]api.SecretInfo, error) {
	var list []api.SecretInfo
	return list, c.call(ctx, http.MethodGet, "/secrets", nil, nil, &list)
}

// DeleteSecret forgets a secret; needs the scope admin. Requests of sandboxes
// that use it fail from then on.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, secretPath(name), nil, nil, nil)
}
