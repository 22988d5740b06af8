package httpapi

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// stubAgents knows one run, ag-1.
type stubAgents struct{ *stub }

var answered = "42"

var agentRun = api.AgentRun{ID: "ag-1", Workspace: "ann", Task: "add", Model: "openai:x", Dialect: "text", Prompt: "v1", Status: api.AgentRunning, CreatedAt: time.Unix(1700000000, 0).UTC()}

func (s stubAgents) known(id string) error {
	if id == "ag-1" {
		return nil
	}
	return fault.New(api.CodeNotFound, "there is no agent's run %q", id)
}

func (s stubAgents) Start(_ context.Context, owner string, req api.AgentRequest, key string) (api.AgentRun, error) {
	opened := ""
	if req.Network != nil {
		opened = fmt.Sprintf(" network=%v secrets=%d", req.Network.Allow, len(req.Secrets))
	}
	if req.Fork != nil {
		opened = fmt.Sprintf(" fork of %s at %d", req.Fork.Of, req.Fork.At)
	}
	s.call("start %s %q %s %s key=%s%s", owner, req.Task, req.Model, req.BaseURL, key, opened)
	return agentRun, s.fail
}

func (s stubAgents) Get(_ context.Context, _, id string) (api.AgentRun, error) {
	return agentRun, s.known(id)
}

func (s stubAgents) List(_ context.Context, owner string, limit int) ([]api.AgentRun, error) {
	s.call("agents %s %d", owner, limit)
	return nil, nil
}

func (s stubAgents) Events(_ context.Context, _, id string, after int64, follow bool) (iter.Seq2[api.AgentEvent, error], error) {
	s.call("events %s %d %v", id, after, follow)
	return func(yield func(api.AgentEvent, error) bool) {
		at := agentRun.CreatedAt
		ended := agentRun
		ended.Status, ended.Reason, ended.Answer, ended.EndedAt = api.AgentEnded, api.AgentAnswered, &answered, &at
		for _, e := range []api.AgentEvent{
			{Seq: 1, Time: at, Type: api.AgentEventStarted, Run: &agentRun, Request: &api.AgentRequest{Task: "add"}},
			{Time: at, Type: api.AgentEventDelta, Turn: 1, Text: "I add"},
			{Seq: 2, Time: at, Type: api.AgentEventReply, Turn: 1, Reply: &api.AgentReply{Text: "FINAL ANSWER: 42", Stop: "end", Attempts: 1}},
			{Seq: 3, Time: at, Type: api.AgentEventOutcome, Turn: 1, Outcome: &api.AgentOutcome{Index: 1, End: "ok", Figures: []api.AgentFigure{{File: "1-1-1.png", MIME: "image/png", Width: 4, Height: 3}}}},
			{Seq: 4, Time: at, Type: api.AgentEventEnded, Run: &ended},
		} {
			if !yield(e, nil) {
				return
			}
		}
	}, s.known(id)
}

func (s stubAgents) Cancel(_ context.Context, _, id string) (api.AgentRun, error) {
	s.call("cancel %s", id)
	return agentRun, s.known(id)
}

func (s stubAgents) Delete(_ context.Context, _, id string) error {
	s.call("delete %s", id)
	return s.known(id)
}

func (s stubAgents) Figure(_ context.Context, _, id, name string) (string, []byte, error) {
	s.call("figure %s %s", id, name)
	return "image/png", []byte("PNG"), s.known(id)
}

func (s stubAgents) Notebook(_ context.Context, _, id string) ([]byte, error) {
	s.call("notebook %s", id)
	return []byte(`{"nbformat":4}`), s.known(id)
}

func (s stubAgents) Report(_ context.Context, _, id string) ([]byte, error) {
	s.call("report %s", id)
	return []byte("<!doctype html>"), s.known(id)
}

