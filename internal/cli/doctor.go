package cli

import (
	"fmt"

	"github.com/pandastack/pandastack/internal/daemon"
)

type doctorCmd struct {
	place
	Driver string `hidden:""`
}

func (c *doctorCmd) Run(a *app) error {
	cfg, err := c.load(a, map[string]string{"driver": c.Driver})
	if err != nil {
		return err
	}
	checks := daemon.Doctor(a.ctx, cfg)
	bad := 0
	for _, k := range checks {
		if !k.OK {
			bad++
		}
	}
	if a.flags.JSON {
		if err := a.json(checks); err != nil {
			return err
		}
	} else {
		for _, k := range checks {
			mark := "ok  "
			if !k.OK {
				mark = "FAIL"
			}
			if a.flags.Quiet && k.OK {
				continue
			}
			fmt.Fprintf(a.Out, "%s  %s: %s\n", mark, k.Name, k.Detail)
			if !k.OK && k.Fix != "" {
				fmt.Fprintf(a.Out, "      fix: %s\n", k.Fix)
			}
		}
	}
	if bad > 0 {
		a.say("%d of %d checks failed", bad, len(checks))
		return failed(exitFailed)
	}
	return nil
}
