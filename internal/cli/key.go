package cli

import "fmt"

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make a key. It is shown once."`
	Ls     keyLsCmd     `cmd:"" help:"List keys, without their secrets."`
	Revoke keyRevokeCmd `cmd:"" help:"End a key at once."`
}

type keyCreateCmd struct {
	Label string `arg:"" optional:"" help:"What it is for."`
}

func (c *keyCreateCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	k, err := client.CreateKey(a.ctx, c.Label)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(k)
	}
	fmt.Fprintln(a.Out, k.Token)
	a.say("this is the only time it is shown")
	return nil
}

type keyLsCmd struct{}

func (c *keyLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.Keys(a.ctx)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(list)
	}
	var rows [][]string
	for _, k := range list {
		rows = append(rows, []string{k.Prefix, plain(k.Label), a.when(k.CreatedAt)})
	}
	return a.table([]string{"KEY", "LABEL", "CREATED"}, rows)
}

type keyRevokeCmd struct {
	Prefix string `arg:"" help:"First characters of the key, as key ls shows them."`
}

func (c *keyRevokeCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	return client.RevokeKey(a.ctx, c.Prefix)
}
