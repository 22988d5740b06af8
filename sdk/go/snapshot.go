package pandastack

import (
	"context"
	"net/http"
	"net/url"

	"github.com/pandastack/pandastack/api"
)

// Snapshots lists the snapshots, the newest first; of one sandbox when its id
// is given.
func (c *Client) Snapshots(ctx context.Context, sandboxID string) ([]api.Snapshot, error) {
	q := url.Values{}
	if sandboxID != "" {
		q.Set("sandbox_id", sandboxID)
	}
	var list api.SnapshotList
	err := c.call(ctx, http.MethodGet, "/snapshots", q, nil, &list)
	return list.Snapshots, err
}

// Snapshot describes a snapshot.
func (c *Client) Snapshot(ctx context.Context, id string) (api.Snapshot, error) {
	var sn api.Snapshot
	return sn, c.call(ctx, http.MethodGet, "/snapshots/"+url.PathEscape(id), nil, nil, &sn)
}

// PatchSnapshot changes what a snapshot is called and carries. What is nil stays.
func (c *Client) PatchSnapshot(ctx context.Context, id string, p api.SnapshotPatch) (api.Snapshot, error) {
	var sn api.Snapshot
	return sn, c.call(ctx, http.MethodPatch, "/snapshots/"+url.PathEscape(id), nil, p, &sn)
}

// DeleteSnapshot removes a snapshot. Sandboxes that were made from it stay.
func (c *Client) DeleteSnapshot(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/snapshots/"+url.PathEscape(id), nil, nil, nil)
}
