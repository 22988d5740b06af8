package netstack

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/pandastack/pandastack/internal/netns"
)

// packet is what is looked at of one that a sandbox sends. Only TCP goes on to
// the stack, and only whole: fragments are no use on a link of this MTU but to hide.
type packet struct {
	net      tcpip.NetworkProtocolNumber
	proto    uint8
	src, dst netip.Addr
	head     []byte // of IP
	payload  []byte // as much of it as lies in the first piece
	size     int    // of all
	fragment bool
}

// parse looks at a frame whose first piece is given, and which has size bytes.
// It says no to what is not IP or lies about its length.
func parse(frame []byte, size int) (p packet, ok bool) {
	if len(frame) < header.EthernetMinimumSize {
		return p, false
	}
	p.net = tcpip.NetworkProtocolNumber(binary.BigEndian.Uint16(frame[12:]))
	ip := frame[header.EthernetMinimumSize:]
	size -= header.EthernetMinimumSize
	switch p.net {
	case header.IPv4ProtocolNumber:
		h := header.IPv4(ip)
		if !h.IsValid(size) || int(h.HeaderLength()) > len(ip) {
			return p, false
		}
		p.proto, p.fragment = h.Protocol(), h.More() || h.FragmentOffset() != 0
		p.src, p.dst = netip.AddrFrom4(h.SourceAddress().As4()), netip.AddrFrom4(h.DestinationAddress().As4())
		p.head, p.payload, p.size = ip[:h.HeaderLength()], ip[h.HeaderLength():], int(h.TotalLength())
	case header.IPv6ProtocolNumber:
		h := header.IPv6(ip)
		if len(ip) < header.IPv6MinimumSize || !h.IsValid(size) {
			return p, false
		}
		p.proto = h.NextHeader()
		p.fragment = p.proto == uint8(header.IPv6FragmentExtHdrIdentifier)
		p.src, p.dst = netip.AddrFrom16(h.SourceAddress().As16()), netip.AddrFrom16(h.DestinationAddress().As16())
		p.head, p.payload, p.size = ip[:header.IPv6MinimumSize], ip[header.IPv6MinimumSize:], header.IPv6MinimumSize+int(h.PayloadLength())
	default:
		return p, false
	}
	if rest := p.size - len(p.head); rest < len(p.payload) {
		p.payload = p.payload[:rest] // behind it is padding
	}
	return p, true
}

// port is the port that a packet goes to, 0 when it has none.
func (p *packet) port() uint16 {
	if p.fragment || len(p.payload) < 4 {
		return 0
	}
	switch p.proto {
	case uint8(header.TCPProtocolNumber), uint8(header.UDPProtocolNumber):
		return binary.BigEndian.Uint16(p.payload[2:])
	}
	return 0
}

// to is where a packet goes.
func (p *packet) to() netip.AddrPort { return netip.AddrPortFrom(p.dst, p.port()) }

// guest says whether an address is the sandbox's own.
func guest(a netip.Addr) bool { return a == netns.Guest4.Addr() || a == netns.Guest6.Addr() }

// onLink says whether an address is of the link itself, where there is nobody but us.
func onLink(a netip.Addr) bool { return netns.Guest4.Contains(a) || netns.Guest6.Contains(a) }

// silent says whether an address is one that no answer may come from.
func silent(a netip.Addr) bool {
	return a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) || a.Is4In6()
}

// The reasons that a refusal gives.
type reason int

const (
	portUnreachable reason = iota // a connected socket hears "connection refused"
	prohibited
)

// unreachable is the ICMP message that refuses a packet, with as much of it as
// the standards ask for.
func unreachable(p *packet, why reason) []byte {
	if p.net == header.IPv4ProtocolNumber {
		quoted := append(append([]byte{}, p.head...), p.payload[:min(len(p.payload), 64)]...)
		code := map[reason]header.ICMPv4Code{portUnreachable: header.ICMPv4PortUnreachable, prohibited: header.ICMPv4AdminProhibited}[why]
		msg := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(quoted))
		ipv4Header(msg, uint8(header.ICMPv4ProtocolNumber), p.dst, p.src)
		icmp := header.ICMPv4(msg[header.IPv4MinimumSize:])
		copy(icmp[header.ICMPv4MinimumSize:], quoted)
		icmp.SetType(header.ICMPv4DstUnreachable)
		icmp.SetCode(code)
		icmp.SetChecksum(header.ICMPv4Checksum(icmp, 0))
		return msg
	}
	quoted := append(append([]byte{}, p.head...), p.payload[:min(len(p.payload), 1024)]...)
	code := map[reason]header.ICMPv6Code{portUnreachable: header.ICMPv6PortUnreachable, prohibited: header.ICMPv6Prohibited}[why]
	msg := make([]byte, header.IPv6MinimumSize+header.ICMPv6DstUnreachableMinimumSize+len(quoted))
	ipv6Header(msg, uint8(header.ICMPv6ProtocolNumber), p.dst, p.src)
	icmp := header.ICMPv6(msg[header.IPv6MinimumSize:])
	copy(icmp[header.ICMPv6DstUnreachableMinimumSize:], quoted)
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(code)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
		Header: icmp, Src: tcpip.AddrFrom16(p.dst.As16()), Dst: tcpip.AddrFrom16(p.src.As16()),
	}))
	return msg
}

