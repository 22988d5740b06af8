// Package netstack is the other end of a sandbox's only link: a TCP/IP stack in
// this process (gVisor's), one for each sandbox. Whatever address a sandbox
// dials, it reaches the stack, which asks the sandbox's gate and either completes
// the handshake or resets the connection at once. Drivers run it on the file from
// which a sandbox's frames come; package egress is what decides.
//
// Only TCP enters the stack. Questions to the resolver's address are answered
// beside it; all else is refused where it comes in, with an ICMP message, so that
// programs fail at once and fall back. Whoever is in the sandbox may send what
// they like: what is not a whole packet from the sandbox's own address is dropped.
package netstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/netns"
)

// Bounds of one sandbox. Connections beyond them are reset and told to the gate.
const (
	MaxFlows = 1024 // open or being decided on

	// A flow buffers a part of what is left of flowBuffers in each direction, in
	// these bounds: all together 128 MB at most.
	maxBuffer   = 2 << 20
	minBuffer   = 32 << 10
	flowBuffers = 64 << 20

	refusals   = 1000             // that are answered and told in a second; more are dropped
	settleTime = 30 * time.Second // for the sandbox to take what it was sent before a flow ended
	closeTime  = 5 * time.Second
	nic        = tcpip.NICID(1)
)

// MaxFlowsOfAll bounds the flows of all sandboxes of this process. What a sandbox
// has up to flowsOfEach it has in any case: some that take all they can must not
// leave the others without.
const (
	MaxFlowsOfAll = 16 << 10
	flowsOfEach   = 64
)

var flowsOfAll atomic.Int64

// Stack is the other end of one sandbox's link.
type Stack struct {
	link  *link
	stack *stack.Stack

	gates   atomic.Pointer[egress.Gate]
	limit   *rate.Limiter
	queries chan struct{}
	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup
	closing sync.Once

	mu       sync.Mutex
	closed   bool
	flows    int
	left     int // of flowBuffers
	dnsConns int
}

// New runs a stack on a file that gives and takes one Ethernet frame at each
// call, without blocking. The file is its own from then on. A nil gate is closed.
func New(file *os.File, gate egress.Gate) (*Stack, error) {
	l, err := newLink(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	life, end := context.WithCancel(context.Background())
	s := &Stack{
		link: l, limit: rate.NewLimiter(refusals, refusals), queries: make(chan struct{}, maxQueries), life: life, end: end, left: flowBuffers,
		stack: stack.New(stack.Options{
			NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
			TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
		}),
	}
	s.SetGate(gate)
	if err := s.configure(); err != nil {
		end()
		return nil, errors.Join(err, file.Close())
	}
	s.work.Go(s.read)
	return s, nil
}

func (s *Stack) configure() error {
	st := s.stack
	sack, moderate, wait := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false), tcpip.TCPTimeWaitTimeoutOption(time.Second)
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: maxBuffer, Max: maxBuffer}
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: maxBuffer, Max: maxBuffer}
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &wait, &receive, &send} {
		if err := st.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return fmt.Errorf("netstack: %T: %s", option, err)
		}
	}
	if err := st.CreateNIC(nic, s.link); err != nil {
		return fmt.Errorf("netstack: %s", err)
	}
	// It answers for every address there is.
	if err := st.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("netstack: %s", err)
	}
	if err := st.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("netstack: %s", err)
	}
	st.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	forwarder := tcp.NewForwarder(st, maxBuffer, 2*MaxFlows, s.accept)
	st.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	return nil
}

// SetGate sets what decides from now on; nil closes. Flows that are open go on
// under the gate that admitted them.
func (s *Stack) SetGate(gate egress.Gate) {
	if gate == nil {
		gate = closed{}
	}
	s.gates.Store(&gate)
}

func (s *Stack) gate() egress.Gate { return *s.gates.Load() }

