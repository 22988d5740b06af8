package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/netns"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// world is a sandbox's own stack and ours, with a wire between them.
type world struct {
	*testing.T
	ours *Stack
	gate *gate

	wire  *link // the sandbox's end
	stack *stack.Stack

	mu     sync.Mutex
	frames [][]byte // that the sandbox got
	news   chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		for _, option := range []int{unix.SO_SNDBUFFORCE, unix.SO_RCVBUFFORCE} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 8<<20)
		}
	}
	w := &world{T: t, gate: &gate{answers: map[string]func(context.Context, net.Conn){}}, news: make(chan struct{}, 1)}
	if w.ours, err = New(os.NewFile(uintptr(fds[0]), "ours"), w.gate); err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	if w.wire, err = newLink(theirs); err != nil {
		t.Fatal(err)
	}
	w.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := w.stack.CreateNIC(1, w.wire); err != nil {
		t.Fatal(err)
	}
	for proto, prefix := range map[tcpip.NetworkProtocolNumber]netip.Prefix{ipv4.ProtocolNumber: netns.Guest4, ipv6.ProtocolNumber: netns.Guest6} {
		address := tcpip.ProtocolAddress{Protocol: proto, AddressWithPrefix: tcpip.AddressWithPrefix{Address: address(prefix.Addr()), PrefixLen: prefix.Bits()}}
		if err := w.stack.AddProtocolAddress(1, address, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
	}
	w.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: 1}, {Destination: header.IPv6EmptySubnet, NIC: 1}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			frame, err := w.wire.next()
			if errors.Is(err, unix.ECONNRESET) {
				continue // a pair of sockets says so when one has not read all, and gives what it sent
			}
			if err != nil {
				return
			}
			raw := frame.Flatten()
			w.mu.Lock()
			w.frames = append(w.frames, raw)
			w.mu.Unlock()
			select {
			case w.news <- struct{}{}:
			default:
			}
			frame.TrimFront(header.EthernetMinimumSize)
			w.wire.deliver(tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(raw[12:])), frame)
		}
	}()
	t.Cleanup(func() {
		if err := w.ours.Close(); err != nil {
			t.Error(err)
		}
		w.stack.Close()
		_ = theirs.Close()
		<-done
		if flowsOfAll.Load() != 0 {
			t.Errorf("%d flows are still counted", flowsOfAll.Load())
		}
	})
	return w
}

func address(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func full(s string) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	a := netip.MustParseAddrPort(s)
	proto := ipv4.ProtocolNumber
	if a.Addr().Is6() {
		proto = ipv6.ProtocolNumber
	}
	return tcpip.FullAddress{NIC: 1, Addr: address(a.Addr()), Port: a.Port()}, proto
}

// dial connects from inside.
func (w *world) dial(to string) (*gonet.TCPConn, error) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	a, proto := full(to)
	return gonet.DialContextTCP(ctx, w.stack, a, proto)
}

func (w *world) must(to string) *gonet.TCPConn {
	w.Helper()
	c, err := w.dial(to)
	if err != nil {
		w.Fatalf("%s: %v", to, err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// ask sends a datagram from inside and waits for one back.
func (w *world) ask(to, what string) (string, error) {
	a, proto := full(to)
	c, err := gonet.DialUDP(w.stack, nil, &a, proto)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte(what)); err != nil {
		return "", err
	}
	answer := make([]byte, 64<<10)
	for end := time.Now().Add(patience); ; {
		// gonet does not wake for errors, and finds them when it looks.
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
		n, err := c.Read(answer)
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || time.Now().After(end) {
			return string(answer[:n]), err
		}
	}
}

// until waits for what must come about.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// send sends an IP packet from inside, as root with a packet socket would.
func (w *world) send(proto tcpip.NetworkProtocolNumber, packet []byte) { w.wire.write(proto, packet) }

// got waits for a frame that the sandbox gets.
func (w *world) got(is func(frame []byte) bool) bool {
	late := time.After(patience)
	for {
		w.mu.Lock()
		found := slices.ContainsFunc(w.frames, is)
		w.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-w.news:
		case <-late:
			return false
		}
	}
}

// gate admits what it has an answer for.
type gate struct {
	mu      sync.Mutex
	answers map[string]func(ctx context.Context, inside net.Conn)
	asked   []string
	refused []string
	why     string // of the last one
	closed  int
}

func (g *gate) on(to string, f func(context.Context, net.Conn)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers[to] = f
}

func (g *gate) Admit(_ context.Context, dst netip.AddrPort) (egress.Flow, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, dst.String())
	f := g.answers[dst.String()]
	if f == nil {
		return nil, errors.New("no")
	}
	return flow{g, f}, nil
}

