package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/pandastack/pandastack/api"
)

type snapshotExportCmd struct {
	ID   string `arg:"" help:"Id of the snapshot."`
	File string `arg:"" optional:"" help:"Where to: a file, or - for standard output. ID.tar.zst when missing."`
}

// exported is the answer for programs.
type exported struct {
	ID    string `json:"id"`
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

func (c *snapshotExportCmd) Run(a *app) error {
	if c.File == "-" && a.Terminal {
		return usageError{fmt.Errorf("an archive is not for a terminal: name a file, or pass it on")}
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	r, err := client.ExportSnapshot(a.ctx, c.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	meter := a.meter()
	defer meter.end()
	if c.File == "-" {
		_, err := io.Copy(a.Out, meter.reader(r))
		return brokenOff(a.ctx, err)
	}
	to := c.File
	if to == "" {
		to = c.ID + ".tar.zst"
	}
	n, err := writeWhole(to, 0o600, meter.reader(r)) // for its owner alone
	if err != nil {
		return brokenOff(a.ctx, err)
	}
	meter.end()
	if a.flags.JSON {
		return a.json(exported{c.ID, to, n})
	}
	fmt.Fprintln(a.Out, to)
	a.say("%s, not encrypted: the memory of the sandbox is in it, with every secret that was there", size(n))
	return nil
}

// brokenOff says that a copy was interrupted when it was: what a connection says
// then is of no use.
func brokenOff(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

type snapshotImportCmd struct {
	File string `arg:"" help:"The file, or - for standard input."`
	Name string `help:"What to call it; as it was called when missing." placeholder:"NAME"`
}

func (c *snapshotImportCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	in := a.In
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return usageError{err}
		}
		defer f.Close()
		in = f
	}
	meter := a.meter()
	done, err := client.ImportSnapshot(a.ctx, meter.reader(in), c.Name)
	meter.end()
	if err != nil {
		return brokenOff(a.ctx, err)
	}
	if a.flags.JSON {
		return a.json(done)
	}
	fmt.Fprintln(a.Out, done.Snapshot.ID)
	a.say("%s of the template %s", size(done.Snapshot.SizeBytes), plain(done.Snapshot.Template))
	for _, m := range done.Missing {
		a.say("missing here: %s", missingWords(m))
	}
	return nil
}

func missingWords(m api.SnapshotMissing) string {
	name, of := plain(m.Name), plain(m.For)
	switch m.Kind {
	case api.MissingSecret:
		return fmt.Sprintf("the secret %s, for %s: pandastack secret set %s", name, of, name)
	case api.MissingValue:
		return fmt.Sprintf("the value of %s for %s, which is never exported: give it with each create", name, of)
	case api.MissingPolicy:
		return fmt.Sprintf("the network policy %s of the server's settings", name)
	case api.MissingTools:
		return fmt.Sprintf("the tools %s of the server's settings", name)
	}
	return plain(m.Kind) + " " + name
}
