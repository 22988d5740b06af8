package cli

import (
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
)

type snapshotCmd struct {
	Create snapshotCreateCmd `cmd:"" help:"Keep a sandbox's memory, files and processes as they are now."`
	Ls     snapshotLsCmd     `cmd:"" help:"List snapshots, the newest first."`
	Get    snapshotGetCmd    `cmd:"" help:"Show one snapshot."`
	Rename snapshotRenameCmd `cmd:"" help:"Change a snapshot's name."`
	Rm     snapshotRmCmd     `cmd:"" help:"Remove snapshots. Sandboxes made from them stay."`
	Export snapshotExportCmd `cmd:"" help:"Write a snapshot to a file that another server can import. The memory of the sandbox is in it, with every secret that was there."`
	Import snapshotImportCmd `cmd:"" help:"Make a snapshot of such a file."`
}

type snapshotCreateCmd struct {
	ID       string            `arg:"" help:"Id of the sandbox."`
	Name     string            `help:"What to call it." placeholder:"NAME"`
	Metadata map[string]string `help:"Labels of your own, as key=value." placeholder:"KEY=VALUE"`
	Carry    bool              `name:"carry-running" help:"Do not wait for running cells: copies go on with them."`
	TTL      int               `name:"ttl" help:"Seconds after which it is removed. Default: it stays." placeholder:"S"`
}

func (c *snapshotCreateCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	sn, err := sb.Snapshot(a.ctx, api.SnapshotRequest{Name: c.Name, Metadata: c.Metadata, CarryRunning: c.Carry, TTLSeconds: c.TTL})
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(sn)
	}
	fmt.Fprintln(a.Out, sn.ID)
	a.say("%s, taken in %.0f ms", size(sn.SizeBytes), sn.DurationMS)
	return nil
}

type snapshotLsCmd struct {
	Sandbox string `help:"Only those of this sandbox." placeholder:"ID"`
}

func (c *snapshotLsCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	list, err := client.Snapshots(a.ctx, c.Sandbox)
	if err != nil {
		return err
	}
	header := []string{"ID", "NAME", "SANDBOX", "TEMPLATE", "SIZE", "CREATED", "EXPIRES", "METADATA"}
	return tabulate(a, list, "there are none", header, func(sn api.Snapshot) []string {
		return []string{sn.ID, plain(sn.Name), sn.SandboxID, plain(sn.Template), size(sn.SizeBytes), a.when(sn.CreatedAt), a.maybe(sn.ExpiresAt), labels(sn.Metadata)}
	})
}

type snapshotGetCmd struct {
	ID string `arg:"" help:"Id of the snapshot."`
}

func (c *snapshotGetCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	sn, err := client.Snapshot(a.ctx, c.ID)
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(sn)
	}
	if a.flags.Quiet {
		_, err := fmt.Fprintln(a.Out, sn.ID)
		return err
	}
	rows := [][]string{
		{"id", sn.ID},
		{"name", plain(sn.Name)},
		{"sandbox", sn.SandboxID},
		{"parent", plain(sn.ParentID)},
		{"template", plain(sn.Template)},
		{"contexts", plain(strings.Join(sn.Contexts, ", "))},
		{"size", size(sn.SizeBytes)},
		{"created", a.when(sn.CreatedAt)},
		{"expires", a.maybe(sn.ExpiresAt)},
		{"cpu", fmt.Sprintf("%g", sn.CPU)},
		{"memory", fmt.Sprintf("%d MB", sn.MemoryMB)},
		{"disk", fmt.Sprintf("%d MB", sn.DiskMB)},
	}
	if len(sn.Metadata) > 0 {
		rows = append(rows, []string{"metadata", labels(sn.Metadata)})
	}
	if o := sn.Origin; o != nil {
		rows = append(rows, []string{"from", fmt.Sprintf("%s of %s, version %s, signed by %s", plain(o.SnapshotID), plain(o.Workspace), plain(o.Version), plain(o.Key))})
	}
	for _, r := range rows {
		fmt.Fprintf(a.Out, "%-9s %s\n", r[0], r[1])
	}
	return nil
}

type snapshotRenameCmd struct {
	ID   string `arg:"" help:"Id of the snapshot."`
	Name string `arg:"" help:"Its new name."`
}

func (c *snapshotRenameCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	sn, err := client.PatchSnapshot(a.ctx, c.ID, api.SnapshotPatch{Name: &c.Name})
	if err == nil && a.flags.JSON {
		return a.json(sn)
	}
	return err
}

type snapshotRmCmd struct {
	IDs []string `arg:"" help:"Ids of the snapshots."`
}

func (c *snapshotRmCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	return a.each(c.IDs, "removed", func(id string) error { return client.DeleteSnapshot(a.ctx, id) })
}
