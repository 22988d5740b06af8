package netstack

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/pandastack/pandastack/internal/netns"
)

// link is a file that gives and takes a frame at each call. It waits in Go's
// poller, so that a sandbox that is silent holds neither a thread nor a buffer.
type link struct {
	file *os.File
	raw  syscall.RawConn

	up      atomic.Pointer[stack.NetworkDispatcher]
	dropped atomic.Uint64 // frames that the file did not take
}

var _ stack.LinkEndpoint = (*link)(nil)

func newLink(file *os.File) (*link, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &link{file: file, raw: raw}, nil
}

// slab is what one frame is read into: pieces that grow, so that a small frame
// keeps no large piece of memory alive.
type slab struct {
	views [len(pieces)]*buffer.View
	iov   [len(pieces)]unix.Iovec
}

// Together they hold the longest IP packet and an Ethernet header.
var pieces = [...]int{2 << 10, 16 << 10, 16 << 10, 32 << 10}

var slabs = sync.Pool{New: func() any { return &slab{} }}

// read reads a frame of n bytes.
func (s *slab) read(fd int) (n int, err error) {
	for i, size := range pieces {
		if s.views[i] == nil {
			s.views[i] = buffer.NewViewSize(size)
			s.iov[i].Base = &s.views[i].AsSlice()[0]
			s.iov[i].SetLen(size)
		}
	}
	for {
		n, err = readv(fd, s.iov[:])
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// take gives the pieces that hold the first n bytes.
func (s *slab) take(n int) buffer.Buffer {
	var b buffer.Buffer
	for i := 0; i < len(pieces) && n > 0; i++ {
		v := s.views[i]
		s.views[i] = nil
		used := min(n, pieces[i])
		v.CapLength(used)
		_ = b.Append(v) // its error is of shared views only
		n -= used
	}
	return b
}

// next waits for a frame. The error is that of a closed file.
func (l *link) next() (frame buffer.Buffer, err error) {
	waited := l.raw.Read(func(fd uintptr) bool {
		s := slabs.Get().(*slab)
		defer slabs.Put(s)
		n, e := s.read(int(fd))
		if errors.Is(e, unix.EAGAIN) {
			return false
		}
		switch {
		case e != nil:
			err = e
		case n == 0:
			err = io.EOF
		default:
			frame = s.take(n)
		}
		return true
	})
	return frame, errors.Join(waited, err)
}

// write gives a packet to the sandbox. One that does not fit is dropped, as on
// any wire.
func (l *link) write(proto tcpip.NetworkProtocolNumber, packet ...[]byte) {
	var eth [header.EthernetMinimumSize]byte
	copy(eth[:], netns.GuestMAC)
	copy(eth[6:], netns.GatewayMAC)
	eth[12], eth[13] = byte(proto>>8), byte(proto)
	frame := append(make([][]byte, 0, 8), eth[:])
	for _, p := range packet {
		if len(p) > 0 {
			frame = append(frame, p)
		}
	}
	err := l.raw.Write(func(fd uintptr) bool {
		for {
			_, err := unix.Writev(int(fd), frame)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				l.dropped.Add(1)
			}
			return true
		}
	})
	if err != nil {
		l.dropped.Add(1)
	}
}

// WritePackets implements stack.LinkWriter.
func (l *link) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	list := pkts.AsSlice()
	for _, p := range list {
		l.write(p.NetworkProtocolNumber, p.AsSlices()...)
	}
	return len(list), nil
}

// deliver gives a packet to the stack.
func (l *link) deliver(proto tcpip.NetworkProtocolNumber, packet buffer.Buffer) {
	up := l.up.Load()
	if up == nil {
		packet.Release()
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: packet})
	defer pkt.DecRef()
	(*up).DeliverNetworkPacket(proto, pkt)
}

// Attach implements stack.LinkEndpoint.
func (l *link) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		l.up.Store(nil)
		return
	}
	l.up.Store(&d)
}

// IsAttached implements stack.LinkEndpoint.
func (l *link) IsAttached() bool { return l.up.Load() != nil }

// Capabilities implements stack.LinkEndpoint. Nobody computes checksums: frames
// pass from one program to another in the memory of one machine. Nobody asks for
// hardware addresses either.
func (*link) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityRXChecksumOffload | stack.CapabilityTXChecksumOffload
}

// MTU implements stack.LinkEndpoint.
func (*link) MTU() uint32 { return netns.MTU }

// SetMTU implements stack.LinkEndpoint.
func (*link) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint: write brings its own.
func (*link) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.LinkEndpoint.
func (*link) LinkAddress() tcpip.LinkAddress { return tcpip.LinkAddress(netns.GatewayMAC) }

// SetLinkAddress implements stack.LinkEndpoint.
func (*link) SetLinkAddress(tcpip.LinkAddress) {}

// Wait implements stack.LinkEndpoint.
func (*link) Wait() {}

// ARPHardwareType implements stack.LinkEndpoint.
func (*link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.LinkEndpoint.
func (*link) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.LinkEndpoint.
func (*link) ParseHeader(*stack.PacketBuffer) bool { return true }

// Close implements stack.LinkEndpoint: the file is the Stack's to close.
func (*link) Close() {}

// SetOnCloseAction implements stack.LinkEndpoint.
func (*link) SetOnCloseAction(func()) {}
