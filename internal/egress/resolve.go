package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
)

// hostResolver looks names up as this host does: in its hosts file, which the
// library does not ask about names with a final dot, and then by DNS. Names are
// never completed with a domain of the host's.
type hostResolver struct{}

var (
	errFileOnly = errors.New("only the hosts file is asked")
	hostsFile   = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errFileOnly }}
	byDNS       = &net.Resolver{PreferGo: true}
)

func (hostResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if found, err := hostsFile.LookupNetIP(ctx, network, strings.TrimSuffix(host, ".")); err == nil && len(found) > 0 {
		return found, nil
	}
	return byDNS.LookupNetIP(ctx, network, host)
}
