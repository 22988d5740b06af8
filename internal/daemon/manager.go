package daemon

import (
	"log/slog"
	"path/filepath"

	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

func managerConfig(cfg *config.Config, drv driver.Driver, st *store.Store, log *slog.Logger) sandbox.Config {
	return sandbox.Config{
		Driver:       drv,
		Store:        st,
		Templates:    builtTemplates{templateStore(cfg)},
		Logger:       log,
		RunDir:       filepath.Join(cfg.DataDir, "run"),
		DefaultTTL:   cfg.DefaultTTL,
		MaxTTL:       cfg.MaxTTL,
		MaxSandboxes: cfg.MaxSandboxes,
		MinFreeMB:    cfg.MemoryReserve,
		Pool:         map[string]sandbox.PoolSize{cfg.PoolTemplate: {Restored: cfg.PoolReady, Prepared: cfg.PoolPrepared}},
	}
}
