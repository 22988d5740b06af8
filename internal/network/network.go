// Package network looks after what sandboxes may reach: it checks the policies
// and secrets that they are given, keeps them with the sandbox, its snapshots
// and copies, opens gates that hold to them, and keeps the log of what was
// decided. The domain asks it, and package httpapi for logs and secrets.
//
// What is allowed is decided in package egress, and how packets get there is the
// driver's affair.
package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// Store is what policies, secrets and names are kept in.
type Store interface {
	NetworkState(ctx context.Context, id string) (store.NetworkState, error)
	KeepNetworkState(ctx context.Context, id string, st store.NetworkState) error
	PutSecret(ctx context.Context, sec store.Secret) error
	Secret(ctx context.Context, owner, name string) (store.Secret, error)
	Secrets(ctx context.Context, owner string) ([]store.Secret, error)
	DeleteSecret(ctx context.Context, owner, name string) error
}

var _ Store = (*store.Store)(nil)

// Options is what a Service works with.
type Options struct {
	Store  Store
	Key    []byte // 32 bytes, which secrets are encrypted with
	Named  map[string]api.NetworkPolicy
	CA     *egress.CA // nil: policies that open TLS are refused
	PyPI   FindIndex  // what "pypi" in allow stands for; nil: a host of that name
	NPM    FindIndex  // what "npm" stands for; as above
	Engine egress.Options
	Log    *slog.Logger
}

// Service looks after the networks of all sandboxes of a daemon.
type Service struct {
	*Secrets
	store   Store
	engine  *egress.Engine
	ca      *egress.CA
	named   map[string]api.NetworkPolicy
	indexes map[string]*index // by the word in allow
	log     *slog.Logger

	mu    sync.Mutex
	gates map[string]*gate // that are open, by sandbox
}

// New makes a Service. It checks the server's own policies.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	secrets := &Secrets{store: o.Store, box: newBox(o.Key)}
	o.Engine.CA, o.Engine.Secret = o.CA, secrets.Value
	for name, p := range o.Named {
		if p.Policy != "" {
			return nil, fault.InvalidField("network_policies", "the network policy %q names another one", name)
		}
		if _, err := egress.Compile(p, nil, nil); err != nil {
			var f *fault.Error
			if errors.As(err, &f) {
				return nil, fault.InvalidField("network_policies", "the network policy %q: %s", name, f.Message).WithHint("%s", f.Hint)
			}
			return nil, err
		}
	}
	indexes := map[string]*index{}
	for word, find := range map[string]FindIndex{wordPyPI: o.PyPI, wordNPM: o.NPM} {
		if find != nil {
			indexes[word] = &index{find: find}
		}
	}
	return &Service{Secrets: secrets, store: o.Store, engine: egress.New(o.Engine), ca: o.CA, named: o.Named, indexes: indexes, log: o.Log, gates: map[string]*gate{}}, nil
}

// Plan checks what is asked for and gives what is to be kept of it. What is nil
// is as in base. The error names the field at fault.
func (s *Service) Plan(ctx context.Context, owner string, p *api.NetworkPolicy, secrets *api.Secrets, base store.Network) (store.Network, error) {
	if p == nil {
		p = base.Policy
	}
	if secrets == nil {
		kept, err := s.opened(owner, base)
		if err != nil {
			return base, err
		}
		secrets = &kept
	}
	compiled, err := s.compile(ctx, owner, p, *secrets)
	if err != nil {
		return base, err
	}
	if compiled.Inspects() && s.ca == nil {
		return base, fault.New(api.CodeUnsupported, "secrets, and rules with methods or paths, need a certificate authority, and this server has none")
	}
	out := store.Network{Policy: p}
	if len(*secrets) > 0 {
		raw, err := json.Marshal(*secrets)
		if err != nil {
			return base, fmt.Errorf("encoding secrets: %w", err)
		}
		out.Sealed = s.box.seal(raw, ofNetwork(owner))
	}
	return out, nil
}

func (s *Service) compile(ctx context.Context, owner string, p *api.NetworkPolicy, secrets api.Secrets) (*egress.Policy, error) {
	if p == nil {
		p = &api.NetworkPolicy{}
	}
	for host, use := range secrets {
		if use.Ref == "" {
			continue
		}
		if _, err := s.store.Secret(ctx, owner, use.Ref); errors.Is(err, store.ErrNotFound) {
			return nil, fault.InvalidField("secrets."+host, "the secret for %.80q: there is no secret %.80q", host, use.Ref).WithHint("pandastack secret set makes it")
		} else if err != nil {
			return nil, err
		}
	}
	own, sources, err := s.expand(ctx, "network", *p)
	if err != nil {
		return nil, err
	}
	named := s.named
	if base, ok := named[p.Policy]; ok {
		base, more, err := s.expand(ctx, "policy "+p.Policy, base)
		if err != nil {
			return nil, err
		}
		named = map[string]api.NetworkPolicy{p.Policy: base}
		sources = append(sources, more...)
	}
	compiled, err := egress.Compile(own, secrets, named)
	if err != nil {
		return nil, err
	}
	return compiled, compiled.AddSources(sources)
}

