package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type analystCmd struct {
	Words     []string      `arg:"" name:"file" help:"Files with the data, of any size, and as the last word the question, in quotes."`
	Then      []string      `help:"A question to ask after it, of the same data; may be repeated." placeholder:"QUESTION" sep:"none"`
	Follow    string        `help:"Go on from this run, whose sandbox was kept, and name no files." placeholder:"RUN"`
	Report    string        `help:"Write the answers as one page of HTML." placeholder:"OUT.html"`
	Notebook  string        `help:"Write what was done as a Jupyter notebook." placeholder:"OUT.ipynb"`
	Charts    string        `help:"Folder that charts are saved to." placeholder:"DIR"`
	Model     string        `help:"Model, as PROVIDER:NAME; the server's own when left out." placeholder:"PROVIDER:NAME"`
	BaseURL   string        `name:"base-url" help:"Where the model is, when elsewhere than the server has it. Needs an admin key." placeholder:"URL"`
	ModelKey  string        `name:"model-key" help:"Key for the model's provider; the server does not store it." env:"PANDASTACK_MODEL_KEY" placeholder:"KEY"`
	Dialect   string        `help:"How the model writes code: in fences (text), or as calls (tool)." enum:"text,tool" default:"text"`
	NoVision  bool          `name:"no-vision" help:"The model cannot see: figures are told in words."`
	MaxTime   time.Duration `name:"max-time" help:"Wall clock of a question, loading the files included." default:"30m" placeholder:"30m"`
	CellTime  time.Duration `name:"cell-time" help:"Deadline of each cell." default:"2m" placeholder:"2m"`
	Template  string        `default:"code-interpreter" help:"Template of the sandbox."`
	newLimits `embed:""`
	Keep      bool `help:"Leave the sandbox running, for --follow, and say its id."`
}

const (
	analystFolder = "/workspace"
	analystMargin = 5 * time.Minute  // beyond the run, for the files and the charts
	analystWait   = 30 * time.Minute // for another question, at a terminal or with --keep
)

// analysis is the answer to programs: the last run, and what was asked before.
type analysis struct {
	api.AgentRun
	Charts  []string         `json:"charts"` // files that were saved
	Tables  []api.AgentTable `json:"tables"`
	Earlier []api.AgentRun   `json:"earlier"` // of the questions before the last, the first first
}

// Run has a model look into the files, in a sandbox of their own.
func (c *analystCmd) Run(a *app) (err error) {
	names, question, err := c.check()
	if err != nil {
		return err
	}
	analyst, end, err := c.open(a, names)
	if err != nil {
		return err
	}
	if end != nil {
		defer func() { err = errors.Join(err, a.undo(end)) }()
	}
	out := analysis{Charts: []string{}, Earlier: []api.AgentRun{}}
	questions := append([]string{question}, c.Then...)
	for lines := bufio.NewScanner(a.In); len(questions) > 0; questions = questions[1:] {
		if err := c.ask(a, analyst, questions[0], &out); err != nil {
			return err
		}
		if len(questions) == 1 && a.InTerm && a.ErrTerm && !a.flags.JSON && !a.flags.Quiet {
			fmt.Fprint(a.Err, "\nanother question, or nothing to end: ")
			if lines.Scan() && strings.TrimSpace(lines.Text()) != "" {
				questions = append(questions, strings.TrimSpace(lines.Text()))
			}
		}
	}
	if err := c.write(a, analyst); err != nil {
		return err
	}
	if c.Keep || c.Follow != "" {
		a.say("pandastack analyst --follow %s \"QUESTION\" goes on, while sandbox %s is there", out.ID, out.SandboxID)
	}
	if c.Charts == "" && len(out.Charts) > 0 {
		a.say("%d chart(s) were drawn; --charts DIR saves them, --report FILE puts them on a page", len(out.Charts))
		out.Charts = []string{}
	}
	if a.flags.JSON {
		if err := a.json(out); err != nil {
			return err
		}
	}
	return exitOfRun(out.AgentRun)
}

// check finds what cannot work before a sandbox is made.
func (c *analystCmd) check() (files []string, question string, err error) {
	files, question = c.Words[:len(c.Words)-1], c.Words[len(c.Words)-1]
	switch {
	case len(files) == 0 && c.Follow == "":
		return nil, "", usageError{errors.New("give files, and then the question in quotes")}
	case len(files) > 0 && c.Follow != "":
		return nil, "", usageError{errors.New("a run that is followed has its files: name none with --follow")}
	}
	base := map[string]string{}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil {
			return nil, "", usageError{err}
		} else if info.IsDir() {
			return nil, "", usageError{fmt.Errorf("%s is a folder: name the files in it", f)}
		}
		if other := base[filepath.Base(f)]; other != "" {
			return nil, "", usageError{fmt.Errorf("%s and %s have the same name", other, f)}
		}
		base[filepath.Base(f)] = f
	}
	for _, out := range []string{c.Report, c.Notebook} {
		if out == "" {
			continue
		}
		if info, err := os.Stat(filepath.Dir(out)); err != nil {
			return nil, "", usageError{err}
		} else if !info.IsDir() {
			return nil, "", usageError{fmt.Errorf("%s is no folder", filepath.Dir(out))}
		}
	}
	return files, question, nil
}

