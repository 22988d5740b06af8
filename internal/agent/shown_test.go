package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

func (withTools) Plan(_ context.Context, _ string, t *api.Tools) (*api.Tools, error) { return t, nil }
func (withTools) Give(context.Context, string, string, *api.Tools) error             { return nil }

// What is called with a token is shown without it, while a run goes on and
// afterwards, and its fork and its replay call the same.
func TestNoTokensOfToolsAreShown(t *testing.T) {
	const token, header = "tk-5c1f0e7a9b3d4862", "hd-5c1f0e7a9b3d4862"
	d := newDesk(scripted.Turn{Say: "FINAL ANSWER: x"}, scripted.Turn{Say: "FINAL ANSWER: x"})
	s := d.service(t, t.TempDir())
	s.cfg.Tools = withTools{}
	address := "https://a.example/mcp?token=" + token
	tools := &api.Tools{
		HTTP: map[string]api.ToolHTTP{"crm": {URL: address, BaseURL: address, Headers: map[string]api.ToolHeader{"A": {Value: header}, "B": {Ref: "k", Prefix: "Bearer "}}}},
		MCP:  map[string]api.ToolMCP{"notes": {URL: address}},
	}
	first, _ := follow(t, s, api.AgentRequest{Tools: tools})
	fork, _ := follow(t, s, api.AgentRequest{Fork: &api.AgentFork{Of: first.ID, At: 1}})
	replay, _ := follow(t, s, api.AgentRequest{ReplayOf: fork.ID})
	for _, run := range []api.AgentRun{first, fork, replay} {
		if run.Reason != api.AgentAnswered {
			t.Errorf("%+v", run)
		}
		for _, live := range []bool{true, false} {
			events, err := s.Events(t.Context(), owner, run.ID, 0, live)
			if err != nil {
				t.Fatal(err)
			}
			for e, err := range events {
				raw, jerr := json.Marshal(e)
				if err != nil || jerr != nil || bytes.Contains(raw, []byte(token)) || bytes.Contains(raw, []byte(header)) {
					t.Errorf("%s, %v, %v", raw, err, jerr)
				}
				if e.Request != nil && (e.Request.Tools.MCP["notes"].URL != "https://a.example/mcp?token=[redacted]" || e.Request.Tools.HTTP["crm"].Headers["B"].Ref != "k") {
					t.Errorf("%+v", e.Request.Tools)
				}
			}
		}
		if d.asked.Tools.MCP["notes"].URL != address || d.asked.Tools.HTTP["crm"].Headers["A"].Value != header {
			t.Errorf("called is %+v", d.asked.Tools)
		}
	}
}
