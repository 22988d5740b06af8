package daemon

import (
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/tools"
)

// toolService makes what carries out the calls of sandboxes, and the log of them.
func toolService(cfg *config.Config, st *store.Store, secrets tools.Secrets, log *slog.Logger) (*tools.Service, io.Closer, error) {
	var declared api.Tools
	if cfg.Tools != "" {
		if err := json.Unmarshal([]byte(cfg.Tools), &declared); err != nil {
			return nil, nil, fault.InvalidField("tools", "tools is not a table of tools: %v", err)
		}
	}
	lines, err := tools.OpenLog(filepath.Join(cfg.DataDir, "tools"))
	if err != nil {
		return nil, nil, err
	}
	s, err := tools.New(tools.Options{Store: st, Secrets: secrets, Declared: declared, Log: log, Audit: lines, Own: tools.Server(time.Now)})
	if err != nil {
		lines.Close()
		return nil, nil, err
	}
	return s, lines, nil
}
