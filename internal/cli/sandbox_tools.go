package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

type sandboxToolsCmd struct {
	ID    string `arg:"" help:"Id of the sandbox."`
	Calls bool   `help:"Show the last calls instead, the newest last."`
	Limit int    `default:"100" help:"With --calls, so many at most."`
}

func (c *sandboxToolsCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if c.Calls {
		if c.Limit < 1 {
			return usageError{fmt.Errorf("--limit must be at least 1, but is %d", c.Limit)}
		}
		list, err := sb.ToolCalls(a.ctx, c.Limit)
		if err != nil {
			return err
		}
		header := []string{"ID", "TIME", "TOOL", "STATE", "DURATION", "RULE", "ERROR"}
		return tabulate(a, list, "nothing was called", header, func(t api.ToolCall) []string {
			took := time.Duration(t.DurationMS * float64(time.Millisecond))
			return []string{t.ID, a.when(t.Time), plain(t.Tool), plain(t.Kind), took.Round(100 * time.Microsecond).String(), plain(t.Rule), plain(t.Why)}
		})
	}
	list, err := sb.Tools(a.ctx)
	if err != nil {
		return err
	}
	header := []string{"NAME", "FROM", "RISKY", "STATE", "SIGNATURE"}
	if err := tabulate(a, list.Tools, "it has none", header, func(t api.ToolInfo) []string {
		risky, state := "-", "connected"
		if t.Risky {
			risky = "risky"
		}
		if !t.Connected {
			state = "not reached"
		}
		return []string{plain(t.Name), plain(t.Source), risky, state, plain(t.Signature)}
	}); err != nil {
		return err
	}
	if len(list.Tools) > 0 && !a.flags.JSON {
		a.say("asked about before they are carried out: %s", asked(list.Policy))
	}
	return nil
}

// asked says which calls somebody decides.
func asked(p api.ToolPolicy) string {
	words := map[string]string{api.ApproveNever: "none", api.ApproveRisky: "risky calls", api.ApproveAlways: "all calls"}
	of := words[cmp.Or(p.Approve, api.ApproveNever)]
	if n := len(p.Rules); n > 0 {
		of += fmt.Sprintf(", after what its rules (%d) say", n)
	}
	return of
}
