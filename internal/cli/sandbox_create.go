package cli

import (
	"fmt"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxCreateCmd struct {
	Template   string            `default:"code-interpreter" help:"Template to make it from."`
	From       string            `name:"from-snapshot" help:"Snapshot to make it from, instead of a template." placeholder:"ID"`
	Persistent bool              `help:"Hibernate it when its time is up, instead of ending it."`
	TTL        *int              `name:"ttl" help:"Seconds until it ends." placeholder:"SECONDS"`
	Idle       *int              `name:"idle-timeout" help:"Seconds without a call until it is hibernated." placeholder:"SECONDS"`
	CPU        *float64          `name:"cpu" help:"Cores, 0.1 or more; for this and the next: the template's own without." placeholder:"N"`
	Memory     *int              `name:"memory" help:"Memory in MB." placeholder:"MB"`
	Disk       *int              `name:"disk" help:"Writable disk in MB." placeholder:"MB"`
	PIDs       *int              `name:"pids" help:"Processes and threads." placeholder:"N"`
	Env        map[string]string `help:"Environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
	Metadata   map[string]string `help:"Labels of your own, as key=value." placeholder:"KEY=VALUE"`
}

func (c *sandboxCreateCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	sb, err := client.Create(a.ctx, pandastack.CreateOptions{
		Template: c.Template, FromSnapshot: c.From, Persistent: c.Persistent, TTLSeconds: c.TTL, IdleTimeoutSeconds: c.Idle,
		CPU: c.CPU, MemoryMB: c.Memory, DiskMB: c.Disk, PIDs: c.PIDs, Envs: c.Env, Metadata: c.Metadata,
	})
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(sb.Info)
	}
	fmt.Fprintln(a.Out, sb.ID)
	a.say("expires %s, started in %.0f ms", a.when(sb.Info.ExpiresAt), sb.Info.BootMS)
	return nil
}
