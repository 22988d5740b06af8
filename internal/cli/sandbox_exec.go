package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxExecCmd struct {
	ID      string            `arg:"" help:"Id of the sandbox."`
	Command []string          `arg:"" passthrough:"partial" help:"One word: a line for the shell. Several: a program and its arguments."`
	Detach  bool              `short:"d" help:"Say its process id and leave it running."`
	Timeout *float64          `help:"Seconds that the command may take: 60 when nothing is said, no limit with --detach." placeholder:"S"`
	CWD     string            `name:"cwd" help:"Folder to run in: /workspace when nothing is said." placeholder:"DIR"`
	Env     map[string]string `help:"Environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
	User    string            `help:"Name or uid to run as: root when nothing is said." placeholder:"USER"`
	Stdin   bool              `short:"i" help:"Pass standard input on from a terminal, too, and with --json. From a pipe or a file it is anyway."`
	TTY     bool              `short:"t" name:"tty" help:"Give it a terminal, which this one is at; as in exec -it ID bash."`
	Keys    string            `name:"detach-keys" default:"ctrl-p,ctrl-q" help:"With -t: keys that leave the command running." placeholder:"KEYS"`
}

const execTimeout = 60

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
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if a.flags.JSON && !c.Detach {
		if c.TTY {
			return usageError{errors.New("-t is for people: leave it out with --json")}
		}
		return c.whole(a, sb, cmd)
	}
	if c.TTY && !c.Detach {
		return c.onTerminal(a, sb, cmd)
	}
	input := c.Stdin || !a.InTerm
	o := pandastack.StartOptions{CWD: c.CWD, Envs: c.Env, User: c.User, Stdin: input && !c.Detach}
	switch {
	case c.Timeout != nil:
		o.TimeoutSeconds = *c.Timeout
	case !c.Detach:
		o.TimeoutSeconds = execTimeout
	}
	if c.TTY {
		o.PTY = new(a.size())
	}
	p, err := a.start(sb, cmd, o)
	if err != nil {
		return err
	}
	if c.Detach {
		if a.flags.JSON {
			return a.json(p.Info)
		}
		fmt.Fprintln(a.Out, p.PID)
		return nil
	}
	err = a.follow(p, 0, o.Stdin)
	if a.ctx.Err() != nil {
		err = a.killed(p, err)
	}
	return err
}

// start starts a command, which does not stay behind when its caller is
// interrupted meanwhile.
func (a *app) start(sb *pandastack.Sandbox, cmd api.Command, o pandastack.StartOptions) (*pandastack.Process, error) {
	return begin(a, func(ctx context.Context) (*pandastack.Process, error) { return sb.Start(ctx, cmd, o) },
		func(ctx context.Context, p *pandastack.Process) error { return p.Kill(ctx) })
}

// killed ends a command with its caller, who was interrupted.
func (a *app) killed(p *pandastack.Process, err error) error { return errors.Join(err, a.undo(p.Kill)) }

// onTerminal runs the command on a terminal that this one is at.
func (c *sandboxExecCmd) onTerminal(a *app, sb *pandastack.Sandbox, cmd api.Command) error {
	if !a.InTerm || !a.Terminal {
		return usageError{errors.New("-t needs a terminal for input and output: leave it out to pipe them")}
	}
	keys, err := parseKeys(c.Keys)
	if err != nil {
		return err
	}
	o := pandastack.StartOptions{CWD: c.CWD, Envs: a.terminalEnv(c.Env), User: c.User, PTY: new(a.size())}
	if c.Timeout != nil {
		o.TimeoutSeconds = *c.Timeout
	}
	p, err := a.start(sb, cmd, o)
	if err != nil {
		return err
	}
	err = a.attend(p, keys)
	switch {
	case errors.Is(err, errDetached):
		a.say("detached: process %d goes on. Back to it: pandastack sandbox attach %s %d", p.PID, sb.ID, p.PID)
		return nil
	case errors.Is(err, context.Canceled): // by a signal to us: keys go to the command
		return a.killed(p, err)
	}
	return err
}

// terminalEnv says what kind of terminal this is, unless that is said already.
func (a *app) terminalEnv(env map[string]string) map[string]string {
	all := map[string]string{}
	for _, name := range []string{"TERM", "COLORTERM"} {
		if v, ok := a.env(name); ok && v != "" && v != "dumb" {
			all[name] = v
		}
	}
	maps.Copy(all, env)
	return all
}

// follow shows a process's output and passes input on, and fails with its exit
// code.
func (a *app) follow(p *pandastack.Process, after int64, input bool) error {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	if input {
		go func() { // it may wait for input for ever, and need not be waited for
			if err := p.Feed(ctx, a.In); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("passing standard input on: %w", err))
			}
		}()
	}
	x, err := p.Wait(ctx, after, a.Out, a.Err)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if n := x.StdoutDropped + x.StderrDropped; n > 0 {
		where := ""
		if x.OutputPath != "" {
			where = "; all of it is in " + plain(x.OutputPath) + " of the sandbox"
		}
		a.say("%d bytes of output are missing, for they came faster than they were read%s", n, where)
	}
	return a.ended(x)
}

// ended gives the exit code of a process, and says what ended it.
func (a *app) ended(x api.Exit) error {
	switch {
	case x.Reason == api.ReasonTimeout:
		return &pandastack.Error{
			Code: api.CodeTimeout, Message: "the command did not end in time and was killed", Hint: "raise --timeout, or start it with --detach",
		}
	case x.Reason == api.ReasonOOM:
		fmt.Fprintln(a.Err, "pandastack: the command was ended because the sandbox ran out of memory")
	}
	if x.Code != 0 {
		return failed(x.Code)
	}
	return nil
}

// whole runs the command and answers with its result as JSON.
func (c *sandboxExecCmd) whole(a *app, sb *pandastack.Sandbox, cmd api.Command) error {
	o := pandastack.ExecOptions{CWD: c.CWD, Envs: c.Env, User: c.User}
	if c.Timeout != nil {
		o.TimeoutSeconds = *c.Timeout
	}
	if c.Stdin {
		raw, err := io.ReadAll(a.In)
		if err != nil {
			return err
		}
		text := string(raw)
		o.Stdin = &text
	}
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
