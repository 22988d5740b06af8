package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type agentRunCmd struct {
	Task         string   `arg:"" help:"What is to be done."`
	Model        string   `help:"Model, as PROVIDER:NAME; the server's own when left out." placeholder:"PROVIDER:NAME"`
	BaseURL      string   `name:"base-url" help:"Where the model is, when elsewhere than the server has it. Needs an admin key." placeholder:"URL"`
	ModelKey     string   `name:"model-key" help:"Key for the model's provider; the server does not store it." env:"PANDASTACK_MODEL_KEY" placeholder:"KEY"`
	Dialect      string   `help:"How the model writes code: in fences (text), or as calls (tool)." enum:"text,tool" default:"text"`
	File         []string `help:"Files that are put into /workspace." placeholder:"FILE"`
	Instructions string   `help:"Added to the system prompt." placeholder:"TEXT"`
	Sandbox      string   `help:"Work in this sandbox, which is kept." placeholder:"ID"`
	Template     string   `help:"Template of a new sandbox, as all down to --secret." placeholder:"NAME"`
	From         string   `name:"from-snapshot" help:"Snapshot to make it from, instead of a template." placeholder:"ID"`
	newLimits    `embed:""`
	Env          map[string]string `help:"Environment of its code, as NAME=VALUE." placeholder:"NAME=VALUE"`
	opening      `embed:""`
	Keep         string            `help:"What becomes of a new sandbox at the end." enum:"kill,keep,snapshot" default:"kill"`
	NoVision     bool              `name:"no-vision" help:"The model cannot see: figures are told in words."`
	MaxTurns     int               `name:"max-turns" help:"Replies of the model." placeholder:"N"`
	MaxCells     int               `name:"max-cells" help:"Cells." placeholder:"N"`
	MaxTime      time.Duration     `name:"max-time" help:"Wall clock." placeholder:"15m"`
	MaxTokens    int               `name:"max-tokens" help:"Tokens of all requests and replies." placeholder:"N"`
	MaxCost      float64           `name:"max-cost" help:"US dollars; needs --price." placeholder:"USD"`
	Price        string            `help:"US dollars for a million tokens of input and of output." placeholder:"IN,OUT"`
	CellTime     time.Duration     `name:"cell-time" help:"Deadline of each cell." placeholder:"15s"`
	Tools        string            `help:"File with tools in JSON that its code can call: http, mcp, use and policy, as the API has them." placeholder:"FILE" type:"existingfile"`
	Approve      string            `help:"Which calls of tools you are asked about: never, risky, always." enum:"never,risky,always," default:""`
	Metadata     map[string]string `help:"Labels of your own, as key=value." placeholder:"KEY=VALUE"`
}

func (c *agentRunCmd) options() (pandastack.AgentOptions, error) {
	o := pandastack.AgentOptions{ModelKey: c.ModelKey, AgentRequest: api.AgentRequest{
		Task: c.Task, Model: c.Model, BaseURL: c.BaseURL, Dialect: c.Dialect, Instructions: c.Instructions, SandboxID: c.Sandbox, Template: c.Template, FromSnapshot: c.From,
		CPU: c.CPU, MemoryMB: c.Memory, DiskMB: c.Disk, PIDs: c.PIDs, Envs: c.Env, Network: c.network(), Secrets: c.secrets(), Metadata: c.Metadata,
		Limits: api.AgentLimits{
			MaxTurns: c.MaxTurns, MaxCells: c.MaxCells, MaxSeconds: c.MaxTime.Seconds(), MaxTokens: c.MaxTokens, MaxCostUSD: c.MaxCost, CellSeconds: c.CellTime.Seconds(),
		},
	}}
	tools, err := toolsIn(c.Tools)
	if err != nil {
		return o, err
	}
	if c.Approve != "" {
		if tools == nil {
			return o, usageError{fmt.Errorf("--approve is about --tools")}
		}
		tools.Policy.Approve = c.Approve
	}
	o.Tools = tools
	if c.Sandbox == "" {
		o.Keep = c.Keep
	} else if c.Keep != "kill" {
		return o, usageError{fmt.Errorf("--keep is for a new sandbox; that of --sandbox is kept")}
	}
	if c.NoVision {
		o.Vision = new(bool)
	}
	if c.Price != "" {
		in, out, ok := strings.Cut(c.Price, ",")
		input, err1 := strconv.ParseFloat(in, 64)
		output, err2 := strconv.ParseFloat(out, 64)
		if !ok || err1 != nil || err2 != nil {
			return o, usageError{fmt.Errorf("--price must be IN,OUT in dollars a million tokens, as 2.5,10")}
		}
		o.Price = &api.AgentPrice{Input: input, Output: output}
	}
	files, err := c.files()
	o.Files = files
	return o, err
}