func (g *gate) Resolve(_ context.Context, q []byte, tcp bool) []byte {
	if string(q) == "silence" {
		return nil
	}
	return fmt.Appendf(nil, "%s %v", q, tcp)
}

func (g *gate) Refused(proto string, dst netip.AddrPort, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = why
	g.refused = append(g.refused, proto+" "+dst.String())
}

func (g *gate) hasRefused(what string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.refused, what)
}

func (g *gate) wasAsked(to string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.asked, to)
}

type flow struct {
	g *gate
	f func(context.Context, net.Conn)
}

func (f flow) Serve(ctx context.Context, inside net.Conn) { f.f(ctx, inside) }

func (f flow) Close() error {
	f.g.mu.Lock()
	defer f.g.mu.Unlock()
	f.g.closed++
	return nil
}

func echo(ctx context.Context, c net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	_, _ = io.Copy(c, c)
}

func TestFlows(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "8.8.8.8:53", "198.18.0.1:443", "10.0.0.1:1", "169.254.169.254:80"} {
		w.gate.on(to, echo)
		c := w.must(to)
		large := bytes.Repeat([]byte("0123456789"), 500_000)
		go func() {
			_, _ = c.Write(large)
			_ = c.CloseWrite()
		}()
		back, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(back, large) {
			t.Errorf("%s: %d bytes of %d came back, %v", to, len(back), len(large), err)
		}
		_ = c.Close()
	}
}

func TestRefusedAtOnce(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{"192.0.2.1:80", "[2001:db8::1]:80", "10.255.255.1:80", "[fd70:616e:6461::1]:80", "[fd70:616e:6461::3]:80"} {
		if _, err := w.dial(to); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v, not refused", to, err)
		}
	}
	for to, want := range map[string]bool{"192.0.2.1:80": true, "10.255.255.1:80": false, "[fd70:616e:6461::3]:80": false, "[fd70:616e:6461::1]:80": false} {
		if w.gate.wasAsked(to) != want {
			t.Errorf("the gate was asked about %s: %v", to, !want)
		}
		if w.gate.hasRefused("tcp "+to) == want {
			t.Errorf("the gate was told of %s: %v", to, want)
		}
	}
}

