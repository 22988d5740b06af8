package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/pandastack/pandastack/api"
)

// notebookCell and notebookOutput are as in nbformat 4.5.
type notebookCell struct {
	Type     string            `json:"cell_type"`
	ID       string            `json:"id"`
	Metadata map[string]any    `json:"metadata"`
	Source   string            `json:"source"`
	Count    *int              `json:"execution_count,omitempty"`
	Outputs  *[]notebookOutput `json:"outputs,omitempty"`
}

type notebookOutput struct {
	Type      string            `json:"output_type"`
	Name      string            `json:"name,omitempty"`
	Text      string            `json:"text,omitempty"`
	Data      map[string]string `json:"data,omitempty"`
	Metadata  *struct{}         `json:"metadata,omitempty"`
	Count     *int              `json:"execution_count,omitempty"`
	ErrorName string            `json:"ename,omitempty"`
	Value     *string           `json:"evalue,omitempty"`
	Traceback []string          `json:"traceback,omitempty"`
}

// setupOfNotebook is what cells of a run have before the first of them. Tables
// are as wide and long in Jupyter as they were.
const setupOfNotebook = `import ` + preImported + `
try:
    import pandas
    pandas.set_option("display.max_rows", 20, "display.max_columns", 20, "display.width", 120)
except ImportError:
    pass`

const finalAnswerOfNotebook = `

def final_answer(answer=None):
    print(answer)`

// Notebook gives a run, and those that it follows, as a Jupyter notebook: the
// files' loading, the model's words, its cells with their output, the answers.
// It does all of it again when it is run beside the files.
func (s *Service) Notebook(_ context.Context, owner, id string) ([]byte, error) {
	chain, err := s.chain(owner, id)
	if err != nil {
		return nil, err
	}
	cells, n := []notebookCell{}, 0
	words := func(text string) {
		if strings.TrimSpace(text) != "" {
			cells = append(cells, notebookCell{Type: "markdown", Source: text, Metadata: map[string]any{}})
		}
	}
	code := func(source string, outputs []notebookOutput) {
		n++
		count := n
		if outputs == nil {
			outputs = []notebookOutput{}
		}
		for i := range outputs {
			if outputs[i].Type == "execute_result" {
				outputs[i].Count = &count
			}
		}
		cells = append(cells, notebookCell{Type: "code", Source: source, Count: &count, Outputs: &outputs, Metadata: map[string]any{}})
	}
	setup := setupOfNotebook
	if slices.ContainsFunc(chain, func(f followed) bool {
		return slices.ContainsFunc(f.cells, func(c ranCell) bool { return strings.Contains(c.cell.Code, "final_answer") })
	}) {
		setup += finalAnswerOfNotebook
	}
	code(setup, nil)
	for _, f := range chain {
		if f.loaded != nil {
			words(loadedWords(f.loaded))
			code(f.loaded.Code, nil)
		}
		words("# " + f.run.Task)
		said := s.saidIn(owner, f.run.ID)
		for _, c := range f.cells {
			if w, ok := said[c.turn]; ok {
				words(withoutPictures(w))
				delete(said, c.turn)
			}
			if c.outcome.End != string(api.EndOK) && c.outcome.End != string(api.EndError) {
				words(fmt.Sprintf("*This cell did not come to its end (%s), so it is no cell here:*\n\n%s", strings.ReplaceAll(c.outcome.End, "_", " "), fencedWords(c.cell.Code)))
				continue
			}
			out, err := s.notebookOutputs(f.run.ID, c)
			if err != nil {
				return nil, err
			}
			code(c.cell.Code, out)
			if c.outcome.End == string(api.EndError) {
				cells[len(cells)-1].Metadata["tags"] = []string{"raises-exception"} // it did then, and the cells behind it run all the same
			}
		}
		if f.run.Answer != nil {
			words("**Answer:** " + withoutPictures(*f.run.Answer))
		}
	}
	for i := range cells {
		cells[i].ID = fmt.Sprintf("%s-%d", id, i+1)
	}
	return json.MarshalIndent(map[string]any{
		"cells": cells, "nbformat": 4, "nbformat_minor": 5,
		"metadata": map[string]any{
			"kernelspec":    map[string]string{"name": "python3", "display_name": "Python 3", "language": "python"},
			"language_info": map[string]string{"name": "python"},
		},
	}, "", " ")
}

