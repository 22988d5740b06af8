package cli

import (
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

//go:embed agent_show.html
var pageSource string

var pageTemplate = template.Must(template.New("run").Parse(pageSource))

// runPage is a run as one page that needs nothing beside it.
type runPage struct {
	Run   api.AgentRun
	Title string
	Took  string
	Steps []pageStep
}

type pageStep struct {
	Head    string
	Folded  *foldedPart
	Parts   []pagePart
	Seen    string // what the model was shown
	Bad     bool
	Figures []template.URL
	Notes   []string
}

type pagePart struct {
	Code bool
	Text string
}

type foldedPart struct{ Title, Text string }

// page writes a run as HTML, pictures and all.
func (c *agentShowCmd) page(a *app, run *pandastack.AgentRun, events []api.AgentEvent) error {
	p := runPage{Run: run.Info, Title: clip(plain(run.Info.Task), 80)}
	if end := run.Info.EndedAt; end != nil {
		p.Took = end.Sub(run.Info.CreatedAt).Round(time.Second / 10).String()
	}
	add := func(s pageStep) { p.Steps = append(p.Steps, s) }
	var reply *api.AgentReply
	for _, e := range events {
		switch e.Type {
		case api.AgentEventPrompt:
			add(pageStep{Folded: &foldedPart{"System prompt", e.Text}})
		case api.AgentEventReply:
			reply = e.Reply
			s := pageStep{Head: fmt.Sprintf("TURN %d", e.Turn)}
			if reply.Reasoning != "" {
				s.Folded = &foldedPart{"Thinking", reply.Reasoning}
			}
			add(s)
		case api.AgentEventFound:
			s := pageStep{Parts: partsOf(reply.Text, e.Found)}
			for _, d := range e.Found.Discarded {
				s.Notes = append(s.Notes, fmt.Sprintf("Lines %d to %d were not acted on: %s.", d.Start, d.End, strings.ReplaceAll(d.Why, "_", " ")))
			}
			add(s)
		case api.AgentEventCell:
			if e.Cell.CallID != "" { // not in the text of the reply
				add(pageStep{Parts: []pagePart{{true, e.Cell.Code}}})
			}
		case api.AgentEventOutcome:
			s := pageStep{Seen: e.Outcome.Text, Bad: e.Outcome.End != string(api.EndOK)}
			for _, f := range e.Outcome.Figures {
				data, err := run.Figure(a.ctx, f.File)
				if err != nil {
					return err
				}
				s.Figures = append(s.Figures, template.URL("data:"+f.MIME+";base64,"+base64.StdEncoding.EncodeToString(data))) //nolint:gosec // of a picture that the server decoded
			}
			for _, v := range e.Outcome.Advice {
				s.Notes = append(s.Notes, fmt.Sprintf("Line %d: %s (%s).", v.Line, v.What, strings.ReplaceAll(v.Kind, "_", " ")))
			}
			add(s)
		case api.AgentEventMessage:
			if e.Note != "" && len(e.Messages) > 0 { // it is not about a cell
				add(pageStep{Seen: e.Messages[0].Text})
			}
		case api.AgentEventRewound:
			add(pageStep{Head: fmt.Sprintf("SET BACK TO BEFORE TURN %d", e.Rewound.ToTurn), Seen: e.Messages[0].Text, Bad: true})
		case api.AgentEventForked:
			s := pageStep{Head: "ANOTHER WAY", Notes: []string{apart(e.Forked)}}
			if len(e.Messages) > 0 {
				s.Seen = e.Messages[0].Text
			}
			add(s)
		case api.AgentEventResumed:
			add(pageStep{Notes: []string{e.Note}})
		}
	}
	return pageTemplate.Execute(a.Out, p)
}

// partsOf splits a reply into words and the code that was found in it.
func partsOf(reply string, found *api.AgentFound) (out []pagePart) {
	lines := strings.Split(reply, "\n")
	words := func(from, to int) {
		if text := strings.Trim(strings.Join(lines[from:to], "\n"), "\n "); text != "" {
			out = append(out, pagePart{false, text})
		}
	}
	at := 0
	for _, b := range found.Blocks {
		if b.Start <= at || b.End > len(lines) || b.End < b.Start { // a call, or nonsense
			continue
		}
		words(at, b.Start-1)
		code := lines[b.Start-1 : b.End]
		if b.Start < b.End { // without fences
			code = code[1:]
			if b.Closed {
				code = code[:len(code)-1]
			}
		}
		out = append(out, pagePart{true, strings.Join(code, "\n")})
		at = b.End
	}
	words(at, len(lines))
	return out
}
