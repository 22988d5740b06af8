package pandastack

import (
	"context"
	"io"
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

// ExportSnapshot streams a snapshot as an archive that another server can import.
// It is not encrypted: the memory of the sandbox is in it, with every secret that
// was there. One that breaks off ends with an error, never with io.EOF. Close it.
func (c *Client) ExportSnapshot(ctx context.Context, id string) (io.ReadCloser, error) {
	res, err := c.request(ctx, http.MethodGet, "/snapshots/"+url.PathEscape(id)+"/export", nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// ImportSnapshot makes a snapshot of an archive, whole or not at all, under a
// name, "" for the one that it had. What the server did not export itself for the
// same workspace needs the scope admin, and a signature that the server trusts.
func (c *Client) ImportSnapshot(ctx context.Context, archive io.Reader, name string) (api.SnapshotImport, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	var done api.SnapshotImport
	err := c.send(ctx, http.MethodPost, "/snapshots", q, archive, &done)
	return done, err
}
