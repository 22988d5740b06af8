package daemon

import (
	"log/slog"
	"path/filepath"

	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// runDir holds a folder for each sandbox, with its link's socket.
func runDir(cfg *config.Config) string { return filepath.Join(cfg.DataDir, "run") }

func managerConfig(cfg *config.Config, drv driver.Driver, st *store.Store, events *journal.Journal, counts *metrics.Metrics, log *slog.Logger) sandbox.Config {
	pools := map[string]sandbox.PoolSize{}
	for _, name := range cfg.PoolTemplates {
		pools[name] = sandbox.PoolSize{Restored: cfg.PoolReady, Prepared: cfg.PoolPrepared}
	}
	return sandbox.Config{
		Driver:        drv,
		Store:         st,
		Templates:     templatesFor(cfg),
		Journal:       events,
		Metrics:       counts,
		Logger:        log,
		RunDir:        runDir(cfg),
		DefaultTTL:    cfg.DefaultTTL,
		MaxTTL:        cfg.MaxTTL,
		MaxSandboxes:  cfg.MaxSandboxes,
		MaxCPU:        cfg.MaxCPU,
		MaxMemoryMB:   cfg.MaxMemory,
		MaxDiskMB:     cfg.MaxDisk,
		MaxPIDs:       cfg.MaxPIDs,
		MaxPerOwner:   cfg.MaxSandboxesPerWorkspace,
		MinFreeMB:     cfg.MemoryReserve,
		MinFreeDiskMB: cfg.DiskReserve,
		Overcommit:    sandbox.Overcommit{CPU: cfg.CPUOver, Memory: cfg.MemoryOver, Disk: cfg.DiskOver},
		ImageDir:      filepath.Join(cfg.DataDir, "images"),
		HibernatedFor: cfg.HibernatedFor,
		Pool:          pools,
	}
}