// ofNetwork is what sealed secrets of sandboxes are bound to: their workspace,
// in which they may be copied.
func ofNetwork(owner string) string { return "network\x00" + owner }

// opened gives the secrets of a network.
func (s *Service) opened(owner string, n store.Network) (api.Secrets, error) {
	if len(n.Sealed) == 0 {
		return nil, nil
	}
	raw, err := s.box.open(n.Sealed, ofNetwork(owner))
	var out api.Secrets
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("the secrets of a sandbox cannot be decrypted; was the file master.key of the data directory changed? %w", err)
	}
	return out, nil
}

// compiled is the policy of a sandbox as it is kept.
func (s *Service) compiled(ctx context.Context, sb store.Sandbox) (*egress.Policy, error) {
	secrets, err := s.opened(sb.Owner, sb.Network)
	if err != nil {
		return nil, err
	}
	p, err := s.compile(ctx, sb.Owner, sb.Network.Policy, secrets)
	if err != nil { // it was good when it was given: a named policy or a secret is gone since
		return nil, fault.Wrap(err, api.CodeConflict, "the network policy of sandbox %s does not hold any more: %v", sb.ID, err)
	}
	return p, nil
}

// Open gives the gate of a sandbox that is about to run.
func (s *Service) Open(ctx context.Context, sb store.Sandbox) (egress.Gate, error) {
	p, err := s.compiled(ctx, sb)
	if err != nil {
		return nil, err
	}
	st, err := s.remembered(ctx, sb)
	if err != nil {
		return nil, err
	}
	inner, err := s.engine.Open(egress.Identity{Sandbox: sb.ID, Workspace: sb.Owner}, p, &egress.State{Names: st.Names, Bytes: st.Bytes})
	if err != nil {
		return nil, err
	}
	g := &gate{Sandbox: inner, id: sb.ID, store: s.store, log: s.log, kept: len(st.Names)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[sb.ID] = g
	return g, nil
}

// remembered is what the network of a sandbox knows from before: from an earlier
// time of its own, or from what it is a copy of.
func (s *Service) remembered(ctx context.Context, sb store.Sandbox) (store.NetworkState, error) {
	st, err := s.store.NetworkState(ctx, sb.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return st, err
	}
	from := sb.ForkedFrom
	if from == "" {
		from = sb.FromSnapshot
	}
	if from == "" {
		return store.NetworkState{}, nil
	}
	if st, err = s.state(ctx, from); err != nil {
		return st, err
	}
	st.Bytes = 0 // a copy has a budget of its own
	return st, s.store.KeepNetworkState(ctx, sb.ID, st)
}

// state is what is known of the network of a sandbox or a snapshot.
func (s *Service) state(ctx context.Context, id string) (store.NetworkState, error) {
	if g := s.gate(id); g != nil {
		st := g.State()
		return store.NetworkState{Names: st.Names, Bytes: st.Bytes}, nil
	}
	st, err := s.store.NetworkState(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return store.NetworkState{}, nil
	}
	return st, err
}

// Keep writes what the network of a sandbox remembers under the id of a
// snapshot of it, or under its own.
func (s *Service) Keep(ctx context.Context, sb store.Sandbox, as string) error {
	st, err := s.state(ctx, sb.ID)
	if err != nil || len(st.Names) == 0 && st.Bytes == 0 {
		return err
	}
	return s.store.KeepNetworkState(ctx, as, st)
}

// Carry gives what of the network of a snapshot may leave the server: names of
// secrets, and no values.
func (s *Service) Carry(ctx context.Context, sn store.Snapshot) (archive.Network, []api.SnapshotMissing, error) {
	out := archive.Network{Policy: sn.Network.Policy}
	secrets, err := s.opened(sn.Owner, sn.Network)
	if err != nil {
		return out, nil, err
	}
	var left []api.SnapshotMissing
	for host, use := range secrets {
		if use.Ref == "" {
			left = append(left, api.SnapshotMissing{Kind: api.MissingValue, Name: use.Header, For: host})
			continue
		}
		if out.Secrets == nil {
			out.Secrets = map[string]api.SecretShown{}
		}
		out.Secrets[host] = api.SecretShown{Header: use.Header, Ref: use.Ref}
	}
	slices.SortFunc(left, func(a, b api.SnapshotMissing) int { return cmp.Compare(a.For, b.For) })
	st, err := s.state(ctx, sn.ID)
	out.Names = st.Names
	return out, left, err
}

// Admit gives what is to be kept of the network of a snapshot that comes from
// elsewhere, keeps what it remembers, and says what of it is not here. Whether it
// holds is seen when a sandbox is made.
func (s *Service) Admit(ctx context.Context, owner, id string, n archive.Network) (store.Network, []api.SnapshotMissing, error) {
	out := store.Network{Policy: n.Policy}
	var missing []api.SnapshotMissing
	if p := n.Policy; p != nil && p.Policy != "" {
		if _, known := s.named[p.Policy]; !known {
			missing = append(missing, api.SnapshotMissing{Kind: api.MissingPolicy, Name: p.Policy})
		}
	}
	secrets := api.Secrets{}
	for _, host := range slices.Sorted(maps.Keys(n.Secrets)) {
		use := n.Secrets[host]
		known, err := s.HasSecret(ctx, owner, use.Ref)
		if err != nil {
			return out, nil, err
		}
		if !known {
			missing = append(missing, api.SnapshotMissing{Kind: api.MissingSecret, Name: use.Ref, For: host})
		}
		secrets[host] = api.SecretUse{Header: use.Header, Ref: use.Ref}
	}
	if len(secrets) > 0 {
		raw, err := json.Marshal(secrets)
		if err != nil {
			return out, nil, fmt.Errorf("encoding secrets: %w", err)
		}
		out.Sealed = s.box.seal(raw, ofNetwork(owner))
	}
	if len(n.Names) > 0 {
		if err := s.store.KeepNetworkState(ctx, id, store.NetworkState{Names: n.Names}); err != nil {
			return out, nil, err
		}
	}
	return out, missing, nil
}

// Close ends all connections of a sandbox and keeps what it remembers.
func (s *Service) Close(sb store.Sandbox) {
	s.mu.Lock()
	g := s.gates[sb.ID]
	delete(s.gates, sb.ID)
	s.mu.Unlock()
	if g == nil {
		return
	}
	if err := g.Sandbox.Close(); err != nil {
		s.log.Warn("closing the network of a sandbox", "sandbox", sb.ID, "error", err)
	}
	st := g.State()
	if len(st.Names) == 0 && st.Bytes == 0 {
		return
	}
	if err := s.store.KeepNetworkState(context.Background(), sb.ID, store.NetworkState{Names: st.Names, Bytes: st.Bytes}); err != nil {
		s.log.Error("what the network of a sandbox used is not kept", "sandbox", sb.ID, "error", err)
	}
}

// Change puts the policy of a sandbox's row in force, where it runs. What is
// open and would not be allowed any more is cut.
func (s *Service) Change(ctx context.Context, sb store.Sandbox) error {
	p, err := s.compiled(ctx, sb)
	if err != nil {
		return err
	}
	if g := s.gate(sb.ID); g != nil {
		return g.SetPolicy(p)
	}
	return nil
}

// Certificate is what a sandbox has to trust so that its policy can hold, in
// PEM; nil when nothing is opened.
func (s *Service) Certificate(ctx context.Context, sb store.Sandbox) ([]byte, error) {
	p, err := s.compiled(ctx, sb)
	if err != nil || !p.Inspects() || s.ca == nil {
		return nil, err
	}
	return s.ca.PEM(), nil
}

// Show describes the network of a sandbox. It has no secret's value in it.
func (s *Service) Show(sb store.Sandbox) api.NetworkInfo {
	out := api.NetworkInfo{Policy: api.NetworkPolicy{Mode: api.NetworkDeny}}
	if sb.Network.Policy != nil {
		out.Policy = *sb.Network.Policy
	}
	secrets, err := s.opened(sb.Owner, sb.Network)
	if err != nil {
		s.log.Error("a network cannot be shown whole", "sandbox", sb.ID, "error", err)
	}
	for host, use := range secrets {
		if out.Secrets == nil {
			out.Secrets = map[string]api.SecretShown{}
		}
		out.Secrets[host] = api.SecretShown{Header: use.Header, Ref: use.Ref}
	}
	if g := s.gate(sb.ID); g != nil {
		u := g.Usage()
		out.Bytes, out.Flows = u.Bytes, u.Flows
	}
	return out
}

func (s *Service) gate(id string) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates[id]
}

// gate is that of one sandbox, which keeps each name before it is told of it:
// after a crash of the daemon the address that a program holds means the same.
type gate struct {
	*egress.Sandbox
	id    string
	store Store
	log   *slog.Logger

	mu   sync.Mutex
	kept int // names
}

var _ egress.Gate = (*gate)(nil)

// Resolve implements egress.Gate.
func (g *gate) Resolve(ctx context.Context, query []byte, tcp bool) []byte {
	answer := g.Sandbox.Resolve(ctx, query, tcp)
	if answer == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.Names() == g.kept {
		return answer
	}
	st := g.State()
	if err := g.store.KeepNetworkState(context.WithoutCancel(ctx), g.id, store.NetworkState{Names: st.Names, Bytes: st.Bytes}); err != nil {
		g.log.Error("a name is not told to a sandbox, since it cannot be kept", "sandbox", g.id, "error", err)
		return nil // it asks again
	}
	g.kept = len(st.Names)
	return answer
}
