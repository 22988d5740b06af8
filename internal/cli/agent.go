package cli

import "github.com/pandastack/pandastack/api"

type agentCmd struct {
	Run    agentRunCmd    `cmd:"" help:"Have a model do a task by writing Python, and print its answer."`
	Ls     agentLsCmd     `cmd:"" help:"List runs, the newest first."`
	Show   agentShowCmd   `cmd:"" help:"Show a run: what was said, run, and seen."`
	Replay agentReplayCmd `cmd:"" help:"Run the cells of a run again in a new sandbox, and show where what they print differs."`
	Fork   agentForkCmd   `cmd:"" help:"Go on from a turn of a run in another way: with another model, or told something else."`
	Cancel agentCancelCmd `cmd:"" help:"End runs."`
	Rm     agentRmCmd     `cmd:"" help:"Remove runs that have ended, and their transcripts."`
	Script agentScriptCmd `cmd:"" help:"Serve a scripted model on loopback, to try agents without a real one."`
}

type agentCancelCmd struct {
	IDs []string `arg:"" help:"Ids of the runs."`
}

func (c *agentCancelCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	return a.each(c.IDs, "cancelled", func(id string) error {
		run, err := client.GetAgent(a.ctx, id)
		if err != nil {
			return err
		}
		return run.Cancel(a.ctx)
	})
}

type agentRmCmd struct {
	IDs []string `arg:"" help:"Ids of the runs."`
}

func (c *agentRmCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	return a.each(c.IDs, "removed", func(id string) error {
		run, err := client.GetAgent(a.ctx, id)
		if err != nil {
			return err
		}
		return run.Delete(a.ctx)
	})
}

type agentLsCmd struct {
	Limit int `help:"At most so many." default:"100" placeholder:"N"`
}

func (c *agentLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.Agents(a.ctx, c.Limit)
	if err != nil {
		return err
	}
	header := []string{"ID", "STATE", "TURNS", "CELLS", "MODEL", "STARTED", "TASK"}
	return tabulate(a, list, "there are none", header, func(r api.AgentRun) []string {
		state := r.Status
		if r.Reason != "" {
			state = r.Reason
		}
		return []string{r.ID, plain(state), count(r.Turns), count(r.Cells), plain(r.Model), a.when(r.CreatedAt), clip(plain(r.Task), 60)}
	})
}
