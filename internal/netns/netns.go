// Package netns makes the network namespaces of sandboxes. In each is one
// interface, a TAP, whose other end is a descriptor of this process: what a
// sandbox sends comes out of it as frames, and nowhere else. There is no
// forwarding, no address translation and no rule of a firewall on the host. The
// drivers call it; what the frames mean is not its concern.
//
// # Why nothing stays behind
//
// A namespace lives as long as a process is in it or somebody holds it open. It
// is not pinned by a mount: until a sandbox is in it, this process holds it, and
// it goes with this process; from then on it goes with the sandbox. The TAP is
// persistent, so that it stays when this process dies and the sandbox does not:
// the next one opens it again, see Open.
package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/fault"
)

// The interface is the same in every sandbox, so that a copy of one finds what
// it knew. Neither network is routed anywhere: no packet for them leaves the link.
const (
	Device = "eth0"
	// MTU is the largest that a TAP and a sandbox agree on with room for a frame's
	// header. Each packet costs the same, so large ones carry most.
	MTU = 65000

	guestMAC   = "02:70:61:6e:64:02"
	gatewayMAC = "02:70:61:6e:64:01"
)

// The addresses on the link.
var (
	Guest4   = netip.MustParsePrefix("10.255.255.2/30")
	Gateway4 = netip.MustParseAddr("10.255.255.1")
	Guest6   = netip.MustParsePrefix("fd70:616e:6461::2/126")
	Gateway6 = netip.MustParseAddr("fd70:616e:6461::1")

	GuestMAC   = mac(guestMAC)
	GatewayMAC = mac(gatewayMAC)
)

func mac(s string) net.HardwareAddr {
	a, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return a
}

// Namespace is one that no sandbox is in yet.
type Namespace struct {
	file *os.File // of the namespace
	tap  *os.File // nil when it was handed over
}

// New makes a namespace with its interface. It takes some 20 ms, nearly all of
// it spent waiting in the kernel.
func New() (*Namespace, error) {
	n := &Namespace{}
	err := apart(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return explain(err, "a network namespace cannot be made")
		}
		var err error
		if n.file, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if n.tap, err = openTAP(true); err != nil {
			return err
		}
		return configure()
	})
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Path is where other programs that run as root find the namespace, until it is closed.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// TakeTAP gives the host's end of the interface to the caller, who closes it.
// What a sandbox sends waits in it, up to some hundred frames.
func (n *Namespace) TakeTAP() *os.File {
	tap := n.tap
	n.tap = nil
	return tap
}

// Close lets go of the namespace. When no sandbox is in it, it is gone.
func (n *Namespace) Close() error {
	var err error
	for _, f := range []*os.File{n.tap, n.file} {
		if f != nil {
			if e := f.Close(); e != nil && !errors.Is(e, os.ErrClosed) {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}

// Open opens the host's end of the interface in the namespace of a process. The
// error wraps fs.ErrNotExist when there is no such interface.
func Open(pid int) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var tap *os.File
	err = apart(func() (err error) {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return explain(err, "the network namespace of process %d cannot be entered", pid)
		}
		if _, err := net.InterfaceByName(Device); err != nil {
			return fmt.Errorf("%s: %w", Device, fs.ErrNotExist)
		}
		tap, err = openTAP(false)
		return err
	})
	return tap, err
}

// apart calls do on a thread that may change its network namespace.
func apart(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = do()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// What of frames the host's end takes as the sandbox's own kernel leaves it:
// without checksums, and longer than the MTU. Both are between two programs of
// one machine.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6

// openTAP opens the interface in the thread's namespace.
func openTAP(fresh bool) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, explain(err, "/dev/net/tun cannot be opened")
	}
	err = func() error {
		req, err := unix.NewIfreq(Device)
		if err != nil {
			return err
		}
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
			return explain(err, "the interface of a sandbox cannot be made")
		}
		if fresh {
			if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
				return fmt.Errorf("TUNSETPERSIST: %w", err)
			}
		}
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offloads); err != nil {
			return fmt.Errorf("TUNSETOFFLOAD: %w", err)
		}
		return nil
	}()
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "tap"), nil
}

// configure gives the thread's namespace what a sandbox takes from it.
func configure() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	eth, err := h.LinkByName(Device)
	if err != nil {
		return fmt.Errorf("%s: %w", Device, err)
	}
	// The kernel's own half of the interface is to say nothing of itself.
	v6 := noLinkLocal(eth.Attrs().Index) == nil
	type step struct {
		what string
		do   func() error
	}
	steps := []step{
		{"lo up", func() error { return h.LinkSetUp(lo) }},
		{"its hardware address", func() error { return h.LinkSetHardwareAddr(eth, GuestMAC) }},
		{"its MTU", func() error { return h.LinkSetMTU(eth, MTU) }},
		{"up", func() error { return h.LinkSetUp(eth) }},
		{"IPv4", func() error { return assign(h, eth, Guest4, Gateway4) }},
	}
	if v6 {
		steps = append(steps, step{"IPv6", func() error { return assign(h, eth, Guest6, Gateway6) }})
	}
	for _, s := range steps {
		err := s.do()
		if s.what == "IPv6" && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)) {
			continue // the host has it switched off
		}
		if err != nil {
			return explain(err, "the interface of a sandbox: %s", s.what)
		}
	}
	return nil
}

// assign gives the interface an address, a default route and the gateway's
// hardware address, so that nobody has to be asked for it.
func assign(h *netlink.Handle, eth netlink.Link, guest netip.Prefix, gateway netip.Addr) error {
	index := eth.Attrs().Index
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: guest.Addr().AsSlice(), Mask: net.CIDRMask(guest.Bits(), guest.Addr().BitLen())}, Flags: unix.IFA_F_NODAD}
	if err := h.AddrAdd(eth, addr); err != nil {
		return err
	}
	neighbour := &netlink.Neigh{LinkIndex: index, IP: gateway.AsSlice(), HardwareAddr: GatewayMAC, State: netlink.NUD_PERMANENT}
	if err := h.NeighSet(neighbour); err != nil {
		return err
	}
	return h.RouteAdd(&netlink.Route{LinkIndex: index, Gw: gateway.AsSlice()})
}

// noLinkLocal keeps the kernel from giving the interface an address of its own.
func noLinkLocal(index int) error {
	const addrGenMode, none = 8, 1 // IFLA_INET6_ADDR_GEN_MODE, IN6_ADDR_GEN_MODE_NONE
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	spec.AddRtAttr(unix.AF_INET6, nil).AddRtAttr(addrGenMode, nl.Uint8Attr(none))
	req.AddData(spec)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// explain says what to do about what hosts lack.
func explain(err error, format string, args ...any) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fault.Wrap(err, "unsupported", format, args...).
			WithHint("modprobe tun, which makes /dev/net/tun; a container needs --device /dev/net/tun, a chroot the host's /dev; or run without networks: network_interface = false")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fault.Wrap(err, "unsupported", format, args...).
			WithHint("the daemon needs CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN (take them out of CapabilityBoundingSet of its service, or give the container --cap-add) and read and write access to /dev/net/tun; or run without networks: network_interface = false")
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// Check says why no namespaces can be made here.
func Check() error {
	n, err := New()
	if err != nil {
		return err
	}
	defer n.Close()
	// What binds a sandbox to the interface.
	err = apart(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
	return errors.Join(explainNil(err, "a packet socket cannot be made"))
}

func explainNil(err error, what string) error {
	if err == nil {
		return nil
	}
	return explain(err, "%s", what)
}
