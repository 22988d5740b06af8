package sandbox

import (
	"context"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// Tools has the functions that programs in sandboxes call and that run outside.
type Tools interface {
	// Plan checks what a sandbox is to be given and gives what is to be kept of it.
	Plan(ctx context.Context, owner string, t *api.Tools) (*api.Tools, error)
	// Check refuses tools that no caller could have given, whatever of them is here.
	Check(t *api.Tools) error
	// Declares tells whether the server's settings have tools in a namespace.
	Declares(space string) bool
	// Caller answers the calls of a sandbox; row gives its row as it is then.
	Caller(row func() store.Sandbox) guest.Caller
	// Show lists what a sandbox has.
	Show(ctx context.Context, sb store.Sandbox) (api.ToolList, error)
	// Prompt describes what a sandbox has to a model, in so many tokens at most.
	Prompt(ctx context.Context, sb store.Sandbox, budget int, count func(string) int) (string, error)
	// Forget says that a sandbox has ended.
	Forget(id string)
}

// planTools gives the tools that are asked for, or those that a snapshot had.
func (m *Manager) planTools(ctx context.Context, owner string, t, base *api.Tools) (*api.Tools, error) {
	switch {
	case t == nil:
		return base, nil
	case m.cfg.Tools == nil:
		return nil, errUnsupported("tools", "tools")
	}
	return m.cfg.Tools.Plan(ctx, owner, t)
}

// serveTools has the calls of a sandbox that has tools answered.
func (m *Manager) serveTools(b *box, link *guest.Listener) {
	row := b.get()
	if m.cfg.Tools == nil || row.Tools == nil || link == nil {
		return
	}
	link.Serve(m.cfg.Tools.Caller(b.get))
}

// Tools lists the tools of a sandbox.
func (m *Manager) Tools(ctx context.Context, owner, id string) (api.ToolList, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.ToolList{}, err
	}
	if m.cfg.Tools == nil {
		return api.ToolList{Tools: []api.ToolInfo{}}, nil
	}
	return m.cfg.Tools.Show(ctx, b.get())
}

// ToolPrompt describes the tools of a sandbox to a model, in at most so many
// tokens as count counts them. "" when it has none.
func (m *Manager) ToolPrompt(ctx context.Context, owner, id string, budget int, count func(string) int) (string, error) {
	b, err := m.live(ctx, owner, id)
	if err != nil || m.cfg.Tools == nil {
		return "", err
	}
	return m.cfg.Tools.Prompt(ctx, b.get(), budget, count)
}

// SetTools gives a sandbox other tools, while it runs, too. Calls in progress
// are carried out as they began.
func (m *Manager) SetTools(ctx context.Context, owner, id string, t api.Tools) (api.ToolList, error) {
	b, done, err := m.turn(ctx, owner, id)
	if err != nil {
		return api.ToolList{}, err
	}
	defer done()
	row := b.get()
	if !keepable(row.State) {
		return api.ToolList{}, errState(row)
	}
	if row.Tools, err = m.planTools(ctx, row.Owner, &t, nil); err != nil {
		return api.ToolList{}, err
	}
	if err := m.save(ctx, b, row, row.State); err != nil {
		return api.ToolList{}, err
	}
	m.serveTools(b, b.link)
	return m.cfg.Tools.Show(ctx, row)
}
