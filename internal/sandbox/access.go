package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// find gives the box of a sandbox, nil when only its row may be left. What
// belongs to somebody else does not exist, and is looked for as long as an id
// that never was, so that time tells nothing either.
func (m *Manager) find(ctx context.Context, owner, id string) (*box, error) {
	if err := m.started(ctx); err != nil {
		return nil, err
	}
	b := m.box(id)
	if b == nil {
		return nil, nil
	}
	switch row := b.get(); {
	case owner != "" && row.Owner != owner:
		if _, err := m.row(ctx, owner, id); err != nil {
			return nil, err
		}
		return nil, m.unknown(owner, id) // it is being claimed, and nobody was told its id yet
	case row.State == store.Prepared || row.State == store.Pooled:
		return nil, m.unknown(owner, id)
	}
	return b, nil
}

// row reads the row of a sandbox that has no box.
func (m *Manager) row(ctx context.Context, owner, id string) (store.Sandbox, error) {
	row, err := m.cfg.Store.Sandbox(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && owner != "" && row.Owner != owner {
		return row, m.unknown(owner, id)
	}
	return row, err
}

func (m *Manager) unknown(owner, id string) error {
	var mine []string
	for _, b := range m.all() {
		if row := b.get(); row.Owner != "" && (owner == "" || row.Owner == owner) {
			mine = append(mine, b.id)
		}
	}
	slices.Sort(mine)
	return errUnknown(id, mine)
}

// Get describes a sandbox.
func (m *Manager) Get(ctx context.Context, owner, id string) (api.SandboxInfo, error) {
	b, err := m.find(ctx, owner, id)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	if b != nil {
		info := m.info(b.get())
		if info.Status == api.StatusRunning || info.Status == api.StatusPaused {
			if u, _, err := m.look(ctx, b); err == nil {
				info.Usage = &u
			} else { // it ends at this moment, or is too busy; the rest is known
				m.log.Debug("the use of a sandbox cannot be seen", "sandbox", id, "error", err)
			}
		}
		return info, nil
	}
	row, err := m.row(ctx, owner, id)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	if row.State == store.Deleted {
		return api.SandboxInfo{}, errState(row)
	}
	return m.info(row), nil
}

// Guest gives the link to a sandbox's guest for one call. The function must be
// called when the call is done; until then the sandbox is not idle. While the
// guest is redialling it waits. When the link breaks in the middle of a call,
// Guest is simply asked again.
func (m *Manager) Guest(ctx context.Context, owner, id string) (*guest.Client, func(), error) {
	b, err := m.find(ctx, owner, id)
	if err != nil {
		return nil, nil, err
	}
	if b == nil {
		row, err := m.row(ctx, owner, id)
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, errState(row)
	}
	c, err := m.enter(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	wait, cancel := context.WithTimeout(ctx, m.cfg.LinkWait)
	defer cancel()
	client, err := c.link.Client(wait)
	if err == nil {
		return client, func() { c.end(m.cfg.Now()) }, nil
	}
	c.end(m.cfg.Now())
	switch row := b.get(); {
	case row.State != store.Running:
		return nil, nil, errState(row)
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case m.life.Err() != nil:
		return nil, nil, errClosed
	default:
		return nil, nil, fault.Wrap(err, api.CodeTimeout, "the agent in sandbox %s has not answered for %s", id, m.cfg.LinkWait).
			WithHint("it may be out of memory; create a new sandbox")
	}
}

// relinks is how often that is done again.
const relinks = 3

// ask calls the guest of a running box whose turn is taken. What it asks has the
// same effect once and twice: it is asked again when the link breaks under it.
func (m *Manager) ask(ctx context.Context, b *box, call func(client *guest.Client) error) error {
	for n := 0; ; n++ {
		client, err := m.answering(ctx, b)
		if err != nil {
			return err
		}
		if err = call(client); n == relinks || !errors.Is(err, guest.ErrLinkLost) {
			return err
		}
	}
}

// answering gives the link of a running box whose turn is taken.
func (m *Manager) answering(ctx context.Context, b *box) (*guest.Client, error) {
	wait, cancel := context.WithTimeout(ctx, m.cfg.LinkWait)
	defer cancel()
	client, err := b.link.Client(wait)
	switch {
	case err == nil:
		return client, nil
	case ctx.Err() != nil: // it was killed, or the client has left
		return nil, context.Cause(ctx)
	}
	return nil, fault.Wrap(err, api.CodeTimeout, "the agent in sandbox %s has not answered for %s", b.id, m.cfg.LinkWait)
}

// enter begins a call to a box, and wakes it first when it sleeps.
func (m *Manager) enter(ctx context.Context, b *box) (call, error) {
	for {
		c, wait, err := b.begin(m.cfg.Now(), guest.IsUnrepeatable(ctx), !guest.MayWake(ctx))
		switch {
		case errors.Is(err, errAsleep) && guest.MayWake(ctx):
			if err := m.awaken(ctx, b); err != nil {
				return call{}, err
			}
		case err != nil || wait == nil:
			return c, err
		default:
			select {
			case <-wait:
			case <-ctx.Done():
				return call{}, context.Cause(ctx)
			}
		}
	}
}

// Templates lists what sandboxes can be made from.
func (m *Manager) Templates(ctx context.Context) ([]api.TemplateInfo, error) {
	list, err := m.tmpls.all(ctx, true)
	if err != nil {
		return nil, err
	}
	out := []api.TemplateInfo{}
	for _, t := range list {
		if t.Missing != "" {
			continue
		}
		info := t.Info
		info.Meta = maps.Clone(info.Meta)
		out = append(out, info)
	}
	return out, nil
}

// TemplatesInUse names the digests of templates that sandboxes and snapshots on
// this host were made from, so that their files stay.
func (m *Manager) TemplatesInUse(ctx context.Context) (map[string]bool, error) {
	used, err := m.cfg.Store.Digests(ctx, unburied...)
	if err != nil {
		return nil, err
	}
	list, err := m.cfg.Store.SnapshotsOf(ctx, "", "")
	for _, sn := range list {
		used[sn.Digest] = true
	}
	return used, err
}