// What is not TCP and no question to the resolver is refused with a message.
func TestOtherProtocols(t *testing.T) {
	w := newWorld(t)
	for _, to := range []string{"192.0.2.1:443", "192.0.2.1:53", "[2001:db8::1]:443", "[2001:db8::1]:5353", "10.255.255.1:54"} {
		if _, err := w.ask(to, "hello"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("a datagram to %s: %v, not refused", to, err)
		}
		if !w.gate.hasRefused("udp " + to) {
			t.Errorf("the gate was not told of udp %s", to)
		}
	}
	four := func(proto uint8, change func(header.IPv4), payload ...byte) []byte {
		p := make([]byte, header.IPv4MinimumSize+len(payload))
		copy(p[header.IPv4MinimumSize:], payload)
		ipv4Header(p, proto, netns.Guest4.Addr(), netip.MustParseAddr("192.0.2.9"))
		if change != nil {
			change(p)
		}
		return p
	}
	icmp4 := func(code header.ICMPv4Code, quotes uint8) func([]byte) bool {
		return func(f []byte) bool {
			ip := header.IPv4(f[header.EthernetMinimumSize:])
			if f[12] != 8 || f[13] != 0 || ip.Protocol() != uint8(header.ICMPv4ProtocolNumber) {
				return false
			}
			m := header.ICMPv4(ip.Payload())
			return m.Type() == header.ICMPv4DstUnreachable && m.Code() == code && header.IPv4(m.Payload()).Protocol() == quotes && header.ICMPv4Checksum(m, 0) == m.Checksum()
		}
	}
	w.send(ipv4.ProtocolNumber, four(132, nil, make([]byte, 12)...)) // SCTP
	if !w.got(icmp4(header.ICMPv4AdminProhibited, 132)) || !w.gate.hasRefused("ip-132 192.0.2.9:0") {
		t.Error("SCTP is not refused")
	}
	w.send(ipv4.ProtocolNumber, four(1, nil, 8, 0, 0, 0, 0, 1, 0, 1)) // ping
	if !w.got(icmp4(header.ICMPv4AdminProhibited, 1)) || !w.gate.hasRefused("icmp 192.0.2.9:0") {
		t.Error("a ping is not refused")
	}
	w.send(ipv4.ProtocolNumber, four(6, func(h header.IPv4) { h.SetFlagsFragmentOffset(header.IPv4FlagMoreFragments, 0) }, make([]byte, 24)...))
	if !w.got(icmp4(header.ICMPv4AdminProhibited, 6)) || !w.gate.hasRefused("fragment 192.0.2.9:0") {
		t.Error("a fragment is not refused")
	}
	six := make([]byte, header.IPv6MinimumSize+8)
	ipv6Header(six, uint8(header.IPv6FragmentExtHdrIdentifier), netns.Guest6.Addr(), netip.MustParseAddr("2001:db8::9"))
	w.send(ipv6.ProtocolNumber, six)
	if !w.got(func(f []byte) bool {
		ip := header.IPv6(f[header.EthernetMinimumSize:])
		return f[12] == 0x86 && ip.NextHeader() == uint8(header.ICMPv6ProtocolNumber) && header.ICMPv6(ip.Payload()).Code() == header.ICMPv6Prohibited
	}) {
		t.Error("a fragment over IPv6 is not refused")
	}
}

// What nobody may answer is dropped, and the stack still works.
func TestDropped(t *testing.T) {
	w := newWorld(t)
	w.gate.on("192.0.2.1:80", echo)
	syn := func(src, dst string, change func([]byte)) []byte {
		p := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
		header.TCP(p[header.IPv4MinimumSize:]).Encode(&header.TCPFields{SrcPort: 5, DstPort: 80, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1000})
		ipv4Header(p, 6, netip.MustParseAddr(src), netip.MustParseAddr(dst))
		if change != nil {
			change(p)
		}
		return p
	}
	guest := netns.Guest4.Addr().String()
	for name, p := range map[string][]byte{
		"spoofed":               syn("192.0.2.50", "192.0.2.1", nil),
		"the gateway's own":     syn(netns.Gateway4.String(), "192.0.2.1", nil),
		"to loopback":           syn(guest, "127.0.0.1", nil),
		"to a group":            syn(guest, "224.0.0.251", nil),
		"to all":                syn(guest, "255.255.255.255", nil),
		"to nowhere":            syn(guest, "0.0.0.0", nil),
		"longer than it is":     syn(guest, "192.0.2.1", func(p []byte) { header.IPv4(p).SetTotalLength(2000) }),
		"a header that is long": syn(guest, "192.0.2.1", func(p []byte) { p[0] = 0x4f }),
		"version 5":             syn(guest, "192.0.2.1", func(p []byte) { p[0] = 0x55 }),
		"no TCP header":         syn(guest, "192.0.2.1", nil)[:25],
		"nothing":               nil,
		"one byte":              {0x45},
	} {
		w.send(ipv4.ProtocolNumber, p)
		w.send(ipv6.ProtocolNumber, p)
		_ = name
	}
	w.send(0x0806, bytes.Repeat([]byte{1}, 28)) // ARP
	c := w.must("192.0.2.1:80")                 // all of it has been read by now
	defer c.Close()
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if !slices.Equal(w.gate.asked, []string{"192.0.2.1:80"}) {
		t.Errorf("the gate was asked about %q", w.gate.asked)
	}
	for _, want := range []string{"spoofed 192.0.2.1:80", "tcp 127.0.0.1:80", "tcp 224.0.0.251:80"} {
		if !slices.Contains(w.gate.refused, want) {
			t.Errorf("the gate was not told of %s, but of %q", want, w.gate.refused)
		}
	}
}

