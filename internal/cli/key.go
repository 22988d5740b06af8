package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/daemon"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make a key. It is shown once."`
	Ls     keyLsCmd     `cmd:"" help:"List keys, without their secrets."`
	Revoke keyRevokeCmd `cmd:"" help:"End a key at once, with all that is in progress with it."`
}

type keyCreateCmd struct {
	place
	Label     string `help:"What it is for." placeholder:"WORDS"`
	Scope     string `help:"How much it may do: read (look), run (use sandboxes, the default) or admin (manage keys); each includes those before it."`
	Expires   string `help:"When it ends: so many days (30d), a duration (12h) or a time (2030-01-31T12:00:00Z); never otherwise." placeholder:"WHEN"`
	Workspace string `help:"Whose sandboxes it reaches; your own otherwise." placeholder:"NAME"`
	OnHost    bool   `help:"Make an admin key in the data directory itself, for when all keys are lost. The daemon must be stopped; its sandboxes go on meanwhile."`
}

func (c *keyCreateCmd) Run(a *app) error {
	req := api.CreateKeyRequest{Label: c.Label, Workspace: c.Workspace}
	if c.Scope != "" {
		req.Scopes = []api.Scope{api.Scope(c.Scope)}
	}
	if c.Expires != "" {
		at, err := moment(c.Expires, time.Now())
		if err != nil {
			return usageError{err}
		}
		req.ExpiresAt = &at
	}
	if c.OnHost {
		return c.onHost(a)
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	k, err := client.CreateKey(a.ctx, req)
	if err != nil {
		return err
	}
	return a.newKey(k)
}

func (a *app) newKey(k api.NewKey) error {
	if a.flags.JSON {
		return a.json(k)
	}
	fmt.Fprintln(a.Out, k.Token)
	a.say("this is the only time it is shown")
	return nil
}

func (c *keyCreateCmd) onHost(a *app) error {
	if c.Scope != "" || c.Expires != "" || c.Workspace != "" {
		return usageError{fmt.Errorf("--on-host makes an admin key that does not expire; make others with it")}
	}
	cfg, err := c.load(a, nil)
	if err != nil {
		return err
	}
	k, err := daemon.CreateKey(a.ctx, cfg, c.Label)
	if err != nil {
		return err
	}
	return a.newKey(k)
}

// moment reads a time that is given as a number of days, a duration or itself.
func moment(s string, now time.Time) (time.Time, error) {
	if days, found := strings.CutSuffix(s, "d"); found {
		var n int
		if _, err := fmt.Sscanf(days+"\n", "%d\n", &n); err == nil && n > 0 {
			return now.AddDate(0, 0, n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(d), nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("--expires %q is not of the form 30d, 12h or 2030-01-31T12:00:00Z", s)
}

type keyLsCmd struct {
	Workspace string `help:"Of this workspace; \"*\" for all. Your own otherwise." placeholder:"NAME"`
}

func (c *keyLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.Keys(a.ctx, c.Workspace)
	if err != nil {
		return err
	}
	header := []string{"KEY", "LABEL", "SCOPE", "WORKSPACE", "CREATED", "USED", "EXPIRES"}
	return tabulate(a, list, "there are none", header, func(k api.KeyInfo) []string {
		return []string{k.Prefix, plain(k.Label), scopes(k.Scopes), k.Workspace, a.when(k.CreatedAt), a.maybe(k.LastUsedAt), a.maybe(k.ExpiresAt)}
	})
}

// scopes shows the largest, which includes the others.
func scopes(list []api.Scope) string {
	if len(list) == 0 {
		return "-"
	}
	return string(list[len(list)-1])
}

// maybe shows a time that there need not be.
func (a *app) maybe(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return a.when(*t)
}

type keyRevokeCmd struct {
	Prefix string `arg:"" help:"First characters of the key, as key ls shows them, or the key itself."`
}

// shownOfKey is how much of a key may be seen by others: its prefix.
const shownOfKey = len("pds_") + 8

func (c *keyRevokeCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	prefix := c.Prefix
	if strings.HasPrefix(prefix, "pds_") && len(prefix) > shownOfKey {
		prefix = prefix[:shownOfKey] // the rest is nobody's business, not even a log's
	}
	if err := client.RevokeKey(a.ctx, prefix); err != nil {
		return err
	}
	return a.did("revoked", prefix)
}
