package cli

import (
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

type sandboxTTLCmd struct {
	ID      string `arg:"" help:"Id of the sandbox."`
	Seconds *int   `arg:"" optional:"" help:"Seconds that it has from now."`
}

func (c *sandboxTTLCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	var l api.Lifecycle
	if c.Seconds != nil {
		l, err = sb.SetTTL(a.ctx, time.Duration(*c.Seconds)*time.Second)
	} else {
		l, err = sb.Lifecycle(a.ctx)
	}
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(l)
	}
	fmt.Fprintf(a.Out, "expires %s, idle for %.0f s\n", a.when(l.ExpiresAt), l.IdleSeconds)
	return nil
}