func TestNames(t *testing.T) {
	w := newWorld(t)
	for _, gateway := range []string{"10.255.255.1:53", "[fd70:616e:6461::1]:53"} {
		if got, err := w.ask(gateway, "who"); err != nil || got != "who false" {
			t.Errorf("asked at %s, it says %q, %v", gateway, got, err)
		}
		c := w.must(gateway)
		for _, q := range []string{"who", "what"} {
			_, _ = c.Write(append([]byte{0, byte(len(q))}, q...))
			var length [2]byte
			if _, err := io.ReadFull(c, length[:]); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(c, answer); err != nil || string(answer) != q+" true" {
				t.Errorf("asked over TCP, it says %q, %v", answer, err)
			}
		}
		_, _ = c.Write(append([]byte{maxQuery >> 8, maxQuery&0xff + 1}, make([]byte, maxQuery+1)...)) // longer than any question
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a question of more than 1 KB is answered with %d bytes", n)
		}
		_ = c.Close()
	}
	if _, err := w.ask("10.255.255.1:53", strings.Repeat("x", maxQuery+1)); err == nil {
		t.Error("a question of more than 1 KB was answered")
	}
	w.ours.SetGate(nil)
	question := "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03foo\x00\x00\x01\x00\x01"
	got, err := w.ask("10.255.255.1:53", question)
	if err != nil || got != "\x12\x34\x81\x83\x00\x01\x00\x00\x00\x00\x00\x00\x03foo\x00\x00\x01\x00\x01" {
		t.Errorf("closed, it says %q, %v", got, err)
	}
	if _, err := w.dial("192.0.2.1:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("closed, a connection: %v", err)
	}
}

// A flow may end its half, and may cut.
func TestEnds(t *testing.T) {
	w := newWorld(t)
	w.gate.on("192.0.2.1:1", func(_ context.Context, c net.Conn) {
		_, _ = io.WriteString(c, "bye")
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	c := w.must("192.0.2.1:1")
	if got, err := io.ReadAll(c); string(got) != "bye" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Write([]byte("still")); err != nil {
		t.Errorf("the other half: %v", err)
	}
	_ = c.Close()

	w.gate.on("192.0.2.1:2", func(_ context.Context, c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		c.(interface{ Abort() }).Abort()
	})
	c = w.must("192.0.2.1:2")
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a flow that was cut: %v", err)
	}

	// All that was sent arrives, though Serve has returned.
	large := bytes.Repeat([]byte("x"), 1<<20)
	w.gate.on("192.0.2.1:3", func(_ context.Context, c net.Conn) { _, _ = c.Write(large) })
	c = w.must("192.0.2.1:3")
	if got, err := io.ReadAll(c); len(got) != len(large) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = c.Close()

	// Until then the flow counts.
	served := make(chan int, 1)
	w.gate.on("192.0.2.1:5", func(_ context.Context, c net.Conn) {
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // both sides' buffers are full by then
		n, _ := c.Write(bytes.Repeat(large, 16))
		served <- n
	})
	w.gate.on("192.0.2.1:6", echo)
	c = w.must("192.0.2.1:5")
	sent := <-served
	other := w.must("192.0.2.1:6") // gives the first one time to go
	for range 100 {
		_, _ = other.Write([]byte("x"))
		_, _ = other.Read(make([]byte, 1))
	}
	if n := w.ours.Flows(); n != 2 {
		t.Errorf("while nobody reads what was sent, %d flows are counted", n)
	}
	_ = other.Close()
	if got, err := io.ReadAll(c); len(got) != sent || sent < len(large) || err != nil {
		t.Errorf("%d bytes of %d, %v", len(got), sent, err)
	}
	_ = c.Close()
	w.until("no flow is left", func() bool { return w.ours.Flows() == 0 })

	// The end of the stack cuts, and is waited for.
	ended := make(chan struct{})
	w.gate.on("192.0.2.1:4", func(ctx context.Context, c net.Conn) { defer close(ended); echo(ctx, c) })
	c = w.must("192.0.2.1:4")
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := w.ours.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("a flow when the stack ends: %v", err)
	}
}

