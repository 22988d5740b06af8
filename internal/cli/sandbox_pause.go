package cli

type sandboxPauseCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxPauseCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if err := sb.Pause(a.ctx); err != nil {
		return err
	}
	return a.did("paused", c.ID)
}

type sandboxResumeCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxResumeCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if err := sb.Resume(a.ctx); err != nil {
		return err
	}
	return a.did("resumed", c.ID)
}
