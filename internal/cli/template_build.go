package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/daemon"
	"github.com/pandastack/pandastack/internal/template"
)

type templateBuildCmd struct {
	place
	Recipe string `arg:"" help:"Name of a recipe that comes with PandaStack, or the folder of one."`
	Driver string `hidden:""`
}

func (c *templateBuildCmd) Run(a *app) error {
	cfg, err := c.load(a, map[string]string{"driver": c.Driver})
	if err != nil {
		return err
	}
	show := progress{app: a}
	start := time.Now()
	t, err := daemon.BuildTemplate(a.ctx, cfg, c.Recipe, a.logger("text", "warn"), show.event)
	show.end()
	if err != nil {
		return err
	}
	if a.flags.JSON {
		return a.json(t)
	}
	if a.flags.Quiet {
		fmt.Fprintln(a.Out, t.Name)
		return nil
	}
	fmt.Fprintf(a.Out, "%s is ready after %s: %s of files, %s of memory, %.12s\n",
		t.Name, time.Since(start).Round(time.Second), size(t.RootfsBytes), size(t.SnapshotBytes), t.Digest)
	return nil
}

// progress shows the steps of a build: on a terminal the current one is
// rewritten in place, elsewhere each has a line at its start and its end.
type progress struct {
	*app
	open bool // a line is being rewritten
}

func (p *progress) event(e template.Event) {
	if p.flags.Quiet {
		return
	}
	head := fmt.Sprintf("[%d/%d] %s", e.N, e.Of, e.Step)
	if e.Of == 0 {
		head = ""
	}
	switch e.Kind {
	case template.EventStart:
		p.line(head, e.Text, false)
	case template.EventProgress:
		text := e.Text
		if e.Bytes > 0 {
			text = size(e.Bytes) + " " + text
		}
		if p.ErrTerm {
			p.line(fmt.Sprintf("%s %s", head, span(e.Elapsed)), text, false)
		}
	case template.EventDone:
		p.line(head, fmt.Sprintf("done in %s", e.Elapsed.Round(100*time.Millisecond)), true)
	case template.EventSkip:
		p.line(head, "skipped: "+e.Text, true)
	case template.EventFail:
		p.line(head, "failed: "+e.Text, true)
	}
}

func (p *progress) line(head, text string, last bool) {
	line := plain(strings.TrimSpace(head + "  " + text))
	if !p.ErrTerm {
		fmt.Fprintln(p.Err, line)
		return
	}
	if r := []rune(line); !last && len(r) > 100 {
		line = string(r[:99]) + "…"
	}
	fmt.Fprintf(p.Err, "\r\x1b[K%s", line)
	p.open = true
	if last {
		p.end()
	}
}

// end finishes the line that is being rewritten.
func (p *progress) end() {
	if p.open {
		fmt.Fprintln(p.Err)
		p.open = false
	}
}
