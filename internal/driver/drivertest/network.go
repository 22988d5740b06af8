package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
)

// Addresses of documentation: none is anybody's.
const (
	place  = "192.0.2.7:80"
	place6 = "[2001:db8::7]:80"
)

// Gate is one that admits connections to some places, and sends everything back
// that it hears on them, with its name before it.
func Gate(name string, to ...string) egress.Gate { return &gate{name: name, to: to} }

// gate admits what is in to, and sends everything back that it hears, with its
// name before it.
type gate struct {
	name string
	to   []string

	mu      sync.Mutex
	refused []string
}

var _ egress.Gate = (*gate)(nil)

func (g *gate) Admit(_ context.Context, dst netip.AddrPort) (egress.Flow, error) {
	if !slices.Contains(g.to, dst.String()) {
		return nil, errors.New("not that")
	}
	return echo{g.name}, nil
}

// Resolve turns a question round.
func (g *gate) Resolve(_ context.Context, q []byte, _ bool) []byte {
	q = slices.Clone(q)
	slices.Reverse(q)
	return q
}

func (g *gate) Refused(proto string, dst netip.AddrPort, _ string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = append(g.refused, proto+" "+dst.String())
}

func (g *gate) told() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.refused)
}

type echo struct{ name string }

func (echo) Close() error { return nil }

func (e echo) Serve(ctx context.Context, inside net.Conn) {
	defer inside.Close()
	defer context.AfterFunc(ctx, func() { _ = inside.Close() })()
	if _, err := io.WriteString(inside, e.name); err == nil {
		_, _ = io.Copy(inside, inside)
	}
}

func networker(t *testing.T, f *Fixture) driver.Networker {
	t.Helper()
	n, ok := f.Driver.(driver.Networker)
	if !ok || len(n.Resolvers()) == 0 {
		f.lacks(t, "Networker")
	}
	return n
}

func connect(t *testing.T, n driver.Networker, id string, g egress.Gate) {
	t.Helper()
	if err := n.Connect(id, g); err != nil {
		t.Fatalf("Connect: %v", err)
	}
}

// reaches says that a connection leads to a gate.
func (sb *sandbox) reaches(t *testing.T, conn, to, name string) {
	t.Helper()
	sb.guest.Do(t, Call{Do: "dial", Path: conn, Text: to})
	sb.guest.Do(t, Call{Do: "send", Path: conn, Text: " hears"})
	if got, want := sb.guest.Do(t, Call{Do: "receive", Path: conn, N: len(name) + 6}), name+" hears"; got != want {
		t.Errorf("%s answers %q, not %q", to, got, want)
	}
}

// refuses says that there is no way, and that it is said at once.
func (sb *sandbox) refuses(t *testing.T, to string) {
	t.Helper()
	if _, err := sb.guest.Try(Call{Do: "dial", Path: "refused", Text: to}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a connection to %s: %v, not refused", to, err)
	}
}

// testGates sets gates at all points of a life.
func testGates(t *testing.T, f *Fixture) {
	n := networker(t, f)
	ctx := context.Background()
	if err := n.Connect("t9999", &gate{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("Connect of what never was: %v, not of the kind not_found", err)
	}
	s, link := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, n, s.ID, &gate{})
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	sb := f.hold(t, inst, link)
	connect(t, n, s.ID, &gate{})
	connect(t, n, s.ID, nil)
	stop(t, sb)
	if err := n.Connect(s.ID, &gate{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("Connect of what has ended: %v, not of the kind not_found", err)
	}
}

func testNetwork(t *testing.T, f *Fixture) {
	n := networker(t, f)
	f.talks(t)
	sb := f.run(t)
	resolver := net.JoinHostPort(n.Resolvers()[0].String(), "53")
	const question = "0001010000010000000000000161000001" + "0001" // where is "a"?

	// Closed.
	for _, to := range []string{place, place6, "127.0.0.1:1", resolver[:len(resolver)-2] + "80"} {
		sb.refuses(t, to)
	}
	if got := sb.guest.Do(t, Call{Do: "ask", Path: resolver, Text: question}); got[:8] != "00018183" {
		t.Errorf("asked for a name, it says %q, not that there is none", got)
	}

	// Open, for one place.
	g := &gate{name: "one", to: []string{place, place6}}
	connect(t, n, sb.ID(), g)
	sb.reaches(t, "a", place, "one")
	sb.reaches(t, "b", place6, "one")
	sb.refuses(t, "192.0.2.7:81")
	if got := sb.guest.Do(t, Call{Do: "ask", Path: resolver, Text: "0102030405"}); got != "0504030201" {
		t.Errorf("the gate, asked for a name, says %q", got)
	}
	if _, err := sb.guest.Try(Call{Do: "ask", Path: "192.0.2.7:443", Text: "00"}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a datagram: %v, not refused", err)
	}
	if _, err := sb.guest.Try(Call{Do: "ask", Path: "[2001:db8::7]:53", Text: "00"}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a datagram: %v, not refused", err)
	}
	if told := g.told(); !slices.Contains(told, "udp 192.0.2.7:443") || !slices.Contains(told, "udp [2001:db8::7]:53") {
		t.Errorf("the gate was told of %q", told)
	}

	// Another gate: what is open goes on.
	connect(t, n, sb.ID(), &gate{name: "two", to: []string{"192.0.2.7:81"}})
	sb.refuses(t, place)
	sb.reaches(t, "c", "192.0.2.7:81", "two")
	sb.guest.Do(t, Call{Do: "send", Path: "a", Text: "still"})
	if got := sb.guest.Do(t, Call{Do: "receive", Path: "a", N: 5}); got != "still" {
		t.Errorf("the first connection answers %q", got)
	}

	// Closed again.
	connect(t, n, sb.ID(), nil)
	sb.refuses(t, place)

	// What is large arrives whole.
	connect(t, n, sb.ID(), g)
	sb.reaches(t, "d", place, "one")
	large := strings.Repeat("0123456789abcdef", 20000)
	sb.guest.Do(t, Call{Do: "send", Path: "d", Text: large})
	if got := sb.guest.Do(t, Call{Do: "receive", Path: "d", N: len(large)}); got != large {
		t.Errorf("%d bytes came back as %d others", len(large), len(got))
	}
	stop(t, sb)
}

// testNetworkOfPrepared opens a gate before anything runs behind it.
func testNetworkOfPrepared(t *testing.T, f *Fixture) {
	n := networker(t, f)
	f.talks(t)
	ctx := context.Background()
	s, link := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, n, s.ID, &gate{name: "one", to: []string{place}})
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	sb := f.hold(t, inst, link)
	sb.reaches(t, "a", place, "one")
	stop(t, sb)
}

