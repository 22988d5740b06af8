package sandbox

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// Policies checks and keeps what networks of sandboxes may reach.
type Policies interface {
	// Plan checks a policy and secrets of a workspace and gives what is to be kept
	// of them. What is nil is as in base.
	Plan(ctx context.Context, owner string, p *api.NetworkPolicy, s *api.Secrets, base store.Network) (store.Network, error)
	// Change puts the network of a row in force, if it is open.
	Change(ctx context.Context, sb store.Sandbox) error
	// Keep writes what the network of a sandbox remembers under the id of a
	// snapshot of it.
	Keep(ctx context.Context, sb store.Sandbox, as string) error
	// Carry gives what of the network of a snapshot may go to another server, and
	// what was left out of it.
	Carry(ctx context.Context, sn store.Snapshot) (archive.Network, []api.SnapshotMissing, error)
	// Admit gives what is to be kept of the network of a snapshot from another
	// server, under its id here, and names what of it is not here.
	Admit(ctx context.Context, owner, id string, n archive.Network) (store.Network, []api.SnapshotMissing, error)
	// HasSecret tells whether a workspace has a secret.
	HasSecret(ctx context.Context, owner, name string) (bool, error)
	// Certificate is what a sandbox has to trust so that its policy can hold, in
	// PEM; nil when nothing is opened.
	Certificate(ctx context.Context, sb store.Sandbox) ([]byte, error)
	// Packages says where package managers in a sandbox get packages from.
	Packages(ctx context.Context, sb store.Sandbox) (guestapi.Packages, error)
	// Show describes the network of a sandbox, without the values of secrets.
	Show(sb store.Sandbox) api.NetworkInfo
}

// plan gives the network that is asked for, on top of what a snapshot had.
func (m *Manager) plan(ctx context.Context, owner string, p *api.NetworkPolicy, s api.Secrets, base store.Network) (store.Network, error) {
	if p == nil && len(s) == 0 && base.Policy == nil && len(base.Sealed) == 0 {
		return base, nil
	}
	if m.cfg.Policies == nil {
		return base, errUnsupported("network", "a network")
	}
	if _, can := m.networker(); !can && p != nil && p.Mode != api.NetworkDeny {
		return base, errUnsupported("network", "a network")
	}
	var secrets *api.Secrets
	if len(s) > 0 {
		secrets = &s
	}
	return m.cfg.Policies.Plan(ctx, owner, p, secrets, base)
}

// Network describes the network of a sandbox.
func (m *Manager) Network(ctx context.Context, owner, id string) (api.NetworkInfo, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.NetworkInfo{}, err
	}
	if m.cfg.Policies == nil {
		return api.NetworkInfo{Policy: api.NetworkPolicy{Mode: api.NetworkDeny}}, nil
	}
	return m.cfg.Policies.Show(b.get()), nil
}

// SetNetwork changes the network of a sandbox, while it runs, too. Connections
// that would not be allowed any more are cut.
func (m *Manager) SetNetwork(ctx context.Context, owner, id string, p api.NetworkPatch) (api.NetworkInfo, error) {
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return api.NetworkInfo{}, err
	}
	defer done()
	was := b.get()
	if !keepable(was.State) {
		return api.NetworkInfo{}, errState(was)
	}
	if m.cfg.Policies == nil {
		return api.NetworkInfo{}, errUnsupported("policy", "a network")
	}
	row := was
	if row.Network, err = m.cfg.Policies.Plan(ctx, row.Owner, p.Policy, p.Secrets, was.Network); err != nil {
		return api.NetworkInfo{}, err
	}
	if row.State == store.Running {
		packages, err := m.cfg.Policies.Packages(ctx, row)
		if err != nil {
			return api.NetworkInfo{}, err
		}
		err = m.ask(ctx, b, func(client *guest.Client) error {
			if err := m.trust(ctx, row, client); err != nil {
				return err
			}
			return client.SetPackages(ctx, packages)
		})
		if err != nil {
			return api.NetworkInfo{}, err
		}
	}
	if err := m.save(ctx, b, row, row.State); err != nil {
		return api.NetworkInfo{}, err
	}
	if err := m.cfg.Policies.Change(ctx, row); err != nil {
		return api.NetworkInfo{}, err
	}
	m.note(b, api.LifeNetworkChanged, caller.Payload(ctx, map[string]any{"mode": string(m.cfg.Policies.Show(row).Policy.Mode)}))
	return m.cfg.Policies.Show(row), nil
}

// trust gives a sandbox the certificate that its network needs, before anything
// that its user runs can meet it.
func (m *Manager) trust(ctx context.Context, row store.Sandbox, client *guest.Client) error {
	if m.cfg.Policies == nil || row.Network.Policy == nil && len(row.Network.Sealed) == 0 {
		return nil
	}
	pem, err := m.cfg.Policies.Certificate(ctx, row)
	if err != nil || len(pem) == 0 {
		return err
	}
	return client.Trust(ctx, pem)
}

// keepNetwork writes what the network of a sandbox remembers for a snapshot of it.
func (m *Manager) keepNetwork(ctx context.Context, row store.Sandbox, snapshot string) error {
	if m.cfg.Policies == nil {
		return nil
	}
	return m.cfg.Policies.Keep(ctx, row, snapshot)
}
