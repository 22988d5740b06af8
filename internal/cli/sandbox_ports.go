package cli

import (
	"cmp"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

type sandboxPortsCmd struct {
	ID string `arg:"" help:"Id of the sandbox."`
}

func (c *sandboxPortsCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	list, err := sb.Ports(a.ctx)
	if err != nil {
		return err
	}
	header := []string{"PORT", "STATE", "SEEN", "LABEL", "URL"}
	return tabulate(a, list, "nothing listens, and nothing is named", header, func(p api.Port) []string {
		state, seen := "-", "with the key"
		if p.Listening {
			state = "listens"
		}
		if p.Public {
			seen = "by all"
		}
		return []string{strconv.Itoa(p.Port), state, seen, plain(p.Label), plain(cmp.Or(p.URL, p.ProxyURL))}
	})
}
