package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pandastack/pandastack/api"
)

// maxOutputs bounds what is kept of a cell's output for its notebook, in bytes.
const maxOutputs = 512 << 10

// shownTypes are the types of a result that notebooks and reports show.
var shownTypes = []string{"text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml"}

// output is a piece of a cell's output as it came: of a stream, a value, or a
// figure. The transcript has instead what the model was shown.
type output struct {
	Stream string            `json:"stream,omitempty"` // "stdout" or "stderr"
	Text   string            `json:"text,omitempty"`
	Data   map[string]string `json:"data,omitempty"`
	Value  bool              `json:"value,omitempty"`  // of the last expression
	Figure int               `json:"figure,omitempty"` // its number in the cell, from 1
	Error  *outputError      `json:"error,omitempty"`
	Lost   bool              `json:"lost,omitempty"` // what follows is not kept
}

type outputError struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Trace string `json:"trace"`
}

// outputs are those of one cell.
type outputs struct {
	list []output
	size int
}

// add takes an event; drawn says that it became the figure with this number.
func (o *outputs) add(e api.Event, drawn bool, figure int) {
	switch e.Type {
	case api.EventStdout, api.EventStderr:
		if n := len(o.list); n > 0 && o.list[n-1].Stream == e.Type && o.fits(len(e.Text)) {
			o.list[n-1].Text += e.Text
			return
		}
		o.put(output{Stream: e.Type, Text: e.Text}, len(e.Text))
	case api.EventResult:
		if drawn {
			o.put(output{Figure: figure}, 0)
			return
		}
		kept, size := map[string]string{}, 0
		for _, t := range shownTypes {
			if v, ok := e.Data[t]; ok && size+len(v) <= maxOutputs/2 {
				kept[t] = v
				size += len(v)
			}
		}
		if len(kept) > 0 {
			o.put(output{Data: kept, Value: e.IsLastExpression}, size)
		}
	case api.EventEnd:
		if x := e.Execution; x != nil && x.Error != nil {
			o.list = append(o.list, output{Error: &outputError{x.ErrorName, short(x.ErrorValue, 2000), short(*x.Error, 20_000)}})
		}
	}
}

func (o *outputs) fits(n int) bool {
	if o.size+n > maxOutputs {
		return false
	}
	o.size += n
	return true
}

func (o *outputs) put(out output, size int) {
	n := len(o.list)
	switch {
	case n > 0 && o.list[n-1].Lost:
	case n >= 1000 || !o.fits(size):
		o.list = append(o.list, output{Lost: true})
	default:
		o.list = append(o.list, out)
	}
}

func outputsName(turn, index int) string { return fmt.Sprintf("%d-%d.outputs.json", turn, index) }

// outputs keeps those of a cell beside the transcript.
func (t *transcript) outputs(turn, index int, o outputs) error {
	if len(o.list) == 0 {
		return nil
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false) // what is taken out is looked for as it is
	if err := enc.Encode(o.list); err != nil {
		return fmt.Errorf("keeping the output of a cell: %w", err)
	}
	return t.figure(outputsName(turn, index), t.redact.bytes(raw.Bytes()))
}

// readOutputs gives them back; none for a run of a version that kept none.
func readOutputs(dir string, turn, index int) ([]output, error) {
	raw, err := os.ReadFile(filepath.Join(dir, figuresDir, outputsName(turn, index)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []output
	return list, json.Unmarshal(raw, &list)
}
