package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
)

type sandboxCmd struct {
	Create    sandboxCreateCmd    `cmd:"" help:"Make a sandbox and say its id."`
	Ls        sandboxLsCmd        `cmd:"" help:"List sandboxes."`
	Get       sandboxGetCmd       `cmd:"" help:"Show one sandbox."`
	Top       sandboxTopCmd       `cmd:"" help:"Show what sandboxes use of their limits."`
	Kill      sandboxKillCmd      `cmd:"" help:"End sandboxes."`
	Exec      sandboxExecCmd      `cmd:"" help:"Run a command in a sandbox."`
	Attach    sandboxAttachCmd    `cmd:"" help:"Be at a shell in a sandbox, or at a process that runs there."`
	Cp        sandboxCpCmd        `cmd:"" help:"Copy files into and out of a sandbox."`
	Watch     sandboxWatchCmd     `cmd:"" help:"Show changes of files in a sandbox as they happen."`
	Link      sandboxLinkCmd      `cmd:"" help:"Make a link with which a file is read or written without a key."`
	Events    sandboxEventsCmd    `cmd:"" help:"Show what happened to a sandbox, or to all."`
	Logs      sandboxLogsCmd      `cmd:"" help:"Show the console of a sandbox and the log of the agent in it."`
	TTL       sandboxTTLCmd       `cmd:"" name:"ttl" help:"Show or set how long a sandbox still has."`
	Pause     sandboxPauseCmd     `cmd:"" help:"Hold a sandbox still."`
	Resume    sandboxResumeCmd    `cmd:"" help:"Let a paused sandbox go on."`
	Hibernate sandboxHibernateCmd `cmd:"" help:"Write a sandbox to disk and free its memory; any call wakes it."`
	Wake      sandboxWakeCmd      `cmd:"" help:"Bring a hibernated sandbox back."`
	Fork      sandboxForkCmd      `cmd:"" help:"Copy a sandbox as it is now."`
	Net       sandboxNetCmd       `cmd:"" help:"Show what a sandbox tried to reach, or change what it may."`
	Tools     sandboxToolsCmd     `cmd:"" help:"Show the tools that Python in a sandbox can call, or the last calls."`
	Ports     sandboxPortsCmd     `cmd:"" help:"Show what listens in a sandbox, and under which address it is seen."`
	Forward   sandboxForwardCmd   `cmd:"" help:"Let a port of this machine lead to one of a sandbox."`
}

// labels shows metadata in a stable order.
func labels(m map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, plain(k)+"="+plain(m[k]))
	}
	return strings.Join(words, ",")
}

// limitHits says which limits were met, and how often.
func limitHits(h api.LimitHits) string {
	var words []string
	for _, l := range []struct {
		name string
		n    int64
	}{{"cpu", h.CPU}, {"memory", h.MemoryMB}, {"disk", h.DiskMB}, {"pids", h.PIDs}} {
		if l.n > 0 {
			words = append(words, fmt.Sprintf("%s %d×", l.name, l.n))
		}
	}
	return strings.Join(words, " ")
}

func (a *app) describe(s api.SandboxInfo) error {
	if a.flags.JSON {
		return a.json(s)
	}
	if a.flags.Quiet {
		_, err := fmt.Fprintln(a.Out, s.ID)
		return err
	}
	rows := [][]string{
		{"id", s.ID},
		{"template", plain(s.Template)},
		{"status", string(s.Status)},
		{"created", a.when(s.CreatedAt)},
		{"expires", a.when(s.ExpiresAt)},
		{"cpu", fmt.Sprintf("%g", s.CPU)},
		{"memory", fmt.Sprintf("%d MB", s.MemoryMB)},
		{"disk", fmt.Sprintf("%d MB", s.DiskMB)},
		{"processes", fmt.Sprint(s.PIDs)},
		{"started", fmt.Sprintf("in %.0f ms (%s)", s.BootMS, plain(s.BootMode))},
	}
	if len(s.Metadata) > 0 {
		rows = append(rows, []string{"metadata", labels(s.Metadata)})
	}
	if s.EndReason != "" {
		rows = append(rows, []string{"ended", plain(s.EndReason)})
	}
	if u := s.Usage; u != nil {
		rows[5][1] += fmt.Sprintf(", uses %.0f %% of one", u.CPUPercent)
		rows[6][1] += fmt.Sprintf(", uses %d", u.MemoryBytes>>20)
		rows[7][1] += fmt.Sprintf(", uses %d", u.DiskBytes>>20)
		rows[8][1] += fmt.Sprintf(", has %d", u.Processes)
		if hits := limitHits(u.LimitHits); hits != "" {
			rows = append(rows, []string{"limits", "met: " + hits})
		}
	}
	for _, r := range rows {
		fmt.Fprintf(a.Out, "%-9s %s\n", r[0], r[1])
	}
	return nil
}