func (c *agentRunCmd) files() (files []api.AgentFile, err error) {
	for _, name := range c.File {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, usageError{err}
		}
		files = append(files, api.AgentFile{Path: filepath.Base(name), Content: raw})
	}
	return files, nil
}

func (c *agentRunCmd) Run(a *app) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	run, err := a.agent(o, nil)
	if err != nil {
		return err
	}
	return outcome(a, run.Info, run.Info)
}

// agent starts a run and shows it until it has ended; heard gets each event, if
// it is not nil.
func (a *app) agent(o pandastack.AgentOptions, heard func(api.AgentEvent)) (*pandastack.AgentRun, error) {
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	run, err := begin(a, func(ctx context.Context) (*pandastack.AgentRun, error) { return client.StartAgent(ctx, o) },
		func(ctx context.Context, r *pandastack.AgentRun) error { return r.Cancel(ctx) })
	if err != nil {
		return nil, err
	}
	if err := follow(a, run, heard); err != nil {
		return nil, err
	}
	return run, nil
}

// follow shows a run until it has ended. Interrupted, it ends the run: nobody
// waits for the answer any more.
func follow(a *app, run *pandastack.AgentRun, heard func(api.AgentEvent)) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	a.say("%s", run.ID)
	p := agentProgress{a: a}
	for e, err := range run.Events(a.ctx, 0) {
		if a.ctx.Err() != nil {
			return errors.Join(a.ctx.Err(), a.undo(run.Cancel))
		}
		if err != nil {
			return err
		}
		p.show(e)
		if e.Type == api.AgentEventApproval && e.Approval.Status == api.ApprovalPending {
			p.ask(client, *e.Approval)
		}
		if heard != nil {
			heard(e)
		}
	}
	return nil
}

// outcome prints the answer, or why there is none; shown is what programs get.
func outcome(a *app, run api.AgentRun, shown any) error {
	if a.flags.JSON {
		if err := a.json(shown); err != nil {
			return err
		}
	} else if run.Answer != nil {
		fmt.Fprintln(a.Out, text(*run.Answer))
	}
	cost := ""
	if run.Usage.CostUSD > 0 {
		cost = fmt.Sprintf(", $%.4f", run.Usage.CostUSD)
	}
	a.say("%s after %d turns, %d cells, %d tokens%s", plain(run.Reason), run.Turns, run.Cells, run.Usage.InputTokens+run.Usage.OutputTokens, cost)
	if run.SnapshotID != "" {
		a.say("snapshot %s", run.SnapshotID)
	}
	if run.Error != "" {
		a.say("%s", text(run.Error))
	}
	return exitOfRun(run)
}

// exitOfRun is how a command ends whose run ended.
func exitOfRun(run api.AgentRun) error {
	switch run.Reason {
	case api.AgentAnswered:
		return nil
	case api.AgentMaxSeconds:
		return failed(exitTimeout)
	}
	return failed(exitFailed)
}

// agentProgress shows a run while it happens, on standard error: the model's words
// and the cells' output as they come to a person, a line a step to programs.
type agentProgress struct {
	a       *app
	partial bool // a line is not finished
	shown   bool // of this reply, in pieces
}