// open makes the sandbox and sends the files, or finds the run to follow. end is
// what is to be done in the end, nil when nothing.
func (c *analystCmd) open(a *app, files []string) (analyst *pandastack.Analyst, end func(context.Context) error, err error) {
	client, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	o := pandastack.AgentOptions{ModelKey: c.ModelKey, AgentRequest: api.AgentRequest{
		Model: c.Model, BaseURL: c.BaseURL, Dialect: c.Dialect, Limits: api.AgentLimits{MaxSeconds: c.MaxTime.Seconds(), CellSeconds: c.CellTime.Seconds()},
	}}
	if c.NoVision {
		o.Vision = new(bool)
	}
	if c.Follow != "" {
		analyst, err = client.ResumeAnalyst(a.ctx, c.Follow, o)
		return analyst, nil, err
	}
	ttl := int((c.MaxTime + analystMargin + analystWait).Seconds())
	sb, err := a.create(client, pandastack.CreateOptions{Template: c.Template, TTLSeconds: &ttl, CPU: c.CPU, MemoryMB: c.Memory, DiskMB: c.Disk, PIDs: c.PIDs})
	if err != nil {
		return nil, nil, err
	}
	if c.Keep {
		a.stays(sb, ttl)
	} else {
		end = sb.Kill
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
		if _, err := a.sendFile(sb, f, analystFolder+"/"+filepath.Base(f)); err != nil {
			if end != nil {
				err = errors.Join(err, a.undo(end))
			}
			return nil, nil, err
		}
	}
	return sb.Analyst(names, o), end, nil
}

// ask asks a question, prints the answer and saves the charts.
func (c *analystCmd) ask(a *app, analyst *pandastack.Analyst, question string, out *analysis) error {
	if out.ID != "" { // the sandbox's time begins anew
		if _, err := analyst.Sandbox.SetTTL(a.ctx, c.MaxTime+analystMargin+analystWait); err != nil {
			return err
		}
	}
	run, err := begin(a, func(ctx context.Context) (*pandastack.AgentRun, error) { return analyst.Start(ctx, question) },
		func(ctx context.Context, r *pandastack.AgentRun) error { return r.Cancel(ctx) })
	if err != nil {
		return err
	}
	if err := follow(a, run, func(e api.AgentEvent) { loaded(a, e) }); err != nil {
		return err
	}
	answer, err := analyst.Answer(a.ctx, run)
	if err != nil {
		return err
	}
	if out.ID != "" {
		out.Earlier = append(out.Earlier, out.AgentRun)
	}
	out.AgentRun, out.Tables = run.Info, append([]api.AgentTable{}, analyst.Tables...)
	for _, figure := range answer.Figures {
		file := filepath.Join(c.Charts, fmt.Sprintf("chart-%d.%s", len(out.Charts)+1, strings.TrimPrefix(http.DetectContentType(figure), "image/")))
		if c.Charts != "" {
			if err := os.MkdirAll(c.Charts, 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(file, figure, 0o666); err != nil {
				return err
			}
			a.say("chart: %s", file)
		}
		out.Charts = append(out.Charts, file)
	}
	if !a.flags.JSON {
		_ = outcome(a, run.Info, nil) // its exit code is that of the last question
	}
	return nil
}

// loaded says what was found in the files.
func loaded(a *app, e api.AgentEvent) {
	if e.Type == api.AgentEventOutput && e.Turn == 0 && !a.ErrTerm && !a.flags.JSON { // at a terminal it is shown already
		a.say("%s", text(strings.TrimRight(e.Text, "\n")))
	}
}

// write writes the notebook and the report.
func (c *analystCmd) write(a *app, analyst *pandastack.Analyst) error {
	for _, out := range []struct {
		file string
		make func(context.Context) ([]byte, error)
	}{{c.Notebook, analyst.Notebook}, {c.Report, analyst.Report}} {
		if out.file == "" {
			continue
		}
		raw, err := out.make(a.ctx)
		if err != nil {
			return err
		}
		if err := os.WriteFile(out.file, raw, 0o666); err != nil {
			return err
		}
		a.say("%s", out.file)
	}
	return nil
}
