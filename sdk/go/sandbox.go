package pandastack

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Sandbox is a handle on one sandbox.
type Sandbox struct {
	ID   string
	Info api.SandboxInfo // as of the last call that returned it; Refresh brings it up to date

	client *Client
	path   string

	functions []Function // of this program, that are called
	stop      func()     // ends that
}

// Refresh brings Info up to date.
func (s *Sandbox) Refresh(ctx context.Context) error {
	var info api.SandboxInfo
	if err := s.client.call(ctx, http.MethodGet, s.path, nil, nil, &info); err != nil {
		return err
	}
	s.Info = info
	return nil
}

// Kill ends the sandbox and everything in it.
func (s *Sandbox) Kill(ctx context.Context) error {
	s.CloseTools()
	return s.client.call(ctx, http.MethodDelete, s.path, nil, nil, nil)
}

// Lifecycle tells how long the sandbox still has.
func (s *Sandbox) Lifecycle(ctx context.Context) (api.Lifecycle, error) {
	var l api.Lifecycle
	return l, s.client.call(ctx, http.MethodGet, s.path+"/lifecycle", nil, nil, &l)
}

// PatchLifecycle changes how long the sandbox has. What is nil stays.
func (s *Sandbox) PatchLifecycle(ctx context.Context, p api.LifecyclePatch) (api.Lifecycle, error) {
	var l api.Lifecycle
	return l, s.client.call(ctx, http.MethodPatch, s.path+"/lifecycle", nil, p, &l)
}

// SetTTL gives the sandbox this long from now, in whole seconds.
func (s *Sandbox) SetTTL(ctx context.Context, d time.Duration) (api.Lifecycle, error) {
	n := int(d / time.Second)
	return s.PatchLifecycle(ctx, api.LifecyclePatch{TTLSeconds: &n})
}

// Metrics tells what the sandbox may use and uses, and how often it met its limits.
func (s *Sandbox) Metrics(ctx context.Context) (api.Metrics, error) {
	var m api.Metrics
	return m, s.client.call(ctx, http.MethodGet, s.path+"/metrics", nil, nil, &m)
}

// Pause holds the sandbox still. Its memory stays.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/pause", nil, nil, nil)
}

// Hibernate writes the sandbox to the server's disk and frees its memory. Any
// call wakes it. Cells that run are waited for, unless they are to be carried.
func (s *Sandbox) Hibernate(ctx context.Context, opts api.CarryRequest) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/hibernate", nil, opts, nil)
}

// Wake brings a hibernated sandbox back, as any other call does.
func (s *Sandbox) Wake(ctx context.Context) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/wake", nil, nil, nil)
}

// SetPersistent says whether the sandbox is hibernated instead of killed when
// its time is up.
func (s *Sandbox) SetPersistent(ctx context.Context, persistent bool) (api.Lifecycle, error) {
	return s.PatchLifecycle(ctx, api.LifecyclePatch{Persistent: &persistent})
}

// Snapshot keeps memory, files and processes as they are now, for Create with
// FromSnapshot. The sandbox goes on.
func (s *Sandbox) Snapshot(ctx context.Context, opts api.SnapshotRequest) (api.Snapshot, error) {
	var sn api.Snapshot
	return sn, s.client.call(ctx, http.MethodPost, s.path+"/snapshots", nil, opts, &sn)
}

// Forked is what became of a fork.
type Forked struct {
	api.Fork
	Sandboxes []*Sandbox // handles on the children
}

// Fork copies the sandbox as it is now, with its files, processes and contexts.
// Functions of this program that it calls are called by the copies, too.
// Copies that could not be made are in Errors; when none could, the call fails.
func (s *Sandbox) Fork(ctx context.Context, opts api.ForkRequest) (Forked, error) {
	return s.forked(ctx, "/fork", opts)
}

// ForkTree is Fork into the branches of a tree, of which Promote keeps one.
func (s *Sandbox) ForkTree(ctx context.Context, opts api.ForkRequest) (Forked, error) {
	return s.forked(ctx, "/fork-tree", opts)
}

func (s *Sandbox) forked(ctx context.Context, route string, opts api.ForkRequest) (f Forked, err error) {
	if err = s.client.call(ctx, http.MethodPost, s.path+route, nil, opts, &f.Fork); err != nil {
		return f, err
	}
	for _, info := range f.Children {
		child := s.client.sandbox(info)
		f.Sandboxes = append(f.Sandboxes, child)
		err = errors.Join(err, child.connect(ctx, s.functions)) // its calls are its own
	}
	return f, err
}

// Promote makes this branch of a tree the one that stays.
func (s *Sandbox) Promote(ctx context.Context, opts api.PromoteRequest) (api.Promotion, error) {
	var p api.Promotion
	err := s.client.call(ctx, http.MethodPost, s.path+"/promote", nil, opts, &p)
	return p, err
}

// Resume lets a paused sandbox go on.
func (s *Sandbox) Resume(ctx context.Context) error {
	return s.client.call(ctx, http.MethodPost, s.path+"/resume", nil, nil, nil)
}
