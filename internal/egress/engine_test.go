package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

func openSession(t *testing.T, p api.NetworkPolicy, secrets api.Secrets) *session {
	t.Helper()
	s := &session{t: t, world: newWorld(t)}
	s.open(p, secrets, nil)
	t.Cleanup(func() { s.sandbox.Close(); s.flows.Wait() })
	return s
}

// A policy that changes cuts what it would not have let out, and nothing else.
func TestPolicyChangeCutsFlows(t *testing.T) {
	allow := func(rules ...string) *Policy {
		p := api.NetworkPolicy{Mode: api.NetworkAllowList}
		for _, r := range rules {
			p.Allow = append(p.Allow, api.Rule(r))
		}
		c, err := Compile(p, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	s := openSession(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com"), api.Rule("other.example")}}, nil)
	stays, err := s.connect(context.Background(), "example.com:5432")
	if err != nil {
		t.Fatal(err)
	}
	goes, err := s.connect(context.Background(), "other.example:5432")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sandbox.SetPolicy(allow("example.com")); err != nil {
		t.Fatal(err)
	}
	if _, err := goes.Read(make([]byte, 1)); plain(err) != "connection reset" {
		t.Errorf("the connection that is no longer allowed: %v", err)
	}
	fmt.Fprint(stays, "hello")
	if err := stays.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := received(stays); got != "got \"hello\"\n" {
		t.Errorf("the connection that is still allowed: %s", got)
	}
	s.flows.Wait()
	var reasons []string
	for _, e := range s.world.take() {
		if e.Protocol != "dns" {
			reasons = append(reasons, e.Name+" "+e.Reason)
		}
	}
	slices.Sort(reasons)
	if got := strings.Join(reasons, ", "); got != "example.com , other.example the policy was changed" {
		t.Errorf("the audit says %q", got)
	}
	if u := s.sandbox.Usage(); u.Flows != 0 {
		t.Errorf("%d flows are left", u.Flows)
	}
}

// Closing a sandbox resets what is open, and lets nothing more out.
func TestCloseAndReset(t *testing.T) {
	s := openSession(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com")}}, nil)
	for _, end := range []func(){s.sandbox.Reset, func() { s.sandbox.Close() }} {
		c, err := s.connect(context.Background(), "example.com:5432")
		if err != nil {
			t.Fatal(err)
		}
		end()
		if _, err := c.Read(make([]byte, 1)); plain(err) != "connection reset" {
			t.Errorf("%v", err)
		}
	}
	if _, err := s.connect(context.Background(), "example.com:5432"); err == nil {
		t.Error("a closed sandbox connects")
	}
}

func TestThousandFlowsAtOnce(t *testing.T) {
	const n = 1000
	s := openSession(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com")}, Flows: n}, nil)
	conns := make([]net.Conn, n)
	s.sandbox.Resolve(context.Background(), ask("example.com.", dnsmessage.TypeA, dnsmessage.ClassINET, false), false)
	const there = "198.18.1.0:5432"
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c, err := s.connect(context.Background(), there)
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(c, "%d", i)
			conns[i] = c
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if _, err := s.connect(context.Background(), there); err == nil {
		t.Error("one more than there may be at once connects")
	}
	for i, c := range conns {
		_ = c.(*net.TCPConn).CloseWrite()
		if got, want := received(c), fmt.Sprintf("got %q\n", fmt.Sprint(i)); got != want {
			var reasons []string
			for _, e := range s.world.take() {
				if e.Reason != "" {
					reasons = append(reasons, e.Reason)
				}
			}
			t.Fatalf("connection %d got %q; the audit says %q", i, got, reasons)
		}
		c.Close()
	}
	s.flows.Wait()
	if c, err := s.connect(context.Background(), there); err != nil {
		t.Errorf("when they have ended: %v", err)
	} else {
		c.Close()
	}
}

// What went through is in the line, in both directions, also where it was cut.
func TestBytesAreCounted(t *testing.T) {
	s := openSession(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com")}}, nil)
	c, err := s.connect(context.Background(), "example.com:5432")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, strings.Repeat("x", 100_000))
	_ = c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.flows.Wait()
	lines := s.world.take()
	e := lines[len(lines)-1]
	if e.BytesOut != 100_000 || e.BytesIn != int64(len(got)) || e.SandboxID != "sb" || e.Workspace != "team" || e.Address != "93.184.216.34" {
		t.Errorf("%+v", e)
	}
	if u := s.sandbox.Usage(); u.Bytes != 100_000+int64(len(got)) {
		t.Errorf("%d bytes were used", u.Bytes)
	}
}

// The rate holds by the clock; no test waits for it.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(&Policy{rate: 100_000, flowRate: 1, flows: 1}, 0, time.Now())
		begin := time.Now()
		for range 20 {
			if err := m.take(context.Background(), 50_000); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != time.Duration(1_000_000-chunk)*time.Second/100_000 { // a chunk is free
			t.Errorf("a million bytes took %v at 100 000 a second", took)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := m.take(ctx, 50_000); err == nil {
			t.Error("a flow that ended waits for its turn")
		}
	})
}

// A flood of refusals is counted, not written.
func TestRefusalsAreBounded(t *testing.T) {
	now := time.Now()
	var lines []api.NetworkEvent
	e := New(Options{Now: func() time.Time { return now }, Audit: func(e api.NetworkEvent) { lines = append(lines, e) }})
	p, err := Compile(api.NetworkPolicy{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Open(Identity{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	flood := func() {
		for range 1000 {
			s.Refused("udp", netip.MustParseAddrPort("8.8.8.8:53"), "")
		}
	}
	flood()
	if len(lines) != refusalsAtOnce {
		t.Errorf("%d lines of 1000 refusals", len(lines))
	}
	now = now.Add(time.Second)
	s.Refused("udp", netip.MustParseAddrPort("8.8.8.8:53"), "")
	if last := lines[len(lines)-1]; last.Suppressed != 1000-refusalsAtOnce {
		t.Errorf("the next line counts %d", last.Suppressed)
	}
	flood()
	s.Close()
	var all int64
	for _, e := range lines {
		all += e.Suppressed
		if e.Protocol != "audit" {
			all++
		}
	}
	if all != 2001 {
		t.Errorf("%d refusals are accounted for, of 2001", all)
	}
}

// A name keeps its address, and what one sandbox can have remembered is bounded.
func TestMadeUpAddresses(t *testing.T) {
	a := newAddresses(nil)
	for i := range maxNames {
		addr, err := a.of(fmt.Sprintf("h%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		if name, ours := a.name(addr); name != fmt.Sprintf("h%d.example", i) || !ours || StackAddresses.Contains(addr) {
			t.Fatalf("%s stands for %q", addr, name)
		}
		if name, ours := a.name(inV6(addr)); name != fmt.Sprintf("h%d.example", i) || !ours {
			t.Fatalf("%s stands for %q", inV6(addr), name)
		}
	}
	if _, err := a.of("one.more.example"); err == nil {
		t.Error("one name more than there may be has an address")
	}
	b := newAddresses(a.list())
	first, _ := a.of("h77.example")
	if again, err := b.of("h77.example"); err != nil || again != first {
		t.Errorf("after a restore h77.example is %s, before %s (%v)", again, first, err)
	}
	if name, ours := a.name(netip.MustParseAddr("198.17.255.255")); name != "" || ours {
		t.Errorf("an address outside stands for %q", name)
	}
	if c := newAddresses([]string{"a", "a", "b"}); len(c.list()) != 2 {
		t.Errorf("a state with a name twice gives %q", c.list())
	}
}

func TestCAIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	var wg sync.WaitGroup
	all := make([]*CA, 8)
	for i := range all {
		wg.Go(func() {
			ca, err := LoadCA(path)
			if err != nil {
				t.Error(err)
			}
			all[i] = ca
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, ca := range all {
		if !bytes.Equal(ca.PEM(), all[0].PEM()) {
			t.Error("two that begin at once have two authorities")
		}
	}
	if bytes.Contains(all[0].PEM(), []byte("PRIVATE")) {
		t.Error("what sandboxes get holds the key")
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("beside it: %v, %v", left, err)
	}
	if err := os.WriteFile(path, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadCA(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v", err)
	}
}

func TestLeaves(t *testing.T) {
	ca, err := LoadCA(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	now := time.Now()
	for _, name := range []string{"example.com", strings.Repeat("a.", 60) + "example"} {
		l, err := ca.leaf(name, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Error(err)
		}
		if again, err := ca.leaf(name, now); err != nil || again != l {
			t.Errorf("a second certificate is made (%v)", err)
		}
		if later, err := ca.leaf(name, now.Add(leafAge)); err != nil || later == l {
			t.Errorf("one that has ended is used (%v)", err)
		}
	}
	for i := range maxLeaves {
		ca.leaves[fmt.Sprint(i)] = &tls.Certificate{Leaf: &x509.Certificate{}}
	}
	if _, err := ca.leaf("one.more.example", now); err != nil || len(ca.leaves) > maxLeaves {
		t.Errorf("%d are kept (%v)", len(ca.leaves), err)
	}
}

// A flow whose handshake did not come about gives back what it held.
func TestFlowThatDoesNotBegin(t *testing.T) {
	s := openSession(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("8.8.8.8")}}, nil)
	for _, to := range []string{"8.8.8.8:5432", "9.9.9.9:80"} {
		f, err := s.sandbox.Admit(context.Background(), netip.MustParseAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if u := s.sandbox.Usage(); u.Flows != 0 {
		t.Errorf("%d flows are left", u.Flows)
	}
	lines := s.world.take()
	if len(lines) != 2 || lines[0].Verdict != api.NetworkFailed || lines[1].Verdict != api.NetworkRefused {
		t.Errorf("%+v", lines)
	}
}

// Without anything injected, the machine knows its own addresses.
func TestOwnAddresses(t *testing.T) {
	e := New(Options{})
	for addr, want := range map[string]bool{"127.0.0.1": true, "192.0.2.77": false} {
		if got, err := e.ofHost(netip.MustParseAddr(addr)); err != nil || got != want {
			t.Errorf("%s is this machine's: %v, %v", addr, got, err)
		}
	}
}

// The hosts file of this machine counts, with no DNS.
func TestHostResolver(t *testing.T) {
	found, err := hostResolver{}.LookupNetIP(context.Background(), "ip4", "localhost.")
	if err != nil || len(found) == 0 || !found[0].IsLoopback() {
		t.Errorf("%v, %v", found, err)
	}
}

func TestPrintable(t *testing.T) {
	if got := printable("a\x00b\n\"" + strings.Repeat("é", 200)); got != `"a?b??`+strings.Repeat("é", 95)+`…"` {
		t.Error(got)
	}
}

func TestNoAuthority(t *testing.T) {
	p, err := Compile(api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "example.com", Paths: []string{"/v1"}}}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Inspects() {
		t.Error("a policy with paths does not say that it opens TLS")
	}
	if _, err := New(Options{}).Open(Identity{}, p, nil); fault.CodeOf(err) != api.CodeUnsupported {
		t.Errorf("%v", err)
	}
	p, err = Compile(api.NetworkPolicy{Mode: api.NetworkOpen}, api.Secrets{"example.com": {Header: "X", Ref: "y"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{CA: newWorld(t).own}).Open(Identity{}, p, nil); fault.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a secret of a store that there is not: %v", err)
	}
}
