package cli

import (
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxWatchCmd struct {
	ID        string `arg:"" help:"Id of the sandbox."`
	Path      string `arg:"" help:"File, or folder whose files are meant."`
	Recursive bool   `short:"r" help:"With all folders below it."`
}

func (c *sandboxWatchCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	for e, err := range sb.Watch(a.ctx, c.Path, pandastack.WatchOptions{Recursive: c.Recursive}) {
		switch {
		case err != nil:
			return err
		case a.flags.JSON:
			if err := a.json(e); err != nil {
				return err
			}
		case e.Type == api.FileStarted:
			a.say("watching %s", c.Path)
		default:
			fmt.Fprintln(a.Out, fileEventLine(e))
		}
	}
	return nil
}

// fileEventLine shows an event on one line.
func fileEventLine(e api.FileEvent) string {
	words := []string{fmt.Sprintf("%-8s", plain(e.Type))}
	path := e.Path
	if e.IsDir && path != "" {
		path = strings.TrimSuffix(path, "/") + "/"
	}
	if e.From != "" {
		path = e.From + " -> " + path
	}
	for _, w := range []string{path, e.Reason} {
		if w != "" {
			words = append(words, plain(w))
		}
	}
	if e.Dropped > 0 {
		words = append(words, fmt.Sprintf("%d events are missing", e.Dropped))
	}
	return strings.Join(words, "  ")
}
