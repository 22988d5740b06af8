package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type analystCmd struct {
	Words    []string      `arg:"" name:"file" help:"Files with the data, of any size, and as the last word the question, in quotes."`
	Model    string        `help:"Model, as PROVIDER:NAME; the server's own when left out." placeholder:"PROVIDER:NAME"`
	BaseURL  string        `name:"base-url" help:"Where the model is, when elsewhere than the server has it. Needs an admin key." placeholder:"URL"`
	ModelKey string        `name:"model-key" help:"Key for the model's provider; the server does not store it." env:"PANDASTACK_MODEL_KEY" placeholder:"KEY"`
	Dialect  string        `help:"How the model writes code: in fences (text), or as calls (tool)." enum:"text,tool" default:"text"`
	MaxTime  time.Duration `name:"max-time" help:"Wall clock." default:"15m" placeholder:"15m"`
	Charts   string        `help:"Folder that charts are saved to." placeholder:"DIR"`
	Template string        `default:"code-interpreter" help:"Template of the sandbox."`
	Keep     bool          `help:"Leave the sandbox running and say its id."`
}

const (
	analystFolder = "/workspace"
	analystMargin = 5 * time.Minute // beyond the run, for the files and the charts
)

const analystInstructions = `You are a data analyst. The user's question is about these files in ` + analystFolder + `: %s.
Look at their columns, types and missing values before you compute. State no number that you have not computed.
Where a chart says it better, draw it with matplotlib and end with plt.show(). Answer in one or two sentences.`

// analysis is the answer to programs.
type analysis struct {
	api.AgentRun
	Charts []string `json:"charts"` // files that were saved
}

// Run has a model look into the files, in a sandbox of their own.
func (c *analystCmd) Run(a *app) (err error) {
	files, question := c.Words[:len(c.Words)-1], c.Words[len(c.Words)-1]
	if len(files) == 0 {
		return usageError{errors.New("give files, and then the question in quotes")}
	}
	var names []string
	for _, f := range files {
		if info, err := os.Stat(f); err != nil {
			return usageError{err}
		} else if info.IsDir() {
			return usageError{fmt.Errorf("%s is a folder: name the files in it", f)}
		}
		names = append(names, filepath.Base(f))
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	ttl := int((c.MaxTime + analystMargin).Seconds())
	sb, err := a.create(client, pandastack.CreateOptions{Template: c.Template, TTLSeconds: &ttl})
	if err != nil {
		return err
	}
	if c.Keep {
		a.stays(sb, ttl)
	} else {
		defer func() { err = errors.Join(err, a.undo(sb.Kill)) }()
	}
	for i, f := range files {
		if _, err := a.sendFile(sb, f, analystFolder+"/"+names[i]); err != nil {
			return err
		}
	}
	var figures []string
	run, err := a.agent(pandastack.AgentOptions{ModelKey: c.ModelKey, AgentRequest: api.AgentRequest{
		Task: question, Model: c.Model, BaseURL: c.BaseURL, Dialect: c.Dialect, SandboxID: sb.ID,
		Instructions: fmt.Sprintf(analystInstructions, strings.Join(names, ", ")),
		Limits:       api.AgentLimits{MaxSeconds: c.MaxTime.Seconds()},
	}}, func(e api.AgentEvent) {
		if e.Outcome != nil {
			for _, f := range e.Outcome.Figures {
				figures = append(figures, f.File)
			}
		}
	})
	if err != nil {
		return err
	}
	saved, err := c.save(a, run, figures)
	if err != nil {
		return err
	}
	return outcome(a, run.Info, analysis{run.Info, saved})
}

// save writes the figures to the folder, or says that there are some.
func (c *analystCmd) save(a *app, run *pandastack.AgentRun, figures []string) ([]string, error) {
	saved := []string{}
	if c.Charts == "" {
		if len(figures) > 0 {
			a.say("%d chart(s) were drawn; --charts DIR saves them", len(figures))
		}
		return saved, nil
	}
	for i, name := range figures {
		raw, err := run.Figure(a.ctx, name)
		if err != nil {
			return saved, err
		}
		if err := os.MkdirAll(c.Charts, 0o777); err != nil {
			return saved, err
		}
		file := filepath.Join(c.Charts, fmt.Sprintf("chart-%d%s", i+1, filepath.Ext(name)))
		if err := os.WriteFile(file, raw, 0o666); err != nil {
			return saved, err
		}
		a.say("chart: %s", file)
		saved = append(saved, file)
	}
	return saved, nil
}
