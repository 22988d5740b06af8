package cli

import (
	"context"
	"fmt"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxCreateCmd struct {
	Template   string `default:"code-interpreter" help:"Template to make it from."`
	From       string `name:"from-snapshot" help:"Snapshot to make it from, instead of a template." placeholder:"ID"`
	Persistent bool   `help:"Hibernate it when its time is up, instead of ending it."`
	TTL        *int   `name:"ttl" help:"Seconds until it ends." placeholder:"SECONDS"`
	Idle       *int   `name:"idle-timeout" help:"Seconds without a call until it is hibernated." placeholder:"SECONDS"`
	newLimits  `embed:""`
	Env        map[string]string `help:"Environment, as NAME=VALUE." placeholder:"NAME=VALUE"`
	opening    `embed:""`
	Tools      string            `help:"File with tools in JSON: http, mcp, use and policy, as the API has them." placeholder:"FILE" type:"existingfile"`
	Metadata   map[string]string `help:"Labels of your own, as key=value." placeholder:"KEY=VALUE"`
}

// create makes a sandbox, which does not stay behind when its caller is
// interrupted meanwhile.
func (a *app) create(client *pandastack.Client, o pandastack.CreateOptions) (*pandastack.Sandbox, error) {
	return begin(a, func(ctx context.Context) (*pandastack.Sandbox, error) { return client.Create(ctx, o) },
		func(ctx context.Context, sb *pandastack.Sandbox) error { return sb.Kill(ctx) })
}

// newLimits are those of a new sandbox.
type newLimits struct {
	CPU    *float64 `name:"cpu" help:"Cores, 0.1 or more; for this and the next: the template's own without." placeholder:"N"`
	Memory *int     `name:"memory" help:"Memory in MB." placeholder:"MB"`
	Disk   *int     `name:"disk" help:"Writable disk in MB." placeholder:"MB"`
	PIDs   *int     `name:"pids" help:"Processes and threads." placeholder:"N"`
}

// opening says what a new sandbox may reach.
type opening struct {
	Allow  []string          `help:"Let it reach this and nothing else: a host, *.example.com, an address or a CIDR, with :PORT if need be; may be repeated." placeholder:"HOST"`
	Policy string            `name:"network-policy" help:"A named network policy of the server." placeholder:"NAME"`
	Secret map[string]string `help:"Add a secret that the server keeps to requests for a host, as HOST=NAME; it goes into the header Authorization." placeholder:"HOST=NAME"`
}

func (o opening) network() *api.NetworkPolicy {
	p := allowing(o.Allow)
	if o.Policy != "" {
		if p == nil {
			p = &api.NetworkPolicy{}
		}
		p.Policy = o.Policy
	}
	return p
}

func (o opening) secrets() api.Secrets {
	if len(o.Secret) == 0 {
		return nil
	}
	out := api.Secrets{}
	for host, name := range o.Secret {
		out[host] = api.SecretUse{Header: "Authorization", Ref: name}
	}
	return out
}

func (c *sandboxCreateCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	tools, err := toolsIn(c.Tools)
	if err != nil {
		return err
	}
	sb, err := a.create(client, pandastack.CreateOptions{
		Template: c.Template, FromSnapshot: c.From, Persistent: c.Persistent, TTLSeconds: c.TTL, IdleTimeoutSeconds: c.Idle,
		CPU: c.CPU, MemoryMB: c.Memory, DiskMB: c.Disk, PIDs: c.PIDs, Envs: c.Env, Metadata: c.Metadata, Network: c.network(), Secrets: c.secrets(), Tools: tools,
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
