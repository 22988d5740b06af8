package cli

import (
	"fmt"
	"strconv"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type contextCmd struct {
	Ls        contextLsCmd        `cmd:"" help:"List a sandbox's code contexts."`
	Create    contextCreateCmd    `cmd:"" help:"Make a code context and say its id."`
	Run       contextRunCmd       `cmd:"" help:"Run Python in a code context."`
	Fork      contextForkCmd      `cmd:"" help:"Copy a code context with all its variables and say the copies' ids."`
	Interrupt contextInterruptCmd `cmd:"" help:"Stop the running cell."`
	Restart   contextRestartCmd   `cmd:"" help:"Give a code context a new interpreter."`
	Close     contextCloseCmd     `cmd:"" help:"End a code context."`
}

// contextArgs name a code context.
type contextArgs struct {
	Sandbox string `arg:"" help:"Id of the sandbox."`
	ID      string `arg:"" optional:"" name:"context" help:"Id of the code context." default:"default"`
}

func (c *contextArgs) open(a *app) (*pandastack.CodeContext, error) {
	sb, err := a.sandbox(c.Sandbox)
	if err != nil {
		return nil, err
	}
	return sb.Context(c.ID), nil
}

type contextLsCmd struct {
	Sandbox string `arg:"" help:"Id of the sandbox."`
}

func (c *contextLsCmd) Run(a *app) error {
	sb, err := a.sandbox(c.Sandbox)
	if err != nil {
		return err
	}
	list, err := sb.Contexts(a.ctx)
	if err != nil {
		return err
	}
	return tabulate(a, list, "there are none", []string{"ID", "LANGUAGE", "STATE", "CELLS", "CREATED"}, func(k api.Context) []string {
		return []string{plain(k.ID), plain(k.Language), plain(k.State), strconv.Itoa(k.ExecutionCount), a.when(k.CreatedAt)}
	})
}

type contextCreateCmd struct {
	Sandbox string            `arg:"" help:"Id of the sandbox."`
	CWD     string            `name:"cwd" help:"Folder to start in." placeholder:"DIR"`
	Env     map[string]string `help:"Environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
}

func (c *contextCreateCmd) Run(a *app) error {
	sb, err := a.sandbox(c.Sandbox)
	if err != nil {
		return err
	}
	k, err := sb.CreateContext(a.ctx, api.CreateContextRequest{CWD: c.CWD, Envs: c.Env})
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(k.Info)
	}
	fmt.Fprintln(a.Out, plain(k.ID))
	return nil
}

type contextForkCmd struct {
	contextArgs
	Count int `help:"Copies." default:"1" placeholder:"N"`
}

func (c *contextForkCmd) Run(a *app) error {
	k, err := c.open(a)
	if err != nil {
		return err
	}
	copies, warnings, err := k.Fork(a.ctx, c.Count)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		out := api.ForkContextResponse{Children: []api.Context{}, Warnings: append([]string{}, warnings...)}
		for _, k := range copies {
			out.Children = append(out.Children, k.Info)
		}
		return a.json(out)
	}
	for _, w := range warnings {
		fmt.Fprintln(a.Err, "note: "+plain(w))
	}
	for _, k := range copies {
		fmt.Fprintln(a.Out, plain(k.ID))
	}
	return nil
}

type contextInterruptCmd struct{ contextArgs }

func (c *contextInterruptCmd) Run(a *app) error {
	k, err := c.open(a)
	if err != nil {
		return err
	}
	if err := k.Interrupt(a.ctx); err != nil {
		return err
	}
	return a.did("interrupted", c.ID)
}

type contextRestartCmd struct{ contextArgs }

func (c *contextRestartCmd) Run(a *app) error {
	k, err := c.open(a)
	if err != nil {
		return err
	}
	if err := k.Restart(a.ctx); err != nil {
		return err
	}
	return a.did("restarted", c.ID)
}

type contextCloseCmd struct{ contextArgs }

func (c *contextCloseCmd) Run(a *app) error {
	k, err := c.open(a)
	if err != nil {
		return err
	}
	if err := k.Close(a.ctx); err != nil {
		return err
	}
	return a.did("closed", c.ID)
}
