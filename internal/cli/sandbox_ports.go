package cli

import (
	"strconv"
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
	if a.flags.JSON {
		return a.json(list)
	}
	if a.flags.Quiet {
		var names []string
		for _, p := range list {
			names = append(names, strconv.Itoa(p.Port))
		}
		return a.names(names)
	}
	if len(list) == 0 {
		a.say("nothing listens, and nothing is named")
		return nil
	}
	var rows [][]string
	for _, p := range list {
		state, seen := "-", "with the key"
		if p.Listening {
			state = "listens"
		}
		if p.Public {
			seen = "by all"
		}
		url := p.URL
		if url == "" {
			url = p.ProxyURL
		}
		rows = append(rows, []string{strconv.Itoa(p.Port), state, seen, plain(p.Label), plain(url)})
	}
	return a.table([]string{"PORT", "STATE", "SEEN", "LABEL", "URL"}, rows)
}
