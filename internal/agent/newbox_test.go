package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

func ptr[T any](v T) *T { return &v }

// What a run asks for its sandbox reaches the sandbox; of secrets' values nothing
// is written down, and what a host echoes of one is taken out.
func TestANewSandboxIsWhatWasAskedFor(t *testing.T) {
	d := newDesk(scripted.Turn{Say: fence("c")}, scripted.Turn{Say: "FINAL ANSWER: x"})
	d.knows["c"] = []api.Event{printed("the host said: Bearer value-of-the-secret\n"), ok()}
	dir := t.TempDir()
	run, events := follow(t, d.service(t, dir), api.AgentRequest{
		FromSnapshot: "sn-7", CPU: ptr(0.5), MemoryMB: ptr(512), DiskMB: ptr(100), PIDs: ptr(64), Envs: map[string]string{"A": "1"},
		Network: &api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("api.example.com"), {Host: "x.example.com", Ports: []int{443, 8443}, Methods: []string{"GET"}, Paths: []string{"/v1"}}}},
		Secrets: api.Secrets{"api.example.com": {Header: "Authorization", Value: "Bearer value-of-the-secret"}},
	})
	if run.Reason != api.AgentAnswered {
		t.Fatalf("%+v", run)
	}
	got := d.asked
	if got.Template != "" || got.FromSnapshot != "sn-7" || *got.CPU != 0.5 || *got.MemoryMB != 512 || *got.DiskMB != 100 || *got.PIDs != 64 || got.Envs["A"] != "1" ||
		len(got.Network.Allow) != 2 || got.Secrets["api.example.com"].Value != "Bearer value-of-the-secret" || *got.TTLSeconds != 900+afterRun {
		t.Errorf("asked for %+v", got)
	}
	prompt := events[2].Text
	for _, words := range []string{"of the network only api.example.com, x.example.com:443,8443 (GET /v1)", "Requests to https://api.example.com get their key on the way out"} {
		if !strings.Contains(prompt, words) {
			t.Errorf("the prompt lacks %q:\n%s", words, prompt)
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, run.ID, transcriptName))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "value-of-the-secret") || !strings.Contains(string(raw), `"secrets":{"api.example.com":{"header":"Authorization"}}`) {
		t.Errorf("the transcript: %.2000s", raw)
	}
}

// Values of secrets are in memory alone: a daemon that comes before there is a
// sandbox cannot make one that has them.
func TestValuesOfSecretsDoNotOutliveTheDaemon(t *testing.T) {
	for name, tc := range map[string]struct {
		use    api.SecretUse
		reason string
	}{
		"by value": {api.SecretUse{Header: "Authorization", Value: "Bearer value"}, api.AgentNoSandbox},
		"by name":  {api.SecretUse{Header: "Authorization", Ref: "kept"}, api.AgentAnswered},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"})
			dir := t.TempDir()
			making := make(chan struct{})
			s := New(Config{Dir: dir, Sandboxes: slowToMake{d, making}, Kernels: d, Files: d, Folders: d, Models: d, Model: "openai:scripted"})
			run, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x", Secrets: api.Secrets{"a.example": tc.use}}, "")
			if err != nil {
				t.Fatal(err)
			}
			<-making
			s.Close()
			s = d.service(t, dir)
			if err := s.Resume(); err != nil {
				t.Fatal(err)
			}
			if got, _ := wait(t, s, run.ID); got.Reason != tc.reason || tc.reason == api.AgentNoSandbox && !strings.Contains(got.Error, "values of its secrets are not stored") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// slowToMake makes no sandbox before the daemon ends.
type slowToMake struct {
	*desk
	making chan struct{}
}

func (s slowToMake) Create(ctx context.Context, _ string, _ api.CreateSandboxRequest) (api.SandboxInfo, error) {
	close(s.making)
	<-ctx.Done()
	return api.SandboxInfo{}, context.Cause(ctx)
}

func TestWhatOnlyANewSandboxHas(t *testing.T) {
	s := newDesk().service(t, t.TempDir())
	for field, req := range map[string]api.AgentRequest{
		"template":           {SandboxID: "sb-7", Template: "base"},
		"from_snapshot":      {SandboxID: "sb-7", FromSnapshot: "sn-1"},
		"cpu":                {SandboxID: "sb-7", CPU: ptr(1.0)},
		"memory_mb":          {SandboxID: "sb-7", MemoryMB: ptr(512)},
		"disk_mb":            {SandboxID: "sb-7", DiskMB: ptr(512)},
		"pids":               {SandboxID: "sb-7", PIDs: ptr(64)},
		"envs":               {SandboxID: "sb-7", Envs: map[string]string{"A": "1"}},
		"network":            {SandboxID: "sb-7", Network: &api.NetworkPolicy{}},
		"secrets":            {SandboxID: "sb-7", Secrets: api.Secrets{"a": {}}},
		"limits.max_seconds": {Limits: api.AgentLimits{MaxSeconds: 60_000}},
	} {
		req.Task = "x"
		_, err := s.Start(t.Context(), owner, req, "")
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := s.Start(t.Context(), owner, api.AgentRequest{Task: "x", FromSnapshot: "sn-1", Template: "base"}, "")
	var f *fault.Error
	if !errors.As(err, &f) || f.Field != "from_snapshot" {
		t.Errorf("%v", err)
	}
}

func TestWhatThePromptSaysOfTheNetwork(t *testing.T) {
	rule := api.Rule
	many := make([]api.NetworkRule, maxHosts+5)
	for i := range many {
		many[i] = rule("h.example")
	}
	for _, tc := range []struct {
		policy api.NetworkPolicy
		want   string
	}{
		{api.NetworkPolicy{}, "no network"},
		{api.NetworkPolicy{Mode: api.NetworkDeny}, "no network"},
		{api.NetworkPolicy{Mode: api.NetworkOpen}, "the public internet"},
		{api.NetworkPolicy{Mode: api.NetworkOpen, Deny: []api.NetworkRule{rule("a.example")}}, "the public internet but for a.example"},
		{api.NetworkPolicy{Mode: api.NetworkAllowList, Policy: "pip"}, "of the network only what the policy pip of the server has"},
		{api.NetworkPolicy{Policy: "pip", Allow: []api.NetworkRule{rule("a.example")}}, "of the network only a.example, and what the policy pip of the server has"},
		{api.NetworkPolicy{Allow: []api.NetworkRule{{CIDR: "10.0.0.0/8", Ports: []int{5432}}}}, "of the network only 10.0.0.0/8:5432"},
	} {
		var env Environment
		env.reach(api.NetworkInfo{Policy: tc.policy})
		if env.Network != tc.want {
			t.Errorf("%+v: %q, want %q", tc.policy, env.Network, tc.want)
		}
	}
	var env Environment
	env.reach(api.NetworkInfo{Policy: api.NetworkPolicy{Allow: many}})
	if !strings.HasSuffix(env.Network, ", h.example, 5 more") {
		t.Error(env.Network)
	}
}
