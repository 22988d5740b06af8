package cli

type sandboxAttachCmd struct {
	ID    string `arg:"" help:"Id of the sandbox."`
	PID   int    `arg:"" name:"pid" help:"Process id, as exec --detach said it."`
	After int64  `help:"Show what came after this event: all that is kept when nothing is said." placeholder:"N"`
}

// Run shows the output until the process ends, whose exit code it takes.
// Interrupted, it leaves the process running.
func (c *sandboxAttachCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	p, err := sb.Connect(a.ctx, c.PID)
	if err != nil {
		return err
	}
	return a.follow(p, c.After, false)
}
