package agent

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// afterRun is how long a sandbox outlives the time of its run, in seconds: for
// what becomes of it at the end, and for who was to look at it.
const afterRun = 600

// newSandbox is what a run asks for that has none, without label and secrets'
// values.
func newSandbox(req *api.AgentRequest) api.CreateSandboxRequest {
	ttl := int(req.Limits.MaxSeconds) + afterRun
	return api.CreateSandboxRequest{
		Template: req.Template, FromSnapshot: req.FromSnapshot, TTLSeconds: &ttl, CPU: req.CPU, MemoryMB: req.MemoryMB, DiskMB: req.DiskMB, PIDs: req.PIDs,
		Envs: req.Envs, Network: req.Network, Secrets: req.Secrets,
	}
}

// checkNew refuses at once what would leave the run without a sandbox later.
func (s *Service) checkNew(ctx context.Context, owner string, req *api.AgentRequest) error {
	if req.FromSnapshot != "" && req.Template != "" {
		return fault.InvalidField("from_snapshot", "from_snapshot and template are both given").WithHint("a snapshot has its template: leave template out")
	}
	err := s.cfg.Sandboxes.Check(ctx, owner, newSandbox(req))
	var f *fault.Error
	if errors.As(err, &f) && f.Field == "ttl_seconds" {
		return fault.InvalidField("limits.max_seconds", "limits.max_seconds is longer than sandboxes live here: %s", f.Message).
			WithHint("a run's sandbox lives %d s longer than the run may take", afterRun)
	}
	return err
}

// ofNew names a field of a request that only a new sandbox can have; "" when
// there is none.
func ofNew(req *api.AgentRequest) string {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"template", req.Template != ""}, {"from_snapshot", req.FromSnapshot != ""}, {"cpu", req.CPU != nil}, {"memory_mb", req.MemoryMB != nil},
		{"disk_mb", req.DiskMB != nil}, {"pids", req.PIDs != nil}, {"envs", len(req.Envs) > 0}, {"network", req.Network != nil}, {"secrets", len(req.Secrets) > 0},
	} {
		if f.given {
			return f.name
		}
	}
	return ""
}

// withoutValues is what of secrets may be written down.
func withoutValues(secrets api.Secrets) api.Secrets {
	if secrets == nil {
		return nil
	}
	out := api.Secrets{}
	for host, use := range secrets {
		use.Value = ""
		out[host] = use
	}
	return out
}

func valuesOf(secrets api.Secrets) (out []string) {
	for _, use := range secrets {
		out = append(out, use.Value)
	}
	return out
}

// lacksValues tells whether secrets were given by value, which was not kept.
func lacksValues(secrets api.Secrets) bool {
	for _, use := range secrets {
		if use.Ref == "" {
			return true
		}
	}
	return false
}
