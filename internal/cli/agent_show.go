package cli

import (
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/api"
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
		for _, e := range events {
			if err := a.encode(e, false); err != nil {
				return err
			}
		}
		return nil
	case "html":
		return c.page(a, run, events)
	case "notebook":
		raw, err := run.Notebook(a.ctx)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(raw)
		return err
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
