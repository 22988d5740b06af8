package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type sandboxTopCmd struct {
	IDs   []string      `arg:"" optional:"" name:"id" help:"Only these sandboxes."`
	Every time.Duration `default:"2s" help:"Time between two tables on a terminal."`
	Once  bool          `help:"Show one table and end, as without a terminal and with --json."`
}

// topRow is a sandbox and its use, which a sandbox that is not running lacks.
type topRow struct {
	ID        string     `json:"id"`
	Template  string     `json:"template"`
	Status    api.Status `json:"status"`
	CreatedAt time.Time  `json:"created_at"`
	Limits    api.Limits `json:"limits"`
	Usage     *api.Usage `json:"usage,omitempty"`
}

const (
	topAtOnce  = 8                      // sandboxes that are asked at once
	topBetween = 300 * time.Millisecond // two looks, of which one table shows the use of CPU
	topLeast   = 200 * time.Millisecond // between tables
)

func (c *sandboxTopCmd) Run(a *app) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	if c.Every < topLeast {
		return usageError{fmt.Errorf("--every must be at least %s, but is %s", topLeast, c.Every)}
	}
	if c.Once || a.flags.JSON || a.flags.Quiet || !a.Terminal {
		if _, err := c.look(a.ctx, client); err != nil {
			return err
		}
		if err := wait(a.ctx, topBetween); err != nil {
			return err
		}
		rows, err := c.look(a.ctx, client)
		if err != nil {
			return err
		}
		return a.top(rows)
	}
	for {
		rows, err := c.look(a.ctx, client)
		if err == nil {
			fmt.Fprint(a.Out, "\x1b[H\x1b[2J") // the top left, and nothing on the screen
			err = a.top(rows)
		}
		if err == nil {
			err = wait(a.ctx, c.Every)
		}
		if a.ctx.Err() != nil { // Ctrl-C is how it ends
			fmt.Fprintln(a.Out)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// look asks for the use of all sandboxes, or of those that were named.
func (c *sandboxTopCmd) look(ctx context.Context, client *pandastack.Client) ([]topRow, error) {
	var list []api.SandboxInfo
	var err error
	if len(c.IDs) == 0 {
		if list, err = client.List(ctx, pandastack.ListOptions{}); err != nil {
			return nil, err
		}
	}
	for _, id := range c.IDs {
		sb, err := client.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		list = append(list, sb.Info)
	}
	rows := make([]topRow, len(list))
	var g errgroup.Group
	g.SetLimit(topAtOnce)
	for i, s := range list {
		rows[i] = topRow{
			ID: s.ID, Template: s.Template, Status: s.Status, CreatedAt: s.CreatedAt,
			Limits: api.Limits{CPU: s.CPU, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB, PIDs: s.PIDs},
		}
		if s.Status != api.StatusRunning && s.Status != api.StatusPaused {
			continue
		}
		g.Go(func() error {
			m, err := client.Sandbox(s.ID).Metrics(ctx)
			var refused *pandastack.Error
			switch {
			case err == nil:
				rows[i].Usage = &m.Usage
			case errors.As(err, &refused) && (refused.Code == api.CodeNotFound || refused.Code == api.CodeConflict):
				// It has ended since the list was made.
			default:
				return err
			}
			return nil
		})
	}
	return rows, g.Wait()
}

// top writes the table.
func (a *app) top(list []topRow) error {
	header := []string{"ID", "TEMPLATE", "STATUS", "CPU", "MEMORY", "DISK", "PROCESSES", "AGE", "LIMITS MET"}
	return tabulate(a, list, "there are none", header, func(r topRow) []string {
		use := []string{"-", "-", "-", "-", ""}
		if u := r.Usage; u != nil {
			use = []string{
				fmt.Sprintf("%.0f%% / %.0f%%", u.CPUPercent, 100*r.Limits.CPU),
				fmt.Sprintf("%d / %d MB", u.MemoryBytes>>20, r.Limits.MemoryMB),
				fmt.Sprintf("%d / %d MB", u.DiskBytes>>20, r.Limits.DiskMB),
				fmt.Sprintf("%d / %d", u.Processes, r.Limits.PIDs),
				limitHits(u.LimitHits),
			}
		}
		age := "-"
		if !r.CreatedAt.IsZero() {
			age = span(time.Since(r.CreatedAt))
		}
		return []string{r.ID, plain(r.Template), string(r.Status), use[0], use[1], use[2], use[3], age, use[4]}
	})
}
