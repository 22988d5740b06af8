package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxAttachCmd struct {
	ID    string `arg:"" help:"Id of the sandbox."`
	PID   int    `arg:"" optional:"" name:"pid" help:"Process id, as exec --detach said it; without one, the shell that attach has started, or a new one."`
	After int64  `help:"Of a process without a terminal: show what came after this event; all that is kept when nothing is said." placeholder:"N"`
	Keys  string `name:"detach-keys" default:"ctrl-p,ctrl-q" help:"Keys that leave the terminal, and what runs on it running." placeholder:"KEYS"`
}

// shellTag marks the shell that attach starts and comes back to.
const shellTag = "shell"

// Run is at the terminal of a process, or shows the output of one without,
// until the process ends, whose exit code it takes. Interrupted, it leaves the
// process running.
func (c *sandboxAttachCmd) Run(a *app) error {
	keys, err := parseKeys(c.Keys)
	if err != nil {
		return err
	}
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	onTerminal := a.InTerm && a.Terminal && !a.flags.JSON
	var p *pandastack.Process
	switch {
	case c.PID != 0:
		p, err = sb.Connect(a.ctx, c.PID)
	case !onTerminal:
		return usageError{errors.New("a shell needs a terminal for input and output: give a process id to see its output, or use exec to run a command")}
	default:
		p, err = a.shell(sb)
	}
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.events(p, c.After)
	}
	if p.Info.PTY == nil || !onTerminal {
		return a.follow(p, c.After, false)
	}
	a.say("process %d of %s; %s", p.PID, sb.ID, detachHint(c.Keys))
	err = a.attend(p, keys)
	if errors.Is(err, errDetached) {
		a.say("detached: process %d goes on. Back to it: pandastack sandbox attach %s %d", p.PID, sb.ID, p.PID)
		return nil
	}
	return err
}

// events writes the output of a process as events, for programs.
func (a *app) events(p *pandastack.Process, after int64) error {
	for e, err := range p.Events(a.ctx, after) {
		if err != nil {
			return err
		}
		if err := a.json(e); err != nil {
			return err
		}
		if e.Exit != nil && e.Exit.Code != 0 {
			return failed(e.Exit.Code)
		}
	}
	return nil
}

func detachHint(keys string) string {
	if keys == "" {
		return "it ends when its program does"
	}
	return "detach with " + strings.ReplaceAll(keys, ",", " ")
}

// shell is the one that attach has started in a sandbox, or a new one.
func (a *app) shell(sb *pandastack.Sandbox) (*pandastack.Process, error) {
	for again := false; ; again = true {
		list, err := sb.Processes(a.ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			if p.Running && p.PTY != nil && p.Tag == shellTag {
				return sb.Connect(a.ctx, p.PID)
			}
		}
		p, err := sb.Start(a.ctx, api.Command{Argv: []string{"/bin/bash", "-l"}}, pandastack.StartOptions{
			Tag: shellTag, PTY: new(a.size()), Envs: a.terminalEnv(nil),
		})
		if errors.Is(err, pandastack.ErrConflict) && !again { // somebody else was quicker
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("starting a shell: %w", err)
		}
		return p, nil
	}
}
