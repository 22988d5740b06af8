package agent

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/pandastack/pandastack/api"
)

//go:embed report.html
var reportSource string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"thousands": thousands}).Parse(reportSource))

type report struct {
	Title     string
	Data      []api.AgentTable
	Questions []reportQuestion
	Model     string
	When      string
}

type reportQuestion struct {
	Run     api.AgentRun
	Answer  string
	Figures []template.URL
	Steps   []reportStep
}

type reportStep struct {
	Code  string
	Parts []reportPart
	Bad   bool
}

type reportPart struct {
	Text   string
	Table  template.HTML
	Figure template.URL
}

// Report gives a run, and those that it follows, as one page for people:
// questions, answers, figures, and folded below each how it was found. It needs
// nothing beside it, and no script.
func (s *Service) Report(_ context.Context, owner, id string) ([]byte, error) {
	chain, err := s.chain(owner, id)
	if err != nil {
		return nil, err
	}
	last := chain[len(chain)-1].run
	p := report{Title: chain[0].run.Task, Model: last.Model, When: last.CreatedAt.Format("2 January 2006")}
	for _, f := range chain {
		if f.loaded != nil {
			p.Data = append(p.Data, f.loaded.Tables...)
		}
		q := reportQuestion{Run: f.run}
		if f.run.Answer != nil {
			q.Answer = *f.run.Answer
		}
		for _, c := range f.cells {
			step, err := s.reportStep(f.run.ID, c)
			if err != nil {
				return nil, err
			}
			for _, part := range step.Parts {
				if part.Figure != "" && !step.Bad {
					q.Figures = append(q.Figures, part.Figure)
				}
			}
			q.Steps = append(q.Steps, step)
		}
		p.Questions = append(p.Questions, q)
	}
	var b bytes.Buffer
	if err := reportTemplate.Execute(&b, p); err != nil {
		return nil, fmt.Errorf("writing a report: %w", err)
	}
	return b.Bytes(), nil
}

func (s *Service) reportStep(id string, c ranCell) (reportStep, error) {
	step := reportStep{Code: c.cell.Code, Bad: c.outcome.End != string(api.EndOK)}
	list, err := s.notebookOutputs(id, c)
	if err != nil {
		return step, err
	}
	for _, o := range list {
		switch {
		case o.Type == "error":
			step.Parts = append(step.Parts, reportPart{Text: strings.Join(o.Traceback, "\n")})
		case o.Text != "":
			step.Parts = append(step.Parts, reportPart{Text: o.Text})
		case o.Data["image/png"] != "" || o.Data["image/jpeg"] != "":
			for mime, data := range o.Data {
				if raw, err := base64.StdEncoding.DecodeString(data); err == nil && len(raw) > 0 && strings.HasPrefix(mime, "image/") {
					step.Parts = append(step.Parts, reportPart{Figure: template.URL("data:" + mime + ";base64," + data)}) //nolint:gosec // of a picture that the server decoded
				}
			}
		default:
			if table := plainTable(o.Data["text/html"]); table != "" {
				step.Parts = append(step.Parts, reportPart{Table: table})
			} else if text := o.Data["text/plain"]; text != "" {
				step.Parts = append(step.Parts, reportPart{Text: text})
			}
		}
	}
	return step, nil
}

// plainTable is the first table of some HTML with nothing in it but cells and
// their text: what comes from a sandbox is not put into a page as it is.
func plainTable(source string) template.HTML {
	if !strings.Contains(source, "<table") {
		return ""
	}
	var b strings.Builder
	z, inside := html.NewTokenizer(strings.NewReader(source)), false
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			return ""
		}
		t := z.Token()
		switch {
		case t.DataAtom == atom.Table && kind == html.StartTagToken:
			if inside {
				return "" // one in another is nothing that we know to be a frame's
			}
			inside = true
			b.WriteString("<table>")
		case !inside:
		case t.DataAtom == atom.Table && kind == html.EndTagToken:
			b.WriteString("</table>")
			return template.HTML(b.String()) //nolint:gosec // tags of our own around escaped text
		case kind == html.TextToken:
			b.WriteString(template.HTMLEscapeString(t.Data))
		case t.DataAtom == atom.Thead || t.DataAtom == atom.Tbody || t.DataAtom == atom.Tr || t.DataAtom == atom.Th || t.DataAtom == atom.Td:
			if kind == html.EndTagToken {
				b.WriteString("</" + t.DataAtom.String() + ">")
				continue
			}
			b.WriteString("<" + t.DataAtom.String())
			for _, a := range t.Attr {
				if (a.Key == "colspan" || a.Key == "rowspan") && len(a.Val) < 4 && strings.Trim(a.Val, "0123456789") == "" {
					b.WriteString(" " + a.Key + `="` + a.Val + `"`)
				}
			}
			b.WriteString(">")
		}
	}
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
