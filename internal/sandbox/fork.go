package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

const maxForks = 16 // copies that one call makes

// Labels of the branches of a tree, in their metadata.
const (
	labelTree   = "fork_tree_id"
	labelRole   = "fork_tree_role" // "branch", or "winner" once promoted
	labelParent = "fork_parent_id"
	labelIndex  = "fork_index" // from 0
)

// Fork copies a sandbox as it is now. It goes on.
func (m *Manager) Fork(ctx context.Context, owner, id string, req api.ForkRequest) (api.Fork, error) {
	return m.fork(ctx, owner, id, req, 1, "")
}

// ForkTree is Fork into the branches of a tree, of which Promote keeps one.
func (m *Manager) ForkTree(ctx context.Context, owner, id string, req api.ForkRequest) (api.Fork, error) {
	return m.fork(ctx, owner, id, req, 2, newID("tr-"))
}

// fork makes one image and restores all copies from it, side by side. Memory is
// asked for before anything is copied, since that of each copy is its own.
func (m *Manager) fork(ctx context.Context, owner, id string, req api.ForkRequest, count int, tree string) (api.Fork, error) {
	if req.Count != nil {
		count = *req.Count
	}
	if count < 1 || count > maxForks {
		return api.Fork{}, fault.InvalidField("count", "count must be between 1 and %d, but is %d", maxForks, count)
	}
	if err := errors.Join(checkPairs("metadata", req.Metadata), checkEnvs(req.Envs)); err != nil {
		return api.Fork{}, err
	}
	if _, err := m.snapshotter("a fork"); err != nil {
		return api.Fork{}, err
	}
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Fork{}, err
	}
	done, err := m.work()
	if err != nil {
		return api.Fork{}, err
	}
	defer done()
	img, row, err := m.imageOf(ctx, b, count, req.CarryRunning)
	if err != nil {
		return api.Fork{}, err
	}
	defer m.removeImage(img.dir)
	t, err := m.templateOf(ctx, row.Template, row.Digest)
	if err != nil {
		return api.Fork{}, err
	}
	ttl, err := m.ttl(req.TTLSeconds, min(row.TTL, m.cfg.MaxTTL), false)
	if err != nil {
		return api.Fork{}, err
	}
	out := api.Fork{TreeID: tree, ParentID: row.ID, At: m.cfg.Now()}
	w := wish{
		owner: row.Owner, template: t, ttl: ttl, idle: row.IdleTimeout, limits: rowLimits(row),
		envs: req.Envs, network: row.Network, tools: row.Tools, reseed: req.Reseed == nil || *req.Reseed, image: img, release: func() {},
	}
	children, errs := m.copies(ctx, w, count, func(i int) map[string]string { return forkLabels(row, req, tree, i) })
	if ctx.Err() != nil { // nobody will hear of them
		for _, c := range children {
			if c.ID != "" {
				errs = append(errs, m.Kill(context.WithoutCancel(ctx), row.Owner, c.ID))
			}
		}
		return api.Fork{}, errors.Join(append(errs, context.Cause(ctx))...)
	}
	var ids []string
	for i, c := range children {
		if errs[i] == nil {
			out.Children = append(out.Children, m.info(c))
			ids = append(ids, c.ID)
			continue
		}
		m.log.Warn("a copy of a sandbox could not be made", "sandbox", row.ID, "index", i, "error", errs[i])
		out.Errors = append(out.Errors, forkError(i, errs[i]))
	}
	if len(out.Children) == 0 {
		return api.Fork{}, errs[0]
	}
	m.note(b, api.LifeForked, caller.Payload(ctx, map[string]any{"children": ids}))
	return out, nil
}

// imageOf makes an image for so many copies of a box, which goes on or sleeps on.
func (m *Manager) imageOf(ctx context.Context, b *box, count int, carry bool) (*image, store.Sandbox, error) {
	goOn, leave, err := m.still(ctx, b, carry)
	if err != nil {
		return nil, store.Sandbox{}, err
	}
	defer leave()
	row := b.get()
	if !keepable(row.State) {
		return nil, row, errState(row)
	}
	ctx, cancel := b.stoppable(ctx)
	defer cancel()
	each, err := m.expected(ctx, b)
	if err != nil {
		return nil, row, err
	}
	if err := m.makeRoomFor(ctx, count, each); err != nil {
		return nil, row, err
	}
	m.announce(ctx, b)
	img := &image{dir: m.imageDir(newID("fk-")), generation: row.Generation, parent: row.ID}
	if err := m.saveTo(ctx, b, img.dir, driver.Save{Volatile: true, GoesOn: goOn}); err != nil {
		return nil, row, err
	}
	found, err := m.inspect(ctx, img.dir)
	if err != nil {
		m.removeImage(img.dir)
		return nil, row, err
	}
	img.bytes = found.Bytes
	return img, row, nil
}

