package tools

import (
	"encoding/json"
	"testing"

	"github.com/pandastack/pandastack/api"
)

func TestPoliciesDecideByFacts(t *testing.T) {
	tool := func(name, host string, risky bool) *Tool { return &Tool{Name: name, Host: host, Risky: risky} }
	policy := api.ToolPolicy{Approve: api.ApproveRisky, Rules: []api.ToolRule{
		{Tool: "crm.delete_*", Arguments: map[string]string{"id": "test-*"}, Action: api.RuleAllow},
		{Tool: "crm.delete_*", Action: api.RuleDeny},
		{Host: "*.internal", Action: api.RuleAsk},
		{Advice: "network", Tool: "mail.*", Action: api.RuleDeny},
		{Tool: "crm.rename", Arguments: map[string]string{"n": "7"}, Action: api.RuleDeny},
	}}
	for _, c := range []struct {
		name   string
		tool   *Tool
		args   string
		advice string
		want   string
		why    string
	}{
		{"a rule names an argument", tool("crm.delete_one", "", true), `{"id":"test-1"}`, "", api.RuleAllow, "rule 1"},
		{"its pattern must fit the whole", tool("crm.delete_one", "", true), `{"id":"a test-1"}`, "", api.RuleDeny, "rule 2"},
		{"an argument that is missing does not fit", tool("crm.delete_one", "", true), `{}`, "", api.RuleDeny, "rule 2"},
		{"hosts", tool("x.y", "db.INTERNAL", false), `{}`, "", api.RuleAsk, "rule 3"},
		{"what reading the cell says", tool("mail.send", "", false), `{}`, "network", api.RuleDeny, "rule 4"},
		{"without that", tool("mail.send", "", false), `{}`, "process", api.RuleAllow, "approve risky"},
		{"numbers are their JSON", tool("crm.rename", "", false), `{"n":7}`, "", api.RuleDeny, "rule 5"},
		{"risky ones are asked for", tool("crm.create", "", true), `{}`, "", api.RuleAsk, "approve risky"},
	} {
		f := facts{tool: c.tool, arguments: json.RawMessage(c.args)}
		if c.advice != "" {
			f.advice = []api.AgentAdvice{{Kind: c.advice}}
		}
		if got, why := decide(policy, f); got != c.want || why != c.why {
			t.Errorf("%s: %s (%s), want %s (%s)", c.name, got, why, c.want, c.why)
		}
	}
	if got, _ := decide(api.ToolPolicy{}, facts{tool: tool("a", "", true)}); got != api.RuleAllow {
		t.Errorf("without a policy: %s", got)
	}
	if got, _ := decide(api.ToolPolicy{Approve: api.ApproveAlways}, facts{tool: tool("a", "", false)}); got != api.RuleAsk {
		t.Errorf("always: %s", got)
	}
}

// A cell that could not be read may hold anything: that forbids, and never permits.
func TestACellThatWasNotReadPermitsNothing(t *testing.T) {
	mail := &Tool{Name: "mail.send", Risky: true}
	for action, want := range map[string]string{api.RuleAllow: api.RuleAsk, api.RuleAsk: api.RuleAsk, api.RuleDeny: api.RuleDeny} {
		policy := api.ToolPolicy{Approve: api.ApproveRisky, Rules: []api.ToolRule{{Advice: "network", Action: action}}}
		if got, why := decide(policy, facts{tool: mail, unread: true}); got != want {
			t.Errorf("%s: %s (%s), want %s", action, got, why, want)
		}
	}
}

// What a policy looks at is what the tool gets: of a name that is there twice
// there is one value.
func TestArgumentsHaveOneValue(t *testing.T) {
	tool := &Tool{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`)}
	tool.schema = compiled(tool.Parameters)
	got, err := checkArguments(tool, json.RawMessage(`{"a":1,"a":2}`))
	if err != nil || string(got) != `{"a":2}` {
		t.Errorf("%s, %v", got, err)
	}
	for _, wrong := range []string{`{"a":"x"}`, `{}`, `{"a":1,"b":2}`, `[]`, `null`, `7`, ``} {
		if _, err := checkArguments(tool, json.RawMessage(wrong)); asError2(err) != KindInvalid {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func asError2(err error) string {
	if err == nil {
		return "ok"
	}
	return asError(err).Kind
}
