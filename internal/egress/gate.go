package egress

import (
	"context"
	"net"
	"net/netip"
)

// Gate decides what leaves one sandbox. The user-space stack asks it, from any
// number of goroutines.
type Gate interface {
	// Admit decides a TCP connection that the sandbox opens to dst, before it is
	// established: on success the stack completes the handshake and hands it to
	// Flow.Serve; an error resets it at once.
	Admit(ctx context.Context, dst netip.AddrPort) (Flow, error)
	// Resolve answers one DNS message (question in, whole answer out; nil: no
	// answer). tcp says that it came over TCP, so the answer may be long.
	Resolve(ctx context.Context, query []byte, tcp bool) []byte
	// Refused notes a packet that the stack refused by itself (UDP that is not
	// DNS, ICMP, other protocols, QUIC) for the audit. why is empty where the
	// protocol says enough.
	Refused(proto string, dst netip.AddrPort, why string)
}

// Flow is a connection that was admitted. Exactly one of its methods is called, once.
//
// Where inside has methods CloseWrite() error and Abort(), they are used: to pass
// on that one side has said all, and that the other was cut off.
type Flow interface {
	Serve(ctx context.Context, inside net.Conn) // owns inside; returns when the flow is over
	Close() error                               // when the handshake did not come about
}
