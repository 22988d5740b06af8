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
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/network"
	"github.com/pandastack/pandastack/internal/store"
)

// networks makes what looks after the networks of sandboxes, and the log of what
// was decided.
func networks(cfg *config.Config, st *store.Store, master auth.Master, own *listening, events *journal.Journal, counts *metrics.Metrics, log *slog.Logger) (*network.Service, *network.Log, error) {
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
	o := network.Options{Store: st, Key: master.Derive("network secrets"), Named: named, CA: ca, PyPI: network.PipIndex, NPM: network.NpmIndex(config.OS()), Log: log}
	if !cfg.NetworkPackages {
		o.PyPI, o.NPM = noPackages, noPackages
	}
	o.Engine.IPv6 = true
	o.Engine.Audit = func(e api.NetworkEvent) {
		counts.Flow(e)
		lines.Add(e)
	}
	o.Engine.Limited = func(id egress.Identity, h egress.Hit) {
		events.Note(store.Event{
			Owner: id.Workspace, SandboxID: id.Sandbox, At: time.Now(), Type: api.LifeLimitHit,
			Payload: map[string]any{"limit": h.Limit, "hits": h.Hits, "detail": h.Detail},
		})
		log.Info("a sandbox met a limit", "sandbox", id.Sandbox, "limit", h.Limit, "detail", h.Detail)
	}
	o.Engine.Own = own.addresses
	o.Engine.Proxy = config.OS().Proxy()
	nets, err := network.New(o)
	if err != nil {
		lines.Close()
		return nil, nil, fmt.Errorf("the networks of sandboxes: %w", err)
	}
	return nets, lines, nil
}

// noPackages is asked in the place of a package manager that may not be.
func noPackages(context.Context) (network.Index, error) {
	return network.Index{}, errors.New("this server keeps that to itself (network_packages = false)")
}

// listening is where this daemon listens: what no sandbox ever reaches. Addresses
// come in while it starts, before there are sandboxes.
type listening struct {
	mu sync.Mutex
	at []netip.AddrPort
}

func (l *listening) add(ln net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		l.at = append(l.at, a.AddrPort())
	}
}

func (l *listening) addresses() []netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at)
}
