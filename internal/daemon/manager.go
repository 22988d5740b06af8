package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// trustedKeys are those of the servers whose snapshots may be imported.
func trustedKeys(words []string) ([]archive.Key, error) {
	var out []archive.Key
	for _, w := range words {
		key, err := archive.ParseKey(w)
		if err != nil {
			var f *fault.Error
			if errors.As(err, &f) {
				f.Field = "snapshot_trusted_keys"
			}
			return nil, fmt.Errorf("snapshot_trusted_keys: %w", err)
		}
		out = append(out, key)
	}
	return out, nil
}

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
		Version:       version,
		RunDir:        runDir(cfg),
		DefaultTTL:    cfg.DefaultTTL,
		MaxTTL:        cfg.MaxTTL,
		MaxSandboxes:  cfg.MaxSandboxes,
		CreateTimeout: cfg.CreateTime,
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