func TestAgents(t *testing.T) {
	onlyRun := map[string]string{"Authorization": "Bearer pds_only_run"}
	for _, sc := range []*scenario{
		{name: "start", method: "POST", path: "/v1/agents", body: `{"task":"add","model":"openai:x"}`, header: map[string]string{"X-Model-Key": "k"},
			status: 201, want: []string{`"id":"ag-1"`}, calls: []string{`start ann "add" openai:x  key=k`}},
		{name: "start and listen", method: "POST", path: "/v1/agents", body: `{"task":"add"}`, header: map[string]string{"Accept": "text/event-stream"},
			status: 200, want: []string{"id: 1\nevent: started", "\nevent: delta\ndata: {", "id: 4\nevent: ended", `"answer":"42"`},
			calls: []string{`start ann "add"   key=`, "events ag-1 0 true"}},
		{name: "a wrong type", method: "POST", path: "/v1/agents", body: `{"task":7}`, status: 400, field: "task", code: api.CodeInvalid},
		{name: "negative memory", method: "POST", path: "/v1/agents", body: `{"task":"x","memory_mb":-1}`, status: 400, field: "memory_mb", code: api.CodeInvalid},
		{name: "a negative share of a processor", method: "POST", path: "/v1/agents", body: `{"task":"x","cpu":-1}`, status: 400, field: "cpu", code: api.CodeInvalid},
		{name: "a network and a secret", method: "POST", path: "/v1/agents", body: `{"task":"add","network":{"allow":["a.example"]},"secrets":{"a.example":{"header":"Authorization","ref":"k"}},"disk_mb":64}`,
			status: 201, calls: []string{`start ann "add"   key= network=[a.example] secrets=1`}},
		{name: "an address of an admin's choice", method: "POST", path: "/v1/agents", body: `{"task":"add","base_url":"http://10.0.0.1/v1"}`,
			status: 201, calls: []string{`start ann "add"  http://10.0.0.1/v1 key=`}},
		{name: "an address of anybody's choice", method: "POST", path: "/v1/agents", body: `{"task":"add","base_url":"http://10.0.0.1/v1"}`, header: onlyRun,
			status: 403, code: api.CodeDenied, want: []string{"model_base_urls"}},
		{name: "an address that is allowed", method: "POST", path: "/v1/agents", body: `{"task":"add","base_url":"http://models.example/v1"}`, header: onlyRun,
			status: 201, calls: []string{`start ann "add"  http://models.example/v1 key=`}},
		{name: "a fork", method: "POST", path: "/v1/agents", body: `{"fork":{"of":"ag-1","at":2,"task":"use medians"}}`, status: 201, calls: []string{`start ann ""   key= fork of ag-1 at 2`}},
		{name: "a fork that is told NUL", method: "POST", path: "/v1/agents", body: `{"fork":{"of":"ag-1","at":2,"task":"\u0000"}}`, status: 400, field: "fork.task", code: api.CodeInvalid},
		{name: "list", method: "GET", path: "/v1/agents", status: 200, want: []string{`{"runs":[]}`}, calls: []string{"agents ann 100"}},
		{name: "list too many", method: "GET", path: "/v1/agents?limit=1001", status: 400, field: "limit", code: api.CodeInvalid},
		{name: "get", method: "GET", path: "/v1/agents/ag-1", status: 200, want: []string{`"task":"add"`}},
		{name: "get nothing", method: "GET", path: "/v1/agents/ag-2", status: 404, code: api.CodeNotFound},
		{name: "listen", method: "GET", path: "/v1/agents/ag-1/events", header: map[string]string{"Last-Event-ID": "2"},
			status: 200, want: []string{"event: ended"}, calls: []string{"events ag-1 2 true"}},
		{name: "read", method: "GET", path: "/v1/agents/ag-1/events?after=1", header: map[string]string{"Accept": "application/json"},
			status: 200, want: []string{`{"events":[`}, calls: []string{"events ag-1 1 false"}},
		{name: "read from where none can be", method: "GET", path: "/v1/agents/ag-1/events?after=-1", status: 400, field: "after", code: api.CodeInvalid},
		{name: "cancel", method: "POST", path: "/v1/agents/ag-1/cancel", status: 200, calls: []string{"cancel ag-1"}},
		{name: "remove", method: "DELETE", path: "/v1/agents/ag-1", status: 204, calls: []string{"delete ag-1"}},
		{name: "figure", method: "GET", path: "/v1/agents/ag-1/figures/1-1-1.png", status: 200, want: []string{"PNG"}, calls: []string{"figure ag-1 1-1-1.png"}},
		{name: "notebook", method: "GET", path: "/v1/agents/ag-1/notebook", status: 200, want: []string{`"nbformat":4`}, calls: []string{"notebook ag-1"}},
		{name: "report", method: "GET", path: "/v1/agents/ag-1/report", status: 200, want: []string{"<!doctype html>"}, calls: []string{"report ag-1"}},
		{name: "no report", method: "GET", path: "/v1/agents/ag-2/report", status: 404, code: api.CodeNotFound, calls: []string{"report ag-2"}},
		{name: "no figure", method: "GET", path: "/v1/agents/ag-2/figures/x", status: 404, code: api.CodeNotFound, calls: []string{"figure ag-2 x"}},
	} {
		t.Run(sc.name, sc.run)
	}
}
