package pandastack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/pandastack/pandastack/api"
)

// AnalystOptions say with which model an analyst works, and in what sandbox.
type AnalystOptions struct {
	// AgentOptions are those of each question's run. Task, Data, Follows,
	// SandboxID, Template and what else is a new sandbox's are not for an analyst.
	// CellSeconds of its Limits is 120 when it is 0.
	AgentOptions

	// Sandbox is that which NewAnalyst makes: Template is "code-interpreter" when
	// it is "", TTLSeconds 3600 when it is nil. Its time begins anew with each question.
	Sandbox CreateOptions
}

// Analyst answers questions about files of data: a model writes Python, which
// runs in one sandbox, where the files were loaded once. Later questions find the
// tables and variables of earlier ones.
type Analyst struct {
	// Sandbox has the files in /workspace.
	Sandbox *Sandbox
	// Tables are what was made of the files; none before the first question.
	Tables []api.AgentTable

	client *Client
	o      AgentOptions
	data   []string
	ttl    time.Duration
	last   *AgentRun // that the next question follows
	all    *AgentRun // the last one that there was
}

// Answer is what came of a question.
type Answer struct {
	Text    string   // the model's words; "" without an answer: see Run.Info.Reason
	Figures [][]byte // pictures that its cells drew, PNG or JPEG, in order
	Run     *AgentRun
}

const analystCellSeconds = 120 // a table on disk takes its time

// NewAnalyst makes a sandbox and sends files of this machine into it, of any
// size. Close ends the sandbox.
func (c *Client) NewAnalyst(ctx context.Context, files []string, o AnalystOptions) (*Analyst, error) {
	if o.Sandbox.Template == "" && o.Sandbox.FromSnapshot == "" {
		o.Sandbox.Template = "code-interpreter"
	}
	if o.Sandbox.TTLSeconds == nil {
		hour := 3600
		o.Sandbox.TTLSeconds = &hour
	}
	sb, err := c.Create(ctx, o.Sandbox)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = filepath.Base(file)
		if err := sendFile(ctx, sb, file, "/workspace/"+names[i]); err != nil {
			_ = sb.Kill(context.WithoutCancel(ctx)) // the first error is the one to tell; its time ends it, too
			return nil, err
		}
	}
	a := sb.Analyst(names, o.AgentOptions)
	a.ttl = time.Duration(*o.Sandbox.TTLSeconds) * time.Second
	return a, nil
}

func sendFile(ctx context.Context, sb *Sandbox, from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = sb.WriteFrom(ctx, to, f, WriteOptions{})
	return err
}

// Analyst answers questions about files that are in the sandbox, absolute or
// below /workspace. Nothing is asked or made.
func (s *Sandbox) Analyst(files []string, o AgentOptions) *Analyst {
	if o.Limits.CellSeconds == 0 {
		o.Limits.CellSeconds = analystCellSeconds
	}
	return &Analyst{Sandbox: s, client: s.client, o: o, data: files}
}

// Ask asks a question and waits for its end; heard, if it is not nil, gets each
// event. A run without an answer is no error: see Run.Info.Reason.
func (a *Analyst) Ask(ctx context.Context, question string, heard func(api.AgentEvent)) (*Answer, error) {
	run, err := a.Start(ctx, question)
	if err != nil {
		return nil, err
	}
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if heard != nil {
			heard(e)
		}
	}
	return a.Answer(ctx, run)
}

// Start asks a question and does not wait. Give the run to Answer when it has
// ended, before the next question.
func (a *Analyst) Start(ctx context.Context, question string) (*AgentRun, error) {
	if a.ttl > 0 {
		if _, err := a.Sandbox.SetTTL(ctx, a.ttl); err != nil {
			return nil, err
		}
	}
	o := a.o
	o.Task = question
	if a.last != nil {
		o.Follows = a.last.ID
	} else {
		o.SandboxID, o.Data = a.Sandbox.ID, a.data
	}
	return a.client.StartAgent(ctx, o)
}

// Answer gives what came of a run that Start began and that has ended.
func (a *Analyst) Answer(ctx context.Context, run *AgentRun) (*Answer, error) {
	events, err := run.Transcript(ctx)
	if err != nil {
		return nil, err
	}
	out := &Answer{Run: run}
	if run.Info.Answer != nil {
		out.Text = *run.Info.Answer
	}
	a.all = run
	loaded := a.last != nil
	for _, e := range events {
		switch {
		case e.Type == api.AgentEventLoaded && len(e.Loaded.Failed) == 0:
			a.Tables, loaded = e.Loaded.Tables, true
		case e.Type == api.AgentEventOutcome:
			for _, f := range e.Outcome.Figures {
				data, err := run.Figure(ctx, f.File)
				if err != nil {
					return nil, err
				}
				out.Figures = append(out.Figures, data)
			}
		}
	}
	if loaded && run.Info.ContextID != "" {
		a.last = run
	}
	return out, nil
}

// Notebook gives all questions so far as a Jupyter notebook, which does it again
// beside the files.
func (a *Analyst) Notebook(ctx context.Context) ([]byte, error) {
	if a.all == nil {
		return nil, errNotAsked
	}
	return a.all.Notebook(ctx)
}

// Report gives all questions so far as one page of HTML that needs nothing
// beside it.
func (a *Analyst) Report(ctx context.Context) ([]byte, error) {
	if a.all == nil {
		return nil, errNotAsked
	}
	return a.all.Report(ctx)
}

// Close ends the sandbox. The notebook and the report are still there.
func (a *Analyst) Close(ctx context.Context) error { return a.Sandbox.Kill(ctx) }

var errNotAsked = errors.New("pandastack: the analyst was asked nothing yet")

// ResumeAnalyst goes on after a run of an analyst, whose sandbox must still be
// there.
func (c *Client) ResumeAnalyst(ctx context.Context, runID string, o AgentOptions) (*Analyst, error) {
	run, err := c.GetAgent(ctx, runID)
	if err != nil {
		return nil, err
	}
	sb, err := c.Get(ctx, run.Info.SandboxID)
	if err != nil {
		return nil, err
	}
	a := sb.Analyst(nil, o)
	a.last, a.all = run, run
	return a, nil
}
