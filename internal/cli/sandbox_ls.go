package cli

import (
	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxLsCmd struct {
	Status   string            `help:"Only those in this state: creating, running, paused, stopping or failed." placeholder:"STATE"`
	Template string            `help:"Only those of this template." placeholder:"NAME"`
	Metadata map[string]string `help:"Only those with these labels." placeholder:"KEY=VALUE"`
	Limit    int               `help:"At most so many."`
}

func (c *sandboxLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.List(a.ctx, pandastack.ListOptions{Metadata: c.Metadata, Status: api.Status(c.Status), Template: c.Template, Limit: c.Limit})
	if err != nil {
		return err
	}
	header := []string{"ID", "TEMPLATE", "STATUS", "CREATED", "EXPIRES", "METADATA"}
	return tabulate(a, list, "there are none", header, func(s api.SandboxInfo) []string {
		return []string{s.ID, plain(s.Template), string(s.Status), a.when(s.CreatedAt), a.when(s.ExpiresAt), labels(s.Metadata)}
	})
}