// testNetworkOfCopies saves a sandbox that is connected. It stays so; a copy
// hears that it is not, and connects anew.
func testNetworkOfCopies(t *testing.T, f *Fixture) {
	n := networker(t, f)
	snaps := snapshotter(t, f)
	f.talks(t)
	ctx := context.Background()
	sb := f.run(t)
	connect(t, n, sb.ID(), &gate{name: "one", to: []string{place}})
	sb.reaches(t, "a", place, "one")
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{}); err != nil {
		t.Fatal(err)
	}
	sb.guest = sb.link.Accept(t)
	sb.guest.Do(t, Call{Do: "send", Path: "a", Text: "still"})
	if got := sb.guest.Do(t, Call{Do: "receive", Path: "a", N: 5}); got != "still" {
		t.Errorf("the connection of the one that was saved answers %q", got)
	}
	s, link := f.spec(t)
	s.Snapshot = dir
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, n, s.ID, &gate{name: "two", to: []string{place}})
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	copied := f.hold(t, inst, link)
	if got, err := copied.guest.Try(Call{Do: "receive", Path: "a", N: 1}); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("the copy's connection says %q, %v, and not that it was reset", got, err)
	}
	copied.reaches(t, "b", place, "two")
	sb.reaches(t, "c", place, "one")
	if got, want := copied.guest.Do(t, Call{Do: "interfaces"}), sb.guest.Do(t, Call{Do: "interfaces"}); got != want {
		t.Errorf("the copy has %s, the original %s", got, want)
	}
	stop(t, copied)
	stop(t, sb)
}

// testNetworkIsReset has another daemon take over while the guest waits for data.
func testNetworkIsReset(t *testing.T, f *Fixture) {
	n := networker(t, f)
	f.talks(t)
	sb := f.run(t)
	connect(t, n, sb.ID(), &gate{name: "one", to: []string{place}})
	sb.reaches(t, "a", place, "one")
	sb.guest.Tell(t, Call{Do: "receive", Path: "a", N: 1})
	d := f.Reopen(t)
	inst, err := d.Adopt(context.Background(), sb.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.guest.Failed(t); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection of an earlier daemon: %v", err)
	}
	sb.refuses(t, place)
	connect(t, d.(driver.Networker), sb.ID(), &gate{name: "two", to: []string{place}})
	sb.reaches(t, "b", place, "two")
	stop(t, inst)
}

// testNetworksApart has two sandboxes with the same address look for each other.
func testNetworksApart(t *testing.T, f *Fixture) {
	n := networker(t, f)
	f.talks(t)
	one, two := f.run(t), f.run(t)
	connect(t, n, one.ID(), &gate{name: "one", to: []string{place}})
	connect(t, n, two.ID(), &gate{name: "two", to: []string{place}})
	one.reaches(t, "a", place, "one")
	two.reaches(t, "a", place, "two")
	connect(t, n, two.ID(), nil)
	two.refuses(t, place)
	one.reaches(t, "b", place, "one")
	stop(t, two)
	one.reaches(t, "c", place, "one")
	stop(t, one)
}
