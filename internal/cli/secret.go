package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/pandastack/pandastack/api"
)

type secretCmd struct {
	Set secretSetCmd `cmd:"" help:"Keep a secret, which is read from standard input; sandboxes use it by its name."`
	Ls  secretLsCmd  `cmd:"" help:"List secrets, without their values."`
	Rm  secretRmCmd  `cmd:"" help:"Forget a secret."`
}

type secretSetCmd struct {
	Name string `arg:"" help:"What sandboxes call it."`
}

// Run reads the value from standard input, so that it is in no list of
// processes and no shell's history.
func (c *secretSetCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	if a.InTerm {
		a.say("type the value, such as \"Bearer …\", and end with Ctrl-D")
	}
	raw, err := io.ReadAll(io.LimitReader(a.In, 1<<20))
	if err != nil {
		return fmt.Errorf("reading the value: %w", err)
	}
	s, err := client.SetSecret(a.ctx, c.Name, strings.TrimRight(string(raw), "\r\n"))
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(s)
	}
	return nil
}

type secretLsCmd struct{}

func (c *secretLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.Secrets(a.ctx)
	if err != nil {
		return err
	}
	return tabulate(a, list, "there are none", []string{"NAME", "CREATED", "CHANGED"}, func(s api.SecretInfo) []string {
		return []string{s.Name, a.when(s.CreatedAt), a.when(s.UpdatedAt)}
	})
}

type secretRmCmd struct {
	Name string `arg:"" help:"Its name."`
}

func (c *secretRmCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	if err := client.DeleteSecret(a.ctx, c.Name); err != nil {
		return err
	}
	return a.did("removed", c.Name)
}
