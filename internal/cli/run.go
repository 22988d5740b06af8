package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type runCmd struct {
	File     string  `arg:"" optional:"" help:"Python file; - for standard input." placeholder:"FILE.py"`
	Code     string  `short:"c" help:"Python code instead of a file." placeholder:"CODE"`
	Template string  `default:"code-interpreter" help:"Template of the sandbox."`
	Timeout  float64 `default:"30" help:"Seconds that the code may take."`
	Keep     bool    `help:"Leave the sandbox running and say its id."`
	Charts   string  `help:"Folder that charts are saved to." placeholder:"DIR"`

	kept string // id of the sandbox that stays
}

func (c *runCmd) source(a *app) (string, error) {
	switch {
	case c.Code != "" && c.File != "":
		return "", usageError{fmt.Errorf("give a file or -c, not both")}
	case c.Code != "":
		return c.Code, nil
	case c.File == "":
		return "", usageError{fmt.Errorf("give a file to run, or code with -c")}
	case c.File == "-":
		raw, err := io.ReadAll(a.In)
		return string(raw), err
	}
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return "", usageError{err}
	}
	return string(raw), nil
}

func (c *runCmd) Run(a *app) error {
	code, err := c.source(a)
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return usageError{fmt.Errorf("--timeout must be above 0")}
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	ttl := max(300, int(c.Timeout)+120)
	sb, err := a.create(client, pandastack.CreateOptions{Template: c.Template, TTLSeconds: &ttl})
	if err != nil {
		return err
	}
	if c.Keep {
		c.kept = sb.ID
		a.stays(sb, ttl)
	} else {
		defer c.kill(a, sb)
	}
	return c.execute(a, sb.Context(""), code)
}

// stays says which sandbox is kept, and how long. That was asked for, also by
// who wants no remarks.
func (a *app) stays(sb *pandastack.Sandbox, ttl int) {
	if a.flags.Quiet {
		fmt.Fprintln(a.Err, sb.ID)
	}
	a.say("sandbox %s stays, for %s", sb.ID, span(time.Duration(ttl)*time.Second))
}

// kill ends the sandbox also when the command was interrupted.
func (c *runCmd) kill(a *app, sb *pandastack.Sandbox) {
	if err := a.undo(sb.Kill); err != nil {
		a.say("sandbox %s could not be ended: %v", sb.ID, err)
	}
}

// execute runs the code and shows what it writes while it does.
func (c *runCmd) execute(a *app, k *pandastack.CodeContext, code string) error {
	var ex pandastack.Execution
	o := pandastack.RunOptions{Timeout: time.Duration(c.Timeout * float64(time.Second))}
	for e, err := range k.Stream(a.ctx, code, o) {
		if err != nil {
			return err
		}
		switch e.Type {
		case api.EventStdout:
			ex.Stdout += e.Text
			if !a.flags.JSON {
				fmt.Fprint(a.Out, e.Text)
			}
		case api.EventStderr:
			ex.Stderr += e.Text
			if !a.flags.JSON {
				fmt.Fprint(a.Err, e.Text)
			}
		case api.EventResult:
			r := api.Bundle(e.Data)
			meta := api.ResultMeta{IsLastExpression: e.IsLastExpression, Metadata: e.Metadata}
			if e.IsLastExpression { // it comes first in an Execution
				ex.Results = append([]api.Bundle{r}, ex.Results...)
				ex.ResultsMeta = append([]api.ResultMeta{meta}, ex.ResultsMeta...)
			} else {
				ex.Results = append(ex.Results, r)
				ex.ResultsMeta = append(ex.ResultsMeta, meta)
			}
		case api.EventGap:
			a.say("… %s of %s left out …", size(e.Dropped), plain(e.Stream))
		case api.EventEnd:
			end := *e.Execution
			end.Stdout, end.Stderr, end.Results, end.ResultsMeta = ex.Stdout, ex.Stderr, ex.Results, ex.ResultsMeta
			ex.Execution = end
		}
	}
	saved, err := c.saveCharts(a, ex.Results)
	if err != nil {
		return err
	}
	return c.show(a, ex, saved)
}

// ranOnce is the answer of run to programs.
type ranOnce struct {
	pandastack.Execution
	SandboxID string `json:"sandbox_id,omitempty"` // of the one that was kept
}

// show writes what is known at the end.
func (c *runCmd) show(a *app, ex pandastack.Execution, saved []string) error {
	if a.flags.JSON {
		if err := a.json(ranOnce{ex, c.kept}); err != nil {
			return err
		}
	} else {
		if text := ex.Text(); text != "" {
			fmt.Fprintln(a.Out, text)
		}
		if ex.Error != nil {
			fmt.Fprintln(a.Err, *ex.Error)
		}
	}
	for _, file := range saved {
		a.say("chart: %s", file)
	}
	switch ex.End {
	case api.EndOK:
		return nil
	case api.EndTimeout:
		return failed(exitTimeout)
	}
	return failed(exitFailed)
}

var pictures = []struct{ mime, ext string }{{"image/png", "png"}, {"image/jpeg", "jpg"}, {"image/svg+xml", "svg"}}

// saveCharts writes every result's picture to the folder, or says that there
// are some.
func (c *runCmd) saveCharts(a *app, results []api.Bundle) ([]string, error) {
	var saved []string
	n := 0
	for _, r := range results {
		for _, p := range pictures {
			v, ok := r[p.mime]
			if !ok {
				continue
			}
			n++
			if c.Charts == "" {
				break
			}
			raw := []byte(v)
			if p.ext != "svg" {
				b, err := base64.StdEncoding.DecodeString(v)
				if err != nil {
					return saved, fmt.Errorf("chart %d is not valid: %w", n, err)
				}
				raw = b
			}
			if err := os.MkdirAll(c.Charts, 0o777); err != nil {
				return saved, err
			}
			file := filepath.Join(c.Charts, fmt.Sprintf("chart-%d.%s", n, p.ext))
			if err := os.WriteFile(file, raw, 0o666); err != nil {
				return saved, err
			}
			saved = append(saved, file)
			break
		}
	}
	if n > 0 && c.Charts == "" {
		a.say("%d chart(s) were drawn; --charts DIR saves them", n)
	}
	return saved, nil
}
