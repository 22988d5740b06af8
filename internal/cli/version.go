package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/internal/daemon"
)

type versionCmd struct{}

func (c *versionCmd) Run(a *app) error {
	v := daemon.Version("")
	if a.flags.JSON {
		return a.json(v)
	}
	fmt.Fprintf(a.Out, "pandastack %s", v.Version)
	if v.Commit != "" {
		fmt.Fprintf(a.Out, " (%s)", v.Commit)
	}
	fmt.Fprintf(a.Out, ", %s\n", v.Go)
	if a.flags.Quiet {
		return nil
	}
	client, err := a.client()
	if err != nil {
		return nil //nolint:nilerr // the program's own version needs no client
	}
	ctx, cancel := context.WithTimeout(a.ctx, 2*time.Second)
	defer cancel()
	if s, err := client.Version(ctx); err == nil {
		fmt.Fprintf(a.Out, "server at %s: %s, driver %s\n", client.APIURL(), plain(s.Version), plain(s.Driver))
		if s.SnapshotKey != "" {
			fmt.Fprintf(a.Out, "its snapshots are signed with %s\n", plain(s.SnapshotKey))
		}
	}
	return nil
}