// datagram is a UDP packet that answers one.
func datagram(p *packet, data []byte) []byte {
	udp := header.UDPMinimumSize + len(data)
	head := header.IPv4MinimumSize
	if p.net == header.IPv6ProtocolNumber {
		head = header.IPv6MinimumSize
	}
	msg := make([]byte, head+udp)
	if p.net == header.IPv4ProtocolNumber {
		ipv4Header(msg, uint8(header.UDPProtocolNumber), p.dst, p.src)
	} else {
		ipv6Header(msg, uint8(header.UDPProtocolNumber), p.dst, p.src)
	}
	h := header.UDP(msg[head:])
	h.Encode(&header.UDPFields{
		SrcPort: binary.BigEndian.Uint16(p.payload[2:]), DstPort: binary.BigEndian.Uint16(p.payload), Length: uint16(udp),
	})
	copy(h.Payload(), data)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, tcpip.AddrFromSlice(p.dst.AsSlice()), tcpip.AddrFromSlice(p.src.AsSlice()), uint16(udp))
	h.SetChecksum(^h.CalculateChecksum(checksum.Checksum(data, sum)))
	return msg
}

func ipv4Header(msg []byte, proto uint8, src, dst netip.Addr) {
	h := header.IPv4(msg)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(msg)), TTL: 64, Protocol: proto, Flags: header.IPv4FlagDontFragment,
		SrcAddr: tcpip.AddrFrom4(src.As4()), DstAddr: tcpip.AddrFrom4(dst.As4()),
	})
	h.SetChecksum(^h.CalculateChecksum())
}

func ipv6Header(msg []byte, proto uint8, src, dst netip.Addr) {
	header.IPv6(msg).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(msg) - header.IPv6MinimumSize), TransportProtocol: tcpip.TransportProtocolNumber(proto), HopLimit: 64,
		SrcAddr: tcpip.AddrFrom16(src.As16()), DstAddr: tcpip.AddrFrom16(dst.As16()),
	})
}

// neighbourly says whether an ICMPv6 message is of those that hosts send by
// themselves and that need no answer: everybody's hardware address is known.
func (p *packet) neighbourly() bool {
	switch {
	case p.net != header.IPv6ProtocolNumber:
		return false
	case p.proto == uint8(header.IPv6HopByHopOptionsExtHdrIdentifier):
		return p.dst.IsMulticast() // reports of memberships
	case p.proto != uint8(header.ICMPv6ProtocolNumber) || len(p.payload) == 0:
		return false
	}
	switch header.ICMPv6Type(p.payload[0]) {
	case header.ICMPv6RouterSolicit, header.ICMPv6NeighborSolicit, header.ICMPv6NeighborAdvert, header.ICMPv6MulticastListenerReport,
		header.ICMPv6MulticastListenerDone, header.ICMPv6MulticastListenerV2Report:
		return true
	}
	return false
}

// report says whether a message tells of something that has gone wrong: it must
// not be answered.
func (p *packet) report() bool {
	if len(p.payload) == 0 {
		return false
	}
	switch {
	case p.net == header.IPv4ProtocolNumber && p.proto == uint8(header.ICMPv4ProtocolNumber):
		t := header.ICMPv4Type(p.payload[0])
		return t != header.ICMPv4Echo && t != header.ICMPv4Timestamp && t != header.ICMPv4InfoRequest
	case p.net == header.IPv6ProtocolNumber && p.proto == uint8(header.ICMPv6ProtocolNumber):
		return p.payload[0] < 128
	}
	return false
}

// body is the packet without its frame's header and what stands behind it.
func body(frame buffer.Buffer, p *packet) buffer.Buffer {
	frame.TrimFront(header.EthernetMinimumSize)
	frame.Truncate(int64(p.size))
	return frame
}
