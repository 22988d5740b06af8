package sandbox

import (
	"cmp"
	"context"
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

const maxPorts = 256 // that users may name of one sandbox

// OwnerOf gives the workspace of a sandbox that has not ended, and what is
// known of one of its ports. It is for visitors who say nothing of themselves:
// the error tells no more than that there is none.
func (m *Manager) OwnerOf(ctx context.Context, id string, port int) (owner string, p store.Port, err error) {
	b, err := m.find(ctx, "", id)
	if err != nil {
		return "", store.Port{}, err
	}
	if b == nil {
		return "", store.Port{}, errUnknown(id, nil)
	}
	row := b.get()
	p.Port = port
	if i := slices.IndexFunc(row.Ports, func(p store.Port) bool { return p.Port == port }); i >= 0 {
		p = row.Ports[i]
	}
	return row.Owner, p, nil
}

// Ports gives the ports that users have named.
func (m *Manager) Ports(ctx context.Context, owner, id string) ([]store.Port, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return slices.Clone(b.get().Ports), nil
}

// SetPort names a port, or says something else of one that is named already.
// Copies of the sandbox and what wakes from its snapshots do not inherit it:
// who makes them has not said that they may be seen.
func (m *Manager) SetPort(ctx context.Context, owner, id string, p store.Port) error {
	return m.changePorts(ctx, owner, id, p, func(list []store.Port) ([]store.Port, error) {
		list = slices.DeleteFunc(list, func(q store.Port) bool { return q.Port == p.Port })
		if len(list) >= maxPorts {
			return nil, fault.New(api.CodeConflict, "sandbox %s has its maximum of %d named ports", id, maxPorts).WithHint("remove some that are not needed")
		}
		list = append(list, p)
		slices.SortFunc(list, func(a, b store.Port) int { return cmp.Compare(a.Port, b.Port) })
		return list, nil
	})
}

// RemovePort forgets what was said of a port. What listens on it goes on.
func (m *Manager) RemovePort(ctx context.Context, owner, id string, port int) error {
	return m.changePorts(ctx, owner, id, store.Port{Port: port}, func(list []store.Port) ([]store.Port, error) {
		rest := slices.DeleteFunc(list, func(q store.Port) bool { return q.Port == port })
		if len(rest) == len(list) {
			return nil, fault.New(api.CodeNotFound, "port %d of sandbox %s has no name", port, id).WithHint("what listens by itself needs none, and cannot be removed from here")
		}
		return rest, nil
	})
}

func (m *Manager) changePorts(ctx context.Context, owner, id string, p store.Port, change func([]store.Port) ([]store.Port, error)) error {
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return err
	}
	defer done()
	row := b.get()
	if !keepable(row.State) {
		return errState(row)
	}
	if row.Ports, err = change(slices.Clone(row.Ports)); err != nil {
		return err
	}
	if err := m.save(ctx, b, row, row.State); err != nil {
		return err
	}
	m.note(b, api.LifePortChanged, caller.Payload(ctx, map[string]any{"port": p.Port, "public": p.Public}))
	return nil
}
