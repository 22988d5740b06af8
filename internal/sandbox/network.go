package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// Network gives sandboxes their gates. Those in the pools have none: they are
// closed.
type Network interface {
	// Open gives the gate of a sandbox that is about to run as somebody's: of one
	// that is made, copied or woken, before anything in it runs, of one from the
	// pool before its user's first call, and of one of an earlier daemon when it
	// was found again. An error fails what it is opened for; of a sandbox that
	// runs already it is logged, and the sandbox is closed.
	Open(ctx context.Context, sb store.Sandbox) (egress.Gate, error)
	// Close says that nothing uses a sandbox's gate any more: it ended, sleeps, or
	// was not made. It is called once for each Open that succeeded.
	Close(sb store.Sandbox)
}

// networker is the driver, when its sandboxes have networks.
func (m *Manager) networker() (driver.Networker, bool) {
	n, ok := m.cfg.Driver.(driver.Networker)
	return n, ok && len(n.Resolvers()) > 0
}

// connect opens the gate of a box that is somebody's. The caller holds the turn.
func (m *Manager) connect(ctx context.Context, b *box) error {
	n, ok := m.networker()
	row := b.get()
	if !ok || m.cfg.Network == nil || b.gated || row.State == store.Prepared || row.State == store.Pooled {
		return nil
	}
	gate, err := m.cfg.Network.Open(ctx, row)
	if err != nil {
		return err
	}
	b.gated = true
	if err := n.Connect(b.onHost(), gate); err != nil {
		m.disconnect(b)
		if errors.Is(err, fault.Unsupported) { // it was made when there were none
			m.log.Warn("a sandbox has no network, and so none is opened", "sandbox", b.id)
			return nil
		}
		return fmt.Errorf("opening the network of sandbox %s: %w", b.id, err)
	}
	return nil
}

// disconnect says that a box has no more use for its gate. The caller holds the turn.
func (m *Manager) disconnect(b *box) {
	if !b.gated {
		return
	}
	b.gated = false
	m.cfg.Network.Close(b.get())
}

// resolvers are the addresses at which a sandbox asks for names.
func (m *Manager) resolvers() []string {
	n, ok := m.cfg.Driver.(driver.Networker)
	if !ok {
		return nil
	}
	var out []string
	for _, a := range n.Resolvers() {
		out = append(out, a.String())
	}
	return out
}
