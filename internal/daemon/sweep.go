package daemon

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/sandbox"
)

const templateSweep = 5 * time.Minute

// sweepTemplates removes templates that were replaced and that no sandbox uses
// any more, until the context ends. Templates of another data directory are
// left alone: only its own daemon knows what uses them.
func sweepTemplates(ctx context.Context, cfg *config.Config, m *sandbox.Manager, log *slog.Logger) {
	if cfg.TemplatesDir != filepath.Join(cfg.DataDir, "templates") {
		return
	}
	st := templateStore(cfg)
	st.InUse = m.TemplatesInUse
	t := time.NewTicker(templateSweep)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		removed, err := st.Sweep(ctx)
		if len(removed) > 0 {
			log.Info("templates removed", "removed", removed)
		}
		if err != nil && ctx.Err() == nil {
			log.Error("templates could not be swept", "error", err)
		}
	}
}