func loadedWords(loaded *api.AgentLoaded) string {
	var b strings.Builder
	b.WriteString("## The data\n\nThis notebook runs beside its files.\n")
	for _, t := range loaded.Tables {
		fmt.Fprintf(&b, "\n- %s is made of %s: %d rows, %d columns\n", asWritten(t.Name), asWritten(path.Base(t.File)), t.Rows, len(t.Columns))
		for _, n := range t.Notes {
			fmt.Fprintf(&b, "    - %s\n", asWritten(n))
		}
	}
	return b.String()
}

// asWritten is Markdown that shows a text as it is: what a file is called and says
// may be made by somebody who wants a picture loaded by whoever opens the notebook.
func asWritten(text string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(text), " ") {
		if r < 0x80 && (unicode.IsPunct(r) || unicode.IsSymbol(r)) && !strings.ContainsRune(",;:'\"/%=?", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return strings.ReplaceAll(b.String(), "://", ":\\//")
}

// fencedWords is code as Markdown, whatever fences are in it.
func fencedWords(code string) string {
	fence := "```"
	for strings.Contains(code, fence) {
		fence += "`"
	}
	return fence + "python\n" + code + "\n" + fence
}

// saidIn are the model's words before the code of each turn.
func (s *Service) saidIn(owner, id string) map[int]string {
	entries, err := s.entries(owner, id)
	if err != nil {
		return nil // it was there a moment ago; the words are for reading
	}
	out, reply := map[int]string{}, (*api.AgentReply)(nil)
	for _, e := range entries {
		switch e.Type {
		case api.AgentEventReply:
			reply = e.Reply
		case api.AgentEventFound:
			if reply == nil {
				continue
			}
			lines := strings.Split(reply.Text, "\n")
			if len(e.Found.Blocks) > 0 && e.Found.Blocks[0].Start > 0 {
				lines = lines[:min(e.Found.Blocks[0].Start-1, len(lines))]
			}
			out[e.Turn] = strings.TrimSpace(strings.Join(lines, "\n"))
		}
	}
	return out
}

func (s *Service) notebookOutputs(id string, c ranCell) ([]notebookOutput, error) {
	list, err := readOutputs(s.dir(id), c.turn, c.cell.Index)
	if err != nil {
		return nil, fmt.Errorf("reading the output of a cell: %w", err)
	}
	if list == nil && c.outcome.Text != "" { // of a version that kept no other
		list = []output{{Stream: "stdout", Text: c.outcome.Text + "\n"}}
		for i := range c.outcome.Figures {
			list = append(list, output{Figure: i + 1})
		}
	}
	var out []notebookOutput
	for _, o := range list {
		switch {
		case o.Lost:
			out = append(out, notebookOutput{Type: "stream", Name: "stderr", Text: "[there was more output than is kept]\n"})
		case o.Error != nil:
			out = append(out, notebookOutput{Type: "error", ErrorName: o.Error.Name, Value: &o.Error.Value, Traceback: strings.Split(o.Error.Trace, "\n")})
		case o.Figure > 0:
			if o.Figure > len(c.outcome.Figures) {
				continue
			}
			f := c.outcome.Figures[o.Figure-1]
			data, err := readFigure(s.dir(id), f.File)
			if err != nil {
				return nil, fmt.Errorf("reading a figure: %w", err)
			}
			out = append(out, notebookOutput{Type: "display_data", Data: map[string]string{f.MIME: base64.StdEncoding.EncodeToString(data)}, Metadata: &struct{}{}})
		case o.Data != nil:
			kind := "display_data"
			if o.Value {
				kind = "execute_result"
			}
			out = append(out, notebookOutput{Type: kind, Data: harmless(o.Data), Metadata: &struct{}{}})
		default:
			out = append(out, notebookOutput{Type: "stream", Name: o.Stream, Text: o.Text})
		}
	}
	return out, nil
}