func (p *agentProgress) show(e api.AgentEvent) {
	a := p.a
	if a.flags.Quiet || a.flags.JSON {
		return
	}
	live := a.ErrTerm
	switch e.Type {
	case api.AgentEventSandbox:
		p.say("sandbox %s", e.SandboxID)
	case api.AgentEventAsked:
		p.shown = false
		p.say("— turn %d: %d messages, about %d tokens", e.Turn, e.Asked.Messages, e.Asked.Tokens)
	case api.AgentEventDelta:
		if live {
			p.shown = true
			p.piece(e.Text)
		}
	case api.AgentEventAgain:
		p.say("the reply broke off and is asked for again: %s", plain(e.Note))
	case api.AgentEventReply:
		if !p.shown && strings.TrimSpace(e.Reply.Text) != "" {
			p.say("%s", text(strings.TrimSpace(e.Reply.Text)))
		}
	case api.AgentEventCell:
		p.say("▸ cell %d of %d", e.Cell.Index, e.Cell.Of)
		if e.Cell.CallID != "" { // not in the text of the reply
			p.say("%s", text(e.Cell.Code))
		}
	case api.AgentEventOutput:
		if live {
			p.piece(e.Text)
		}
	case api.AgentEventOutcome:
		if live {
			p.say("◂ %s in %.2f s", plain(e.Outcome.End), e.Outcome.DurationMS/1000)
			if e.Outcome.ErrorName != "" {
				p.say("  %s: %s", plain(e.Outcome.ErrorName), clip(plain(e.Outcome.ErrorValue), 200))
			}
			break
		}
		p.say("%s", text(e.Outcome.Text))
	case api.AgentEventRewound:
		p.say("set back to before turn %d: %s", e.Rewound.ToTurn, plain(e.Rewound.Why))
	case api.AgentEventForked:
		p.say("%s", apart(e.Forked))
	case api.AgentEventResumed:
		p.say("%s", plain(e.Note))
	case api.AgentEventApproval:
		if e.Approval.Status != api.ApprovalPending {
			p.say("%s %s", e.Approval.Status, plain(e.Approval.Tool))
		}
	case api.AgentEventEnded:
		p.say("")
	}
}

// ask has whoever sits at the terminal decide about a call, and tells others how
// to. The run waits by itself: it may be decided elsewhere meanwhile.
func (p *agentProgress) ask(client *pandastack.Client, w api.Approval) {
	a := p.a
	const most = 1000
	arguments := plain(string(w.Arguments))
	p.say("%s(%s) waits for approval: %s", plain(w.Tool), clip(arguments, most), plain(w.Rule))
	if len([]rune(arguments)) > most {
		p.say("  there is more of its arguments, %s in all: pandastack approval ls --json --agent %s", size(int64(len(w.Arguments))), w.AgentID)
	}
	for _, advice := range w.Advice {
		p.say("  line %d of the cell: %s: %s", advice.Line, plain(advice.Kind), plain(advice.What))
	}
	if !a.InTerm || !a.ErrTerm || a.flags.JSON || a.flags.Quiet {
		a.say("pandastack approval approve %s, or deny", w.ID)
		return
	}
	go func() {
		fmt.Fprint(a.Err, "let it? [y/N] ")
		var word string
		_, _ = fmt.Fscanln(a.In, &word) // no word is a no
		d := api.Decision{Approve: strings.EqualFold(word, "y") || strings.EqualFold(word, "yes")}
		if _, err := client.Decide(a.ctx, w.ID, d); err != nil && a.ctx.Err() == nil {
			a.say("%v", err)
		}
	}()
}

func (p *agentProgress) piece(s string) {
	s = text(s)
	if s == "" {
		return
	}
	fmt.Fprint(p.a.Err, s)
	p.partial = !strings.HasSuffix(s, "\n")
}

func (p *agentProgress) say(format string, args ...any) {
	if p.partial {
		fmt.Fprintln(p.a.Err)
		p.partial = false
	}
	if format != "" {
		fmt.Fprintf(p.a.Err, format+"\n", args...)
	}
}

// text is plain for several lines: what comes from a model or a sandbox does
// not drive the terminal.
func text(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = plain(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

// clip shortens words for one line.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func count(n int) string { return strconv.Itoa(n) }