// More flows than there may be are reset, and others come in when some end.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.gate.on("192.0.2.1:80", echo)
	var open []*gonet.TCPConn
	for len(open) < MaxFlows {
		open = append(open, w.must("192.0.2.1:80"))
	}
	if _, err := w.dial("192.0.2.1:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("flow %d: %v", len(open)+1, err)
	}
	if !w.gate.hasRefused("tcp 192.0.2.1:80") || w.gate.why != egress.TooMany {
		t.Errorf("the gate was not told, or that %q", w.gate.why)
	}
	if n := w.ours.Flows(); n != MaxFlows {
		t.Errorf("%d flows are counted", n)
	}
	for _, c := range open {
		_ = c.Close()
	}
	w.until("no flow is left", func() bool { return w.ours.Flows() == 0 })
	_ = w.must("192.0.2.1:80").Close()
}

// A handshake that does not come about closes the flow.
func TestHandshakeThatFails(t *testing.T) {
	w := newWorld(t)
	syn := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
	w.gate.on("192.0.2.1:80", func(context.Context, net.Conn) { t.Error("it is served") })
	header.TCP(syn[header.IPv4MinimumSize:]).Encode(&header.TCPFields{SrcPort: 5, DstPort: 80, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1000})
	ipv4Header(syn, 6, netns.Guest4.Addr(), netip.MustParseAddr("192.0.2.1"))
	w.send(ipv4.ProtocolNumber, syn) // the sandbox's own stack resets what comes back
	w.until("the flow is closed", func() bool {
		w.gate.mu.Lock()
		defer w.gate.mu.Unlock()
		return w.gate.closed == 1
	})
}

// slow is a gate that admits what it did when it is told to.
type slow struct {
	*gate
	asked, goOn chan struct{}
}

func (s slow) Admit(ctx context.Context, dst netip.AddrPort) (egress.Flow, error) {
	close(s.asked)
	<-s.goOn
	return s.gate.Admit(ctx, dst)
}

// A connection that is admitted while the sandbox ends does not hold up its end:
// nobody is left to shake hands with.
func TestAdmittedAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.gate.on("192.0.2.1:80", echo)
	g := slow{w.gate, make(chan struct{}), make(chan struct{})}
	w.ours.SetGate(g)
	var dialled sync.WaitGroup
	dialled.Go(func() {
		if c, err := w.dial("192.0.2.1:80"); err == nil {
			_ = c.Close()
		}
	})
	<-g.asked
	ended := make(chan error)
	go func() { ended <- w.ours.Close() }()
	w.until("it closes", func() bool { return w.ours.life.Err() != nil })
	close(g.goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.stack.Close() // which ends the dialling
	dialled.Wait()
}

// Whatever a sandbox opens and closes in whatever order, its flows buffer no more
// than they may together.
func TestBuffersAreShared(t *testing.T) {
	s := &Stack{left: flowBuffers}
	var given []int
	total, most := 0, 0
	for range MaxFlows {
		n, why := s.enter()
		if why != "" {
			t.Fatal(why)
		}
		given = append(given, n)
		total += 2 * n
		most = max(most, n)
	}
	if given[0] != maxBuffer || given[MaxFlows-1] != minBuffer || total > flowBuffers+MaxFlows*2*minBuffer {
		t.Errorf("the first has %d, the last %d, all together %d", given[0], given[MaxFlows-1], total)
	}
	if _, why := s.enter(); why != egress.TooMany {
		t.Errorf("one more: %q", why)
	}
	for _, n := range given {
		s.leave(n)
	}
	if s.left != flowBuffers || s.flows != 0 {
		t.Errorf("then %d are left, and %d flows", s.left, s.flows)
	}
}

