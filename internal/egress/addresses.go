package egress

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"sync"
)

// madeUp are the addresses that names get inside sandboxes; IPv6 ones hold the
// IPv4 one in their last four bytes.
var (
	madeUp   = netip.MustParsePrefix("198.18.0.0/15")
	madeUpV6 = netip.MustParsePrefix("fd70:616e:6461::/96")
)

// StackAddresses is the part of the range for names that is left to the stack:
// its own addresses, the sandbox's, the resolver's.
var StackAddresses = netip.MustParsePrefix("198.18.0.0/24")

// maxNames bounds the names of one sandbox, and so what it can make the host remember.
const maxNames = 16_384

const firstName = 256 // within madeUp, after StackAddresses

var errTooManyNames = errors.New("too many names were looked up in this sandbox")

// addresses are the names of one sandbox. A name keeps its address for as long
// as the sandbox and its copies live.
type addresses struct {
	mu    sync.RWMutex
	index map[string]int
	names []string
}

func newAddresses(names []string) *addresses {
	a := &addresses{index: make(map[string]int, len(names))}
	for _, name := range names {
		if _, twice := a.index[name]; twice || len(a.names) == maxNames {
			continue
		}
		a.index[name] = len(a.names)
		a.names = append(a.names, name)
	}
	return a
}

// of gives the address of a name, made up now if it has none.
func (a *addresses) of(name string) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := a.index[name]
	if !ok {
		if len(a.names) == maxNames {
			return netip.Addr{}, errTooManyNames
		}
		i = len(a.names)
		a.index[name] = i
		a.names = append(a.names, name)
	}
	b := madeUp.Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+firstName+uint32(i))
	return netip.AddrFrom4(b), nil
}

// name gives the name that an address was made up for, and whether it is one of
// the addresses that are made up at all.
func (a *addresses) name(addr netip.Addr) (name string, ours bool) {
	if madeUpV6.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !madeUp.Contains(addr) {
		return "", false
	}
	b, base := addr.As4(), madeUp.Addr().As4()
	i := int(binary.BigEndian.Uint32(b[:])-binary.BigEndian.Uint32(base[:])) - firstName
	a.mu.RLock()
	defer a.mu.RUnlock()
	if i < 0 || i >= len(a.names) {
		return "", true
	}
	return a.names[i], true
}

// inV6 is the IPv6 form of a made-up address.
func inV6(addr netip.Addr) netip.Addr {
	out, in := madeUpV6.Addr().As16(), addr.As4()
	copy(out[12:], in[:])
	return netip.AddrFrom16(out)
}

// list gives the names in the order of their addresses.
func (a *addresses) list() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.names)
}
