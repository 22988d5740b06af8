package cli

import (
	"fmt"

	"github.com/pandastack/pandastack/internal/daemon"
)

type sweepCmd struct {
	place
	Driver string `hidden:""`
}

func (c *sweepCmd) Help() string {
	return "For taking PandaStack off a machine, or when its daemon cannot be started again. Hibernated sandboxes, snapshots, templates, keys and records stay."
}

func (c *sweepCmd) Run(a *app) error {
	cfg, err := c.load(a, map[string]string{"driver": c.Driver})
	if err != nil {
		return err
	}
	ended, err := daemon.EndAll(a.ctx, cfg, a.logger("text", "warn"))
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(append([]string{}, ended...))
	}
	if a.flags.Quiet {
		for _, id := range ended {
			fmt.Fprintln(a.Out, id)
		}
		return nil
	}
	a.say("%d sandboxes were ended; nothing of %s runs on this machine", len(ended), cfg.DataDir)
	return nil
}