// Sandboxes that take all the flows there are leave each of the others a few.
func TestFlowsOfOthers(t *testing.T) {
	flowsOfAll.Add(MaxFlowsOfAll)
	defer flowsOfAll.Add(-MaxFlowsOfAll)
	s := &Stack{left: flowBuffers}
	var given []int
	for {
		n, why := s.enter()
		if why != "" {
			if why != egress.TooManyOfAll || len(given) != flowsOfEach {
				t.Errorf("after %d: %q", len(given), why)
			}
			break
		}
		given = append(given, n)
	}
	for _, n := range given {
		s.leave(n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x02pand\x01\x02pand\x02\x08\x00E\x00\x00\x28\x00\x00\x40\x00\x40\x06\x00\x00\x0a\xff\xff\x02\xc0\x00\x02\x01\x00\x05\x00\x50"))
	f.Add(append(make([]byte, 12), 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64))
	f.Fuzz(func(t *testing.T, frame []byte) {
		p, ok := parse(frame, len(frame))
		if !ok {
			return
		}
		if p.size > len(frame)-header.EthernetMinimumSize || len(p.head)+len(p.payload) > p.size {
			t.Fatalf("%d bytes, of which it takes %d", len(frame), p.size)
		}
		_, _, _, _ = p.to(), p.neighbourly(), p.report(), name(&p)
		for _, why := range []reason{portUnreachable, prohibited} {
			if m := unreachable(&p, why); len(m) > 1280 {
				t.Fatalf("a message of %d bytes", len(m))
			}
		}
		if p.proto == 17 && len(p.payload) >= header.UDPMinimumSize {
			datagram(&p, []byte("answer"))
		}
	})
}

// Whatever frames come, the stack goes on, and admits what may be and no more.
func FuzzFrames(f *testing.F) {
	frame := func(proto tcpip.NetworkProtocolNumber, packet []byte) []byte {
		eth := append(append([]byte{}, netns.GatewayMAC...), netns.GuestMAC...)
		eth = append(binary.BigEndian.AppendUint16(eth, uint16(proto)), packet...)
		return append(binary.BigEndian.AppendUint16(nil, uint16(len(eth))), eth...)
	}
	segment := func(dst string, options string, flags header.TCPFlags) []byte {
		p := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize+len(options))
		tcp := header.TCP(p[header.IPv4MinimumSize:])
		copy(tcp[header.TCPMinimumSize:], options)
		tcp.Encode(&header.TCPFields{SrcPort: 5, DstPort: 80, SeqNum: 1, AckNum: 2, DataOffset: uint8(header.TCPMinimumSize + len(options)), Flags: flags, WindowSize: 1000})
		ipv4Header(p, 6, netns.Guest4.Addr(), netip.MustParseAddr(dst))
		return frame(ipv4.ProtocolNumber, p)
	}
	f.Add(segment("192.0.2.1", "", header.TCPFlagSyn))
	f.Add(append(segment("192.0.2.1", "\x02\x04\x05\xb4\x03\x03\x0e\x01", header.TCPFlagSyn), segment("192.0.2.1", "", header.TCPFlagAck)...))
	f.Add(segment("192.0.2.9", "\x08\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x05\x02", header.TCPFlagSyn|header.TCPFlagFin|header.TCPFlagUrg|header.TCPFlagPsh|header.TCPFlagRst))
	six := make([]byte, header.IPv6MinimumSize+header.TCPMinimumSize)
	header.TCP(six[header.IPv6MinimumSize:]).Encode(&header.TCPFields{SrcPort: 5, DstPort: 80, SeqNum: 1, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1})
	ipv6Header(six, 6, netns.Guest6.Addr(), netip.MustParseAddr("2001:db8::1"))
	f.Add(frame(ipv6.ProtocolNumber, six))
	ipv6Header(six, uint8(header.IPv6RoutingExtHdrIdentifier), netns.Guest6.Addr(), netip.MustParseAddr("2001:db8::1"))
	f.Add(frame(ipv6.ProtocolNumber, six))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t)
		w.gate.on("192.0.2.1:80", echo)
		for n := 0; len(b) >= 2 && n < 32; n++ {
			size := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			if size > 0 {
				_, _ = w.wire.file.Write(b[2 : 2+size])
			}
			b = b[2+size:]
		}
		if got, err := w.ask("10.255.255.1:53", "who"); err != nil || got != "who false" {
			t.Errorf("afterwards it says %q, %v", got, err)
		}
	})
}

func FuzzBlocked(f *testing.F) {
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03foo\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, q []byte) {
		if a := blocked(q); a != nil && (len(a) > len(q) || len(a) > 12+256+5 || !bytes.Equal(a[:2], q[:2])) {
			t.Fatalf("%x is answered with %x", q, a)
		}
	})
}
