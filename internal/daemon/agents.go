package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/tools"
)

// newAgents puts the agent loop together.
func newAgents(cfg *config.Config, manager *sandbox.Manager, kernels *kernel.Service, toolbox *tools.Service, log *slog.Logger) *agent.Service {
	var limit *rate.Limiter
	if n := cfg.ModelRate; n > 0 {
		limit = rate.NewLimiter(rate.Limit(float64(n)/60), max(1, n/10))
	}
	return agent.New(agent.Config{
		Dir:       filepath.Join(cfg.DataDir, "agents"),
		Sandboxes: manager,
		Kernels:   kernels,
		Files:     guestFiles{manager},
		Folders:   guestFiles{manager},
		Models: &llm.Catalog{
			OpenAI:    llm.Endpoint{BaseURL: cfg.OpenAIBaseURL, Key: cfg.OpenAIKey},
			Anthropic: llm.Endpoint{BaseURL: cfg.AnthropicBaseURL, Key: cfg.AnthropicKey},
			Limit:     limit,
		},
		Tools:    agentTools{toolbox, manager},
		Model:    cfg.AgentModel,
		Secrets:  []string{cfg.OpenAIKey, cfg.AnthropicKey},
		Logger:   log,
		MostRuns: cfg.MaxAgents,
		MostHeld: int64(cfg.AgentsMemoryMB) << 20,
		KeepFor:  cfg.AgentsKeep,
		MostKept: int64(cfg.AgentsKeepMB) << 20,
	})
}

// resumeAgents goes on with the agents of an earlier daemon, once their
// sandboxes were adopted.
func resumeAgents(ctx context.Context, agents *agent.Service, manager *sandbox.Manager, log *slog.Logger) {
	if err := manager.Adopted(ctx); err != nil {
		return // the daemon ends, and says why
	}
	if err := agents.Resume(); err != nil {
		log.Error("not every agent could go on", "error", err)
	}
}

// guestFiles writes files over the guest link.
type guestFiles struct{ manager *sandbox.Manager }

var _ agent.Files = guestFiles{}

func (f guestFiles) Write(ctx context.Context, owner, sid, path string, data []byte) error {
	client, done, err := f.manager.Guest(ctx, owner, sid)
	if err != nil {
		return err
	}
	defer done()
	_, err = client.WriteFile(ctx, path, guest.WriteOptions{}, bytes.NewReader(data))
	return err
}

// agentTools is what cells of agents call outside.
type agentTools struct {
	*tools.Service
	manager *sandbox.Manager
}

var _ agent.Tools = agentTools{}

func (t agentTools) Prompt(ctx context.Context, owner, sid string, budget int, count func(string) int) (string, error) {
	return t.manager.ToolPrompt(ctx, owner, sid, budget, count)
}

func (t agentTools) Give(ctx context.Context, owner, sid string, list *api.Tools) error {
	_, err := t.manager.SetTools(ctx, owner, sid, *list)
	return err
}
