package cli

import (
	"fmt"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxKillCmd struct {
	IDs []string `arg:"" optional:"" name:"id" help:"Ids of sandboxes."`
	All bool     `help:"End every sandbox of yours."`
}

func (c *sandboxKillCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	ids := c.IDs
	switch {
	case c.All && len(ids) > 0:
		return usageError{fmt.Errorf("give ids or --all, not both")}
	case c.All:
		list, err := client.List(a.ctx, pandastack.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range list {
			if s.Status != api.StatusDeleted {
				ids = append(ids, s.ID)
			}
		}
	case len(ids) == 0:
		return usageError{fmt.Errorf("give the id of a sandbox, or --all")}
	}
	return a.each(ids, "killed", func(id string) error {
		if err := client.Sandbox(id).Kill(a.ctx); err != nil {
			return err
		}
		a.say("%s ended", id)
		return nil
	})
}
