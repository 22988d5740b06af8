package cli

type sandboxPauseCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxPauseCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	return sb.Pause(a.ctx)
}

type sandboxResumeCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxResumeCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	return sb.Resume(a.ctx)
}
