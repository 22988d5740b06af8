package cli

type sandboxGetCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxGetCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	sb, err := client.Get(a.ctx, c.ID)
	if err != nil {
		return err
	}
	return a.describe(sb.Info)
}
