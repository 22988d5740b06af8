package cli

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type agentShowCmd struct {
	ID     string `arg:"" help:"Id of the run."`
	Format string `help:"text, markdown, html (one page, pictures and all), notebook (for Jupyter), or jsonl: the transcript itself." enum:"text,markdown,html,notebook,jsonl" default:"text"`
	HTML   bool   `name:"html" help:"The same as --format html."`
}

func (c *agentShowCmd) Run(a *app) error {
	if c.HTML {
		c.Format = "html"
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	run, err := client.GetAgent(a.ctx, c.ID)
	if err != nil {
		return err
	}
	if a.flags.JSON && c.Format == "text" {
		return a.json(run.Info)
	}
	events, err := run.Transcript(a.ctx)
	if err != nil {
		return err
	}
	switch c.Format {
	case "jsonl":
		enc := json.NewEncoder(a.Out)
		enc.SetEscapeHTML(false)
		for _, e := range events {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return nil
	case "html":
		return c.page(a, run, events)
	case "notebook":
		return c.notebook(a, run, events)
	}
	return c.read(a, run.Info, events, c.Format == "markdown")
}

// read writes a run for people.
func (c *agentShowCmd) read(a *app, run api.AgentRun, events []api.AgentEvent, markdown bool) error {
	var b strings.Builder
	head := func(format string, args ...any) {
		words := fmt.Sprintf(format, args...)
		if markdown {
			fmt.Fprintf(&b, "\n## %s\n\n", words)
		} else {
			fmt.Fprintf(&b, "\n=== %s\n", words)
		}
	}
	block := func(language, body string) {
		if markdown {
			fence := "```"
			for strings.Contains(body, fence) {
				fence += "`"
			}
			fmt.Fprintf(&b, "%s%s\n%s\n%s\n\n", fence, language, strings.TrimRight(body, "\n"), fence)
		} else {
			fmt.Fprintf(&b, "%s\n", strings.TrimRight(body, "\n"))
		}
	}
	if markdown {
		fmt.Fprintf(&b, "# %s\n", run.ID)
	} else {
		fmt.Fprintf(&b, "%s\n", run.ID)
	}
	for _, e := range events {
		switch e.Type {
		case api.AgentEventPrompt:
			head("system prompt %s", run.Prompt)
			block("text", e.Text)
		case api.AgentEventReply:
			head("turn %d: reply (%d tokens in, %d out)", e.Turn, e.Reply.Usage.InputTokens, e.Reply.Usage.OutputTokens)
			if t := strings.TrimSpace(e.Reply.Text); t != "" {
				b.WriteString(t + "\n\n")
			}
		case api.AgentEventFound:
			for _, d := range e.Found.Discarded {
				fmt.Fprintf(&b, "(lines %d to %d are not acted on: %s)\n\n", d.Start, d.End, d.Why)
			}
		case api.AgentEventCell:
			if e.Cell.CallID != "" {
				block("python", e.Cell.Code)
			}
		case api.AgentEventOutcome:
			for _, v := range e.Outcome.Advice {
				fmt.Fprintf(&b, "(cell %d, line %d: %s, %s)\n\n", e.Outcome.Index, v.Line, v.Kind, v.What)
			}
			if e.Outcome.Answer != nil {
				head("turn %d: the cell gave the answer", e.Turn)
			}
		case api.AgentEventMessage, api.AgentEventRewound, api.AgentEventForked:
			if e.Forked != nil {
				head("%s", apart(e.Forked))
			}
			for _, m := range e.Messages {
				head("told, %s", m.Role)
				block("text", m.Text)
			}
		case api.AgentEventResumed:
			head("%s", e.Note)
		}
	}
	head("%s", ending(run))
	if run.Answer != nil {
		b.WriteString(*run.Answer + "\n")
	}
	if run.Error != "" {
		b.WriteString(run.Error + "\n")
	}
	_, err := fmt.Fprint(a.Out, text(b.String()))
	return err
}

func ending(run api.AgentRun) string {
	if run.Status != api.AgentEnded {
		return "it is running"
	}
	return "ended: " + run.Reason
}

type notebookCell struct {
	Type     string           `json:"cell_type"`
	ID       string           `json:"id"`
	Metadata struct{}         `json:"metadata"`
	Source   string           `json:"source"`
	Count    *int             `json:"execution_count,omitempty"`
	Outputs  *[]notebookValue `json:"outputs,omitempty"`
}

type notebookValue struct {
	Type     string            `json:"output_type"`
	Name     string            `json:"name,omitempty"`
	Text     string            `json:"text,omitempty"`
	Data     map[string]string `json:"data,omitempty"`
	Metadata *struct{}         `json:"metadata,omitempty"`
}

// notebook writes a run as a Jupyter notebook: words as Markdown, cells with
// what the model was shown of them.
func (c *agentShowCmd) notebook(a *app, run *pandastack.AgentRun, events []api.AgentEvent) error {
	cells := []notebookCell{}
	words := func(source string) {
		if strings.TrimSpace(source) != "" {
			cells = append(cells, notebookCell{Type: "markdown", Source: source})
		}
	}
	words("# " + run.Info.Task)
	n := 0
	for _, e := range events {
		switch e.Type {
		case api.AgentEventReply:
			words(e.Reply.Text)
		case api.AgentEventCell:
			n++
			count := n
			cells = append(cells, notebookCell{Type: "code", Source: e.Cell.Code, Count: &count, Outputs: &[]notebookValue{}})
		case api.AgentEventOutcome:
			if len(cells) == 0 || cells[len(cells)-1].Type != "code" {
				continue
			}
			outputs := cells[len(cells)-1].Outputs
			*outputs = append(*outputs, notebookValue{Type: "stream", Name: "stdout", Text: e.Outcome.Text + "\n"})
			for _, f := range e.Outcome.Figures {
				data, err := run.Figure(a.ctx, f.File)
				if err != nil {
					return err
				}
				*outputs = append(*outputs, notebookValue{Type: "display_data", Data: map[string]string{f.MIME: base64.StdEncoding.EncodeToString(data)}, Metadata: &struct{}{}})
			}
		}
	}
	if run.Info.Answer != nil {
		words("**Answer:** " + *run.Info.Answer)
	}
	for i := range cells {
		cells[i].ID = fmt.Sprintf("%s-%d", run.ID, i+1)
	}
	return a.json(map[string]any{
		"cells": cells, "nbformat": 4, "nbformat_minor": 5,
		"metadata": map[string]any{"kernelspec": map[string]string{"name": "python3", "display_name": "Python 3", "language": "python"}},
	})
}