// Close resets all flows, lets go of the file, and returns when nothing works any
// more, or after closeTime: a gate that does not heed its context must not keep a
// sandbox from its end.
func (s *Stack) Close() error {
	var err error
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.stack.Close() // which resets; only then may those who serve flows close them
		s.end()
		err = s.link.file.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.work.Wait()
			s.stack.RemoveNIC(nic)
			s.stack.Destroy()
		}()
		late := time.After(closeTime)
		for pause := time.Millisecond; ; pause *= 2 {
			select {
			case <-done:
				return
			case <-late:
				err = errors.Join(err, fmt.Errorf("netstack: something still works on a flow %s after its sandbox ended", closeTime))
				return
			case <-time.After(pause):
				// A connection that was admitted while the stack closed shakes hands with nobody.
				for _, e := range s.stack.RegisteredEndpoints() {
					e.Abort()
				}
			}
		}
	})
	return err
}

// read takes in what the sandbox sends.
func (s *Stack) read() {
	for {
		frame, err := s.link.next()
		if err != nil {
			return // the file is closed, or the interface is gone
		}
		views := frame.AsViewList()
		first := views.Front()
		if first == nil {
			continue
		}
		p, ok := parse(first.AsSlice(), int(frame.Size()))
		if ok && s.take(&p) {
			s.link.deliver(p.net, body(frame, &p))
		} else {
			frame.Release()
		}
	}
}

// take says whether a packet goes to the stack. What does not is dealt with.
func (s *Stack) take(p *packet) bool {
	switch {
	case p.neighbourly(), p.report():
	case !guest(p.src):
		s.refuse(p, "spoofed", -1, "it is not from the sandbox's own address")
	case p.fragment:
		s.refuse(p, "fragment", prohibited, "fragments are no use on this link")
	case silent(p.dst):
		s.refuse(p, name(p), -1, "nobody answers from that address")
	case p.proto == uint8(header.TCPProtocolNumber):
		return true
	case p.proto == uint8(header.UDPProtocolNumber) && len(p.payload) >= header.UDPMinimumSize:
		if isDNS(p) {
			s.answer(*p)
		} else {
			s.refuse(p, name(p), portUnreachable, "")
		}
	default:
		s.refuse(p, name(p), prohibited, "")
	}
	return false
}

// name names the protocol of a packet that is refused.
func name(p *packet) string {
	switch {
	case p.proto == uint8(header.UDPProtocolNumber):
		return "udp"
	case p.proto == uint8(header.TCPProtocolNumber):
		return "tcp"
	case p.proto == uint8(header.ICMPv4ProtocolNumber), p.proto == uint8(header.ICMPv6ProtocolNumber):
		return "icmp"
	}
	return fmt.Sprintf("ip-%d", p.proto)
}

// refuse tells the gate and, unless the message is negative, the sandbox.
func (s *Stack) refuse(p *packet, proto string, message reason, why string) {
	if !s.limit.Allow() {
		return
	}
	s.gate().Refused(proto, p.to(), why)
	if message >= 0 {
		s.link.write(p.net, unreachable(p, message))
	}
}

// accept decides a connection. The stack calls it on a goroutine of its own.
func (s *Stack) accept(r *tcp.ForwarderRequest) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		r.Complete(false)
		return
	}
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()
	id := r.ID()
	dst := netip.AddrPortFrom(addr(id.LocalAddress), id.LocalPort)
	switch {
	case dst.Port() == dnsPort && (dst.Addr() == netns.Gateway4 || dst.Addr() == netns.Gateway6):
		s.acceptDNS(r)
	case onLink(dst.Addr()): // there is nothing but us, and nobody else may be meant
		s.turnAway(r, dst, "there is nobody else on the link")
	default:
		s.acceptFlow(r, dst)
	}
}

// turnAway resets a connection that the gate was not asked about.
func (s *Stack) turnAway(r *tcp.ForwarderRequest, dst netip.AddrPort, why string) {
	if s.limit.Allow() {
		s.gate().Refused("tcp", dst, why)
	}
	r.Complete(true)
}

func (s *Stack) acceptFlow(r *tcp.ForwarderRequest, dst netip.AddrPort) {
	buffer, why := s.enter()
	if why != "" {
		s.turnAway(r, dst, why)
		return
	}
	defer s.leave(buffer)
	flow, err := s.gate().Admit(s.life, dst)
	if err != nil {
		r.Complete(true)
		return
	}
	c, err := s.establish(r, buffer)
	if err != nil {
		_ = flow.Close() // it never was
		return
	}
	defer c.settle(s.life)
	flow.Serve(s.life, c)
}

