package cli

import "github.com/pandastack/pandastack/api"

type sandboxHibernateCmd struct {
	ID    string `arg:"" help:"Id of the sandbox."`
	Carry bool   `name:"carry-running" help:"Do not wait for running cells: they go on when it wakes."`
}

func (c *sandboxHibernateCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if err := sb.Hibernate(a.ctx, api.CarryRequest{CarryRunning: c.Carry}); err != nil {
		return err
	}
	return a.did("hibernated", c.ID)
}

type sandboxWakeCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxWakeCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if err := sb.Wake(a.ctx); err != nil {
		return err
	}
	return a.did("woken", c.ID)
}