// copies makes sandboxes side by side. How many are at work at once is for the
// queue of all creates to say.
func (m *Manager) copies(ctx context.Context, w wish, count int, labels func(i int) map[string]string) ([]store.Sandbox, []error) {
	children, errs := make([]store.Sandbox, count), make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		child := w
		child.metadata = labels(i)
		all.Go(func() { children[i], errs[i] = m.make(ctx, child, time.Now()) })
	}
	all.Wait()
	return children, errs
}

func forkLabels(row store.Sandbox, req api.ForkRequest, tree string, i int) map[string]string {
	labels := maps.Clone(row.Metadata)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, k := range []string{labelTree, labelRole, labelParent, labelIndex} {
		delete(labels, k) // of the tree that the parent is a branch of
	}
	maps.Copy(labels, req.Metadata)
	if tree != "" {
		maps.Copy(labels, map[string]string{labelTree: tree, labelRole: "branch", labelParent: row.ID, labelIndex: strconv.Itoa(i)})
	}
	return labels
}

// forkError tells a user why one copy was not made.
func forkError(i int, err error) api.ForkError {
	var f *fault.Error
	if errors.As(err, &f) && f.Code != api.CodeInternal {
		return api.ForkError{Index: i, Message: f.Message, Code: f.Code}
	}
	return api.ForkError{Index: i, Message: "internal error; the server's log has it", Code: api.CodeInternal}
}

// Promote makes a branch of a tree the one that stays.
func (m *Manager) Promote(ctx context.Context, owner, id string, req api.PromoteRequest) (api.Promotion, error) {
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return api.Promotion{}, err
	}
	row := b.get()
	tree := row.Metadata[labelTree]
	switch {
	case !keepable(row.State):
		err = errState(row)
	case tree == "":
		err = fault.New(api.CodeConflict, "sandbox %s is no branch of a tree", id).WithHint("fork-tree makes trees")
	case req.TreeID != "" && req.TreeID != tree:
		err = fault.InvalidField("tree_id", "sandbox %s is a branch of the tree %s, not of %.80q", id, tree, req.TreeID)
	default:
		row.Metadata = maps.Clone(row.Metadata)
		row.Metadata[labelRole] = "winner"
		err = m.save(ctx, b, row, row.State)
	}
	done()
	if err != nil {
		return api.Promotion{}, err
	}
	out := api.Promotion{Winner: id, TreeID: tree, Deleted: []string{}, Failures: map[string]string{}}
	if req.CleanupSiblings {
		err = m.endSiblings(ctx, row, &out)
	}
	return out, err
}

// endSiblings ends the other branches of a tree.
func (m *Manager) endSiblings(ctx context.Context, winner store.Sandbox, out *api.Promotion) error {
	rows, err := m.cfg.Store.SandboxesOf(ctx, winner.Owner, store.Running, store.Paused, store.Hibernated)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(sweepers)
	for _, row := range rows {
		if row.ID == winner.ID || row.Metadata[labelTree] != out.TreeID {
			continue
		}
		g.Go(func() error {
			err := m.Kill(ctx, winner.Owner, row.ID)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, fault.NotFound) {
				out.Failures[row.ID] = forkError(0, err).Message
				return nil
			}
			out.Deleted = append(out.Deleted, row.ID)
			return nil
		})
	}
	return g.Wait()
}

// makeRoomFor sees that there is memory for n more sandboxes of so many bytes.
func (m *Manager) makeRoomFor(ctx context.Context, n int, each int64) error {
	for {
		ok, free, err := m.roomy(0, int64(n)*each)
		if err != nil || ok {
			return err
		}
		b := m.takeVictim()
		if b == nil {
			return errNoMemory(n, each, free, m.cfg.MinFreeMB)
		}
		m.log.Info("memory is short, ending a sandbox in the pool", "sandbox", b.id)
		if err := m.discard(ctx, b); err != nil {
			return fmt.Errorf("making room: %w", err)
		}
	}
}
