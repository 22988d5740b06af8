package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxEventsCmd struct {
	ID     string `arg:"" optional:"" help:"Id of the sandbox; without one, what happened to all of them and to the server."`
	Tail   int    `default:"50" help:"So many of the last ones, at most 1000."`
	Follow bool   `short:"f" help:"Go on as they happen, until the sandbox has ended."`
}

func (c *sandboxEventsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	o := pandastack.EventOptions{Tail: c.Tail, Follow: c.Follow}
	if c.Tail == 0 {
		o.Tail = -1
	}
	events := client.Events(a.ctx, o)
	if c.ID != "" {
		events = client.Sandbox(c.ID).Events(a.ctx, o)
	}
	for e, err := range events {
		if err != nil {
			return err
		}
		if a.flags.JSON {
			if err := a.json(e); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(a.Out, eventLine(e, c.ID == ""))
	}
	return nil
}

// eventLine shows an event on one line.
func eventLine(e api.LifeEvent, withID bool) string {
	words := []string{e.Time.UTC().Format(time.RFC3339)}
	if withID {
		id := e.SandboxID
		if id == "" {
			id = "server"
		}
		words = append(words, id)
	}
	words = append(words, plain(e.Type))
	for _, k := range slices.Sorted(maps.Keys(e.Payload)) {
		words = append(words, plain(fmt.Sprintf("%s=%v", k, e.Payload[k])))
	}
	return strings.Join(words, "  ")
}

type sandboxLogsCmd struct {
	ID     string `arg:"" help:"Id of the sandbox."`
	Stream string `default:"both" enum:"both,stdout,stderr" help:"stdout: the console; stderr: the log of the agent inside; both."`
	Follow bool   `short:"f" help:"Go on as lines are written, until the sandbox has ended."`
}

func (c *sandboxLogsCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	for l, err := range sb.Logs(a.ctx, pandastack.LogOptions{Stream: c.Stream, Follow: c.Follow}) {
		if err != nil {
			return err
		}
		if a.flags.JSON {
			if err := a.json(l); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(a.Out, plain(l.Line))
	}
	return nil
}
