package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/daemon"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type templateCmd struct {
	Build templateBuildCmd `cmd:"" help:"Build a template from its recipe, unless it is built."`
	Ls    templateLsCmd    `cmd:"" help:"List templates."`
	Rm    templateRmCmd    `cmd:"" help:"Remove templates. Sandboxes and snapshots made from them stay."`
}

type templateLsCmd struct {
	place
}

func (c *templateLsCmd) Run(a *app) error {
	list, err := c.list(a)
	if err != nil {
		return err
	}
	header := []string{"NAME", "ALIASES", "SIZE", "CPU", "MEMORY", "BUILT", "DESCRIPTION"}
	return tabulate(a, list, "there are none; build one with: pandastack template build code-interpreter", header, func(t api.TemplateInfo) []string {
		return []string{
			plain(t.Name), plain(strings.Join(t.Aliases, ",")), size(t.SizeBytes),
			fmt.Sprintf("%g", t.CPU), fmt.Sprintf("%d MB", t.MemoryMB), a.when(t.BuiltAt), plain(t.Description),
		}
	})
}

// list asks the server, and looks itself when none is up or another data
// directory is meant.
func (c *templateLsCmd) list(a *app) ([]api.TemplateInfo, error) {
	if c.DataDir == "" {
		client, err := a.client()
		if err != nil {
			return nil, err
		}
		list, err := client.Templates(a.ctx)
		if !errors.Is(err, pandastack.ErrConnection) {
			return list, err
		}
	}
	cfg, err := c.load(a, nil)
	if err != nil {
		return nil, err
	}
	return daemon.Templates(a.ctx, cfg)
}

type templateRmCmd struct {
	place
	Names []string `arg:"" name:"name" help:"Names of templates."`
}

func (c *templateRmCmd) Help() string {
	return "On the server's own machine, whether its daemon runs or not: no sandbox is made from them any more. A daemon frees the disk some minutes later, as soon as no sandbox or snapshot needs their files."
}

func (c *templateRmCmd) Run(a *app) error {
	cfg, err := c.load(a, nil)
	if err != nil {
		return err
	}
	return a.each(c.Names, "removed", func(name string) error { return daemon.RemoveTemplate(a.ctx, cfg, name) })
}
