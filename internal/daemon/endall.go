package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// EndAll ends all sandboxes of a data directory whose daemon has stopped, and
// what a killed template build left, so that no process, cgroup or socket of
// them is left on this machine. Hibernated sandboxes, snapshots, templates, keys
// and records stay. It gives the
// ids of the users' sandboxes that it ended. A daemon that still runs, or a
// build, is an error of kind fault.Conflict.
func EndAll(ctx context.Context, cfg *config.Config, log *slog.Logger) (ended []string, err error) {
	if _, err := os.Stat(runDir(cfg)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there never was a daemon
	}
	st, err := store.Open(ctx, cfg.DataDir)
	if err != nil {
		return nil, err
	}
	defer closing(&err, st.Close)
	drv, err := newDriver(cfg, sandboxDir, log)
	if err != nil {
		return nil, err
	}
	events := journal.New(st, log)
	defer events.Close()
	manager, err := sandbox.New(managerConfig(cfg, drv, st, events, metrics.New(), log))
	if err != nil {
		return nil, err
	}
	if ended, err = manager.EndAll(ctx); err != nil {
		return ended, fmt.Errorf("not everything could be ended: %w", err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, buildDir)); errors.Is(err, fs.ErrNotExist) {
		return ended, nil
	}
	builder, err := newBuilder(cfg, log)
	if err != nil {
		return ended, err
	}
	return ended, builder.CleanUp(ctx)
}
