package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/network"
	"github.com/pandastack/pandastack/internal/store"
)

// networks makes what looks after the networks of sandboxes, and the log of what
// was decided.
func networks(cfg *config.Config, st *store.Store, master auth.Master, own net.Addr, counts *metrics.Metrics, log *slog.Logger) (*network.Service, *network.Log, error) {
	var named map[string]api.NetworkPolicy
	if cfg.NetworkPolicies != "" {
		if err := json.Unmarshal([]byte(cfg.NetworkPolicies), &named); err != nil {
			return nil, nil, fault.InvalidField("network_policies", "network_policies is not a table of network policies: %v", err)
		}
	}
	ca, err := egress.LoadCA(filepath.Join(cfg.DataDir, "network-ca.pem"))
	if err != nil {
		return nil, nil, err
	}
	lines, err := network.OpenLog(filepath.Join(cfg.DataDir, "network"), cfg.NetworkLogMB, log)
	if err != nil {
		return nil, nil, err
	}
	o := network.Options{Store: st, Key: master.Derive("network secrets"), Named: named, CA: ca, Log: log}
	o.Engine.IPv6 = true
	o.Engine.Resolver = resolver{}
	o.Engine.Audit = func(e api.NetworkEvent) {
		counts.Flow(e)
		lines.Add(e)
	}
	o.Engine.Own = func() []netip.AddrPort { return ownAddresses(own, cfg.MetricsListen) }
	o.Engine.Proxy = config.OS().Proxy()
	nets, err := network.New(o)
	if err != nil {
		lines.Close()
		return nil, nil, fmt.Errorf("the networks of sandboxes: %w", err)
	}
	return nets, lines, nil
}

// resolver looks names up as this host does: in /etc/hosts, which the library
// does not ask about names that are whole, and then by DNS. Names are never
// completed with a domain of the host's.
type resolver struct{}

var (
	hostsFile = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errNoDNS }}
	byDNS     = &net.Resolver{PreferGo: true}
	errNoDNS  = errors.New("only the file is asked")
)

// LookupNetIP gives the addresses of a name.
func (resolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if found, err := hostsFile.LookupNetIP(ctx, network, strings.TrimSuffix(host, ".")); err == nil && len(found) > 0 {
		return found, nil
	}
	return byDNS.LookupNetIP(ctx, network, host)
}

// ownAddresses are those that this daemon listens at.
func ownAddresses(api net.Addr, metrics string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range []string{api.String(), metrics} {
		if p, err := netip.ParseAddrPort(a); err == nil {
			out = append(out, p)
		}
	}
	return out
}
