package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxExecCmd struct {
	ID      string            `arg:"" help:"Id of the sandbox."`
	Command []string          `arg:"" passthrough:"partial" help:"One word: a line for the shell. Several: a program and its arguments."`
	Timeout float64           `default:"60" help:"Seconds that the command may take."`
	CWD     string            `name:"cwd" help:"Folder to run in." placeholder:"DIR"`
	Env     map[string]string `help:"Environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
	User    string            `help:"Name or uid to run as."`
	Stdin   bool              `short:"i" help:"Pass standard input on."`
}

func (c *sandboxExecCmd) Run(a *app) error {
	words := c.Command
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		return usageError{errors.New("give a command to run")}
	}
	cmd := pandastack.Argv(words...)
	if len(words) == 1 {
		cmd = pandastack.Shell(words[0])
	}
	o := pandastack.ExecOptions{TimeoutSeconds: c.Timeout, CWD: c.CWD, Envs: c.Env, User: c.User}
	if c.Stdin {
		raw, err := io.ReadAll(a.In)
		if err != nil {
			return err
		}
		text := string(raw)
		o.Stdin = &text
	}
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return c.whole(a, sb, cmd, o)
	}
	code := 0
	for out, err := range sb.ExecStream(a.ctx, cmd, o, &code) {
		if err != nil {
			return err
		}
		to := a.Out
		if out.Stream == "stderr" {
			to = a.Err
		}
		fmt.Fprint(to, out.Text)
	}
	if code != 0 {
		return failed(code)
	}
	return nil
}

// whole runs the command and answers with its result as JSON.
func (c *sandboxExecCmd) whole(a *app, sb *pandastack.Sandbox, cmd api.Command, o pandastack.ExecOptions) error {
	res, err := sb.Exec(a.ctx, cmd, o)
	var late *pandastack.TimeoutError
	if err != nil && !errors.As(err, &late) {
		return err
	}
	if err := a.json(res); err != nil {
		return err
	}
	switch {
	case late != nil:
		return failed(exitTimeout)
	case res.ExitCode != 0:
		return failed(res.ExitCode)
	}
	return nil
}