func (s *Stack) acceptDNS(r *tcp.ForwarderRequest) {
	s.mu.Lock()
	room := s.dnsConns < maxDNSConns
	if room {
		s.dnsConns++
	}
	s.mu.Unlock()
	if !room {
		r.Complete(true)
		return
	}
	defer func() {
		s.mu.Lock()
		s.dnsConns--
		s.mu.Unlock()
	}()
	c, err := s.establish(r, minBuffer)
	if err != nil {
		return
	}
	defer c.settle(s.life)
	s.answerAll(s.life, c)
}

// enter counts one more flow and says how much it may buffer in each direction,
// or why there is no room for it.
func (s *Stack) enter() (buffer int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch all := flowsOfAll.Add(1); {
	case s.flows >= MaxFlows:
		why = egress.TooMany
	case all > MaxFlowsOfAll && s.flows >= flowsOfEach:
		why = egress.TooManyOfAll
	}
	if why != "" {
		flowsOfAll.Add(-1)
		return 0, why
	}
	s.flows++
	buffer = min(max(s.left/32, minBuffer), maxBuffer)
	s.left -= 2 * buffer
	return buffer, ""
}

func (s *Stack) leave(buffer int) {
	flowsOfAll.Add(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flows--
	s.left += 2 * buffer
}

// Flows counts those that are open or being decided on.
func (s *Stack) Flows() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flows
}

// establish completes the handshake.
func (s *Stack) establish(r *tcp.ForwarderRequest, buffer int) (*conn, error) {
	var wq waiter.Queue
	ep, err := r.CreateEndpoint(&wq)
	r.Complete(err != nil)
	if err != nil {
		return nil, errors.New(err.String())
	}
	ep.SocketOptions().SetReceiveBufferSize(int64(buffer), true)
	ep.SocketOptions().SetSendBufferSize(int64(buffer), true)
	return &conn{TCPConn: gonet.NewTCPConn(&wq, ep), ep: ep}, nil
}

func addr(a tcpip.Address) netip.Addr {
	out, _ := netip.AddrFromSlice(a.AsSlice()) // it has 4 or 16 bytes
	return out
}

// conn is the sandbox's end of a flow.
type conn struct {
	*gonet.TCPConn
	ep   tcpip.Endpoint
	once sync.Once
}

var _ net.Conn = (*conn)(nil)

// Close says that nothing more is sent or read. What was sent is still delivered.
func (c *conn) Close() error {
	c.ep.Shutdown(tcpip.ShutdownRead | tcpip.ShutdownWrite)
	return nil
}

// Abort resets the connection.
func (c *conn) Abort() { c.once.Do(c.ep.Abort) }

// settle ends the connection and returns when the sandbox has all that it was
// sent, so that what is still to be delivered counts as part of the flow.
func (c *conn) settle(ctx context.Context) {
	_ = c.Close()
	deadline := time.NewTimer(settleTime)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		switch tcp.EndpointState(c.ep.State()) {
		case tcp.StateEstablished, tcp.StateCloseWait, tcp.StateFinWait1, tcp.StateClosing, tcp.StateLastAck:
		default: // nothing is on the way any more
			c.once.Do(c.ep.Close)
			return
		}
		select {
		case <-time.After(pause):
		case <-deadline.C:
			c.Abort()
			return
		case <-ctx.Done():
			c.Abort()
			return
		}
	}
}

// closed is the gate of a sandbox that may reach nothing.
type closed struct{}

var _ egress.Gate = closed{}

var errClosed = errors.New("the network of this sandbox is closed")

func (closed) Admit(context.Context, netip.AddrPort) (egress.Flow, error) { return nil, errClosed }
func (closed) Resolve(_ context.Context, q []byte, _ bool) []byte         { return blocked(q) }
func (closed) Refused(string, netip.AddrPort, string)                     {}
