package sandbox_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// doors gives out gates and knows which are in use.
type doors struct {
	mu   sync.Mutex
	open map[string]int
	rows []store.Sandbox
	fail error
}

// door is the gate of one sandbox.
type door struct{ id string }

func (door) Admit(context.Context, netip.AddrPort) (egress.Flow, error) { return nil, errors.New("no") }
func (door) Resolve(context.Context, []byte, bool) []byte               { return nil }
func (door) Refused(string, netip.AddrPort, string)                     {}

func (d *doors) Open(_ context.Context, sb store.Sandbox) (egress.Gate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	d.rows = append(d.rows, sb)
	d.open[sb.ID]++
	return door{sb.ID}, nil
}

func (d *doors) Close(sb store.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[sb.ID]--
}

// inUse names the sandboxes whose gates are open, each as often as it is.
func (d *doors) inUse() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for id, n := range d.open {
		for range n {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (d *doors) last() store.Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rows[len(d.rows)-1]
}

func newDoors() *doors { return &doors{open: map[string]int{}} }

// holds says whose gates are open, and that those of the host are the same.
func (r *rig) gates(d *doors, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	if got := d.inUse(); !slices.Equal(got, want) {
		r.t.Errorf("gates are open for %q, not for %q", got, want)
	}
	for _, id := range r.host.IDs() {
		g := r.host.Gate(id)
		if open := slices.Contains(want, id); open != (g != nil) {
			r.t.Errorf("%s has the gate %v, and should have one: %v", id, g, open)
		} else if open && g != (door{id}) {
			r.t.Errorf("%s has the gate %v", id, g)
		}
	}
}

func TestGatesFollowTheirSandboxes(t *testing.T) {
	d := newDoors()
	r := newRig(t, func(c *sandbox.Config) { c.Network = d })
	ctx := context.Background()
	sb := r.create(api.CreateSandboxRequest{Template: "base", Persistent: true})
	if !slices.Contains(sb.Capabilities, "network") {
		t.Errorf("it can %q", sb.Capabilities)
	}
	r.gates(d, sb.ID)
	if row := d.last(); row.ID != sb.ID || row.Owner != "ann" || row.State != store.Creating {
		t.Errorf("the gate was made for %+v", row)
	}

	fork, err := r.Fork(ctx, "ann", sb.ID, api.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	child := fork.Children[0].ID
	r.gates(d, sb.ID, child)
	if d.last().ForkedFrom != sb.ID {
		t.Errorf("the copy's gate was made for %+v", d.last())
	}
	if err := r.Kill(ctx, "ann", child); err != nil {
		t.Fatal(err)
	}
	r.gates(d, sb.ID)

	for range 2 {
		if err := r.Hibernate(ctx, "ann", sb.ID, api.CarryRequest{}); err != nil {
			t.Fatal(err)
		}
		r.gates(d)
		if err := r.Wake(ctx, "ann", sb.ID); err != nil {
			t.Fatal(err)
		}
		r.gates(d, sb.ID)
	}
	if err := r.Pause(ctx, "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.Resume(ctx, "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	r.gates(d, sb.ID)

	d.mu.Lock() // those of the daemon that ends go with it
	d.open = map[string]int{}
	d.mu.Unlock()
	r.restart()
	if err := r.Adopted(ctx); err != nil {
		t.Fatal(err)
	}
	r.gates(d, sb.ID)
	if err := r.Kill(ctx, "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	r.gates(d)
}

// Those of the pool have none until somebody has them.
func TestGatesOfThePool(t *testing.T) {
	d := newDoors()
	r := newRig(t, func(c *sandbox.Config) {
		c.Network = d
		c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1, Prepared: 1}}
	})
	eventually(t, "the pool is filled", func() bool { return r.PoolSizes()["base"] == sandbox.PoolSize{Restored: 1, Prepared: 1} })
	r.gates(d)
	one := r.create(api.CreateSandboxRequest{Template: "base"})
	if one.BootMode != "pool" {
		t.Fatalf("it came from %s", one.BootMode)
	}
	if g := r.host.Gate(one.ID); g != (door{one.ID}) {
		t.Errorf("it has the gate %v", g)
	}
}

// A gate that cannot be had fails what it is for.
func TestGateThatFails(t *testing.T) {
	d := newDoors()
	r := newRig(t, func(c *sandbox.Config) { c.Network = d })
	ctx := context.Background()
	sb := r.create(api.CreateSandboxRequest{Template: "base", Persistent: true})
	if err := r.Hibernate(ctx, "ann", sb.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.fail = errors.New("the keys are lost")
	d.mu.Unlock()
	if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{Template: "base"}); err == nil || !strings.Contains(err.Error(), "the keys are lost") {
		t.Errorf("a create: %v", err)
	}
	if err := r.Wake(ctx, "ann", sb.ID); err == nil || !strings.Contains(err.Error(), "the keys are lost") {
		t.Errorf("a wake: %v", err)
	}
	r.gates(d)
	if ids := r.host.IDs(); len(ids) > 0 {
		t.Errorf("left on the host: %q", ids)
	}
	d.mu.Lock()
	d.fail = nil
	d.mu.Unlock()
	if err := r.Wake(ctx, "ann", sb.ID); err != nil {
		t.Errorf("the next wake: %v", err)
	}
	r.gates(d, sb.ID)

	// A create that fails later lets go of it.
	r.host.Break(fake.Faults{Restore: func(context.Context, string) error { return errors.New("no restore") }})
	if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{Template: "base"}); err == nil {
		t.Error("a create without a restore worked")
	}
	r.gates(d, sb.ID)
}
