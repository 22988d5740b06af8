package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/egress/netstack"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/netns"
)

var _ driver.Networker = (*Driver)(nil)

// readyNetworks is how many namespaces wait for creates that no pool serves.
const readyNetworks = 8

// uplink is a sandbox's way out: the host's end of its interface, and from its
// start on what runs there. d.mu guards it.
type uplink struct {
	tap   *os.File
	stack *netstack.Stack
	gate  egress.Gate
}

// Connect implements driver.Networker.
func (d *Driver) Connect(id string, gate egress.Gate) error {
	if d.nets == nil {
		return fault.New("unsupported", "sandboxes have no network here").WithHint("the operator switches it on with network_interface = true")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	up := d.links[id]
	if up == nil {
		return fault.New("not_found", "there is no sandbox %s with a network", id)
	}
	up.gate = gate
	if up.stack != nil {
		up.stack.SetGate(gate)
	}
	return nil
}

// Resolvers implements driver.Networker.
func (d *Driver) Resolvers() []netip.Addr {
	if d.nets == nil {
		return nil
	}
	return []netip.Addr{netns.Gateway4}
}

// laid is the namespace of a sandbox that is being made.
type laid struct{ *netns.Namespace }

// path is that for the sandbox's description.
func (l laid) path() string {
	if l.Namespace == nil {
		return ""
	}
	return l.Path()
}

// Close lets go of it. The sandbox is in it by then, or is not to be.
func (l laid) Close() {
	if l.Namespace != nil {
		_ = l.Namespace.Close() // nothing is written to it
	}
}

// lay takes a namespace for a sandbox, if it is to have a network.
func (d *Driver) lay(b *box) (laid, error) {
	if !b.Network {
		return laid{}, nil
	}
	n, err := d.nets.Take()
	if err != nil {
		return laid{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.links[b.ID] = &uplink{tap: n.TakeTAP()}
	return laid{n}, nil
}

// serve begins to take what a sandbox sends.
func (d *Driver) serve(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	up := d.links[id]
	if up == nil || up.stack != nil {
		return nil
	}
	tap := up.tap
	up.tap = nil // it is the stack's, also when that cannot be made
	var err error
	up.stack, err = netstack.New(tap, up.gate)
	return err
}

// hangUp closes a sandbox's way out.
func (d *Driver) hangUp(id string) error {
	d.mu.Lock()
	up := d.links[id]
	delete(d.links, id)
	d.mu.Unlock()
	switch {
	case up == nil:
		return nil
	case up.stack != nil:
		return up.stack.Close()
	case up.tap != nil:
		return up.tap.Close()
	}
	return nil
}

// reachTime is how long the kernel may take to close what a daemon had that was
// killed a moment ago.
const reachTime = 3 * time.Second

// reach opens the way out of a sandbox of an earlier daemon again. Connections
// that went through that one are reset. A sandbox whose way out cannot be opened
// runs on without.
func (d *Driver) reach(ctx context.Context, b *box) {
	if !b.Network {
		return
	}
	if d.nets == nil {
		d.log.Warn("a sandbox has a network, and this daemon is to have none; it stays closed", "sandbox", b.ID)
		return
	}
	tap, err := netns.Open(b.Sentry.PID)
	for end := time.Now().Add(reachTime); errors.Is(err, unix.EBUSY) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
		tap, err = netns.Open(b.Sentry.PID)
	}
	if err == nil {
		d.mu.Lock()
		d.links[b.ID] = &uplink{tap: tap}
		d.mu.Unlock()
		err = d.serve(b.ID)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(err, errors.New("its interface is gone"))
	}
	if err != nil {
		d.log.Error("a sandbox's network cannot be opened again", "sandbox", b.ID, "error", err)
		return
	}
	// The sentry alone knows what was connected.
	var reset int
	if err := d.control(ctx, b.ID, "ResetConnections", struct{}{}, &reset); err != nil {
		d.log.Warn("connections of an earlier daemon could not be reset", "sandbox", b.ID, "error", err)
		return
	}
	if reset > 0 {
		d.log.Info("connections of an earlier daemon were reset", "sandbox", b.ID, "connections", reset)
	}
}
