package cli

import (
	"fmt"

	"github.com/pandastack/pandastack/api"
)

type sandboxForkCmd struct {
	ID       string            `arg:"" help:"Id of the sandbox."`
	Count    int               `default:"1" help:"How many copies, 1 to 16. Each has memory of its own." placeholder:"N"`
	TTL      *int              `name:"ttl" help:"Seconds until they end; as many as the sandbox had, if not given." placeholder:"SECONDS"`
	Env      map[string]string `help:"Further environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
	Metadata map[string]string `help:"Further labels, as key=value." placeholder:"KEY=VALUE"`
	Carry    bool              `name:"carry-running" help:"Do not wait for running cells: copies go on with them."`
}

func (c *sandboxForkCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	made, err := sb.Fork(a.ctx, api.ForkRequest{Count: &c.Count, TTLSeconds: c.TTL, Envs: c.Env, Metadata: c.Metadata, CarryRunning: c.Carry})
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(made.Fork)
	}
	for _, child := range made.Children {
		fmt.Fprintln(a.Out, child.ID)
	}
	for _, e := range made.Errors {
		a.say("copy %d was not made: %s", e.Index, e.Message)
	}
	return nil
}
