package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// toolsIn reads a file with tools, "" for none.
func toolsIn(file string) (*api.Tools, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the tools: %w", err)
	}
	var t api.Tools
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, fault.InvalidField("tools", "%s has no tools in JSON: %v", file, err)
	}
	return &t, nil
}

type approvalCmd struct {
	Ls      approvalLsCmd      `cmd:"" help:"List calls of tools that wait for a decision."`
	Approve approvalApproveCmd `cmd:"" help:"Let a call go on."`
	Deny    approvalDenyCmd    `cmd:"" help:"Deny a call."`
}

type approvalLsCmd struct {
	All     bool   `help:"Also those that were decided."`
	Sandbox string `help:"Only those of this sandbox." placeholder:"ID"`
	Agent   string `help:"Only those of this agent's run." placeholder:"ID"`
}

func (c *approvalLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	f := pandastack.ApprovalFilter{SandboxID: c.Sandbox, AgentID: c.Agent, Status: api.ApprovalPending}
	if c.All {
		f.Status = ""
	}
	list, err := client.Approvals(a.ctx, f)
	if err != nil {
		return err
	}
	header := []string{"ID", "SANDBOX", "TOOL", "ARGUMENTS", "STATUS", "WHY"}
	return tabulate(a, list, "there are none", header, func(p api.Approval) []string {
		until := p.Status
		if p.Status == api.ApprovalPending {
			until = "expires in " + time.Until(p.ExpiresAt).Round(time.Second).String()
		}
		return []string{p.ID, p.SandboxID, plain(p.Tool), argumentsOf(p), until, plain(p.Rule)}
	})
}

// argumentsOf shows the arguments of a call in a line.
func argumentsOf(p api.Approval) string {
	const most = 60
	raw, err := json.Marshal(p.Arguments)
	if err != nil {
		return ""
	}
	if r := []rune(plain(string(raw))); len(r) > most {
		return fmt.Sprintf("%s… (%s)", string(r[:most]), size(int64(len(raw))))
	}
	return plain(string(raw))
}

type approvalApproveCmd struct {
	ID     string `arg:"" help:"Of the approval."`
	Reason string `help:"Kept with the decision."`
}

func (c *approvalApproveCmd) Run(a *app) error { return a.decide(c.ID, true, c.Reason) }

type approvalDenyCmd struct {
	ID     string `arg:"" help:"Of the approval."`
	Reason string `help:"Told to the program that called."`
}

func (c *approvalDenyCmd) Run(a *app) error { return a.decide(c.ID, false, c.Reason) }

func (a *app) decide(id string, approve bool, reason string) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	p, err := client.Decide(a.ctx, id, api.Decision{Approve: approve, Reason: reason})
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(p)
	}
	a.say("%s %s: %s", p.Status, plain(p.Tool), argumentsOf(p))
	return nil
}
