package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxNetCmd struct {
	ID     string   `arg:"" help:"Id of the sandbox."`
	Tail   int      `default:"50" help:"So many of the last lines, at most 500."`
	Follow bool     `short:"f" help:"Go on as it tries more."`
	Allow  []string `help:"Let it reach this, and what other --allow name, from now on, in place of what it might reach before: a host, *.example.com, an address or a CIDR, with :PORT if need be." placeholder:"HOST"`
	Close  bool     `help:"Close its network."`
}

func (c *sandboxNetCmd) Run(a *app) error {
	sb, err := a.sandbox(c.ID)
	if err != nil {
		return err
	}
	if len(c.Allow) > 0 || c.Close {
		if len(c.Allow) > 0 && c.Close {
			return usageError{fmt.Errorf("--allow and --close contradict each other")}
		}
		p := api.NetworkPatch{Policy: allowing(c.Allow)}
		if c.Close {
			p = api.NetworkPatch{Policy: &api.NetworkPolicy{Mode: api.NetworkDeny}, Secrets: &api.Secrets{}}
		}
		n, err := sb.SetNetwork(a.ctx, p)
		if err != nil {
			return err
		}
		if a.flags.JSON {
			return a.json(n)
		}
		return nil
	}
	for line, err := range sb.NetworkLog(a.ctx, pandastack.NetworkLogOptions{Tail: c.Tail, Follow: c.Follow}) {
		if err != nil {
			return err
		}
		if a.flags.JSON {
			if err := a.json(line); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(a.Out, networkLine(line.NetworkEvent))
	}
	return nil
}

// allowing is the policy that allows some hosts and nothing else; nil without any.
func allowing(hosts []string) *api.NetworkPolicy {
	if len(hosts) == 0 {
		return nil
	}
	p := &api.NetworkPolicy{Mode: api.NetworkAllowList}
	for _, h := range hosts {
		p.Allow = append(p.Allow, api.Rule(h))
	}
	return p
}

// networkLine shows a decision on one line.
func networkLine(e api.NetworkEvent) string {
	where := e.Name
	if where == "" {
		where = e.Address
	}
	if e.Port > 0 {
		where += fmt.Sprintf(":%d", e.Port)
	}
	words := []string{e.Time.UTC().Format(time.RFC3339), fmt.Sprintf("%-7s", e.Verdict), e.Protocol, where}
	if e.Method != "" {
		words = append(words, e.Method)
	}
	if e.Path != "" {
		words = append(words, e.Path)
	}
	if e.Status > 0 {
		words = append(words, fmt.Sprint(e.Status))
	}
	if e.Secret != "" {
		words = append(words, "with "+e.Secret)
	}
	if e.Reason != "" {
		words = append(words, "("+e.Reason+")")
	} else if e.Rule != "" {
		words = append(words, "by "+e.Rule)
	}
	if e.BytesOut+e.BytesIn > 0 {
		words = append(words, fmt.Sprintf("%s out, %s in", size(e.BytesOut), size(e.BytesIn)))
	}
	return plain(strings.Join(words, "  "))
}
