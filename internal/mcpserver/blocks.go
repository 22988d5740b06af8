package mcpserver

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// What one answer holds at most. Of longer text the beginning and, which says
// more, the end is kept.
const (
	maxText    = 30_000 // characters of a cell's or a command's output
	headShare  = 5      // one part in so many is the beginning
	maxValue   = 10_000 // characters of one result
	maxResults = 100    // in one answer, and the value of the last expression
	maxImages  = 8      // in one answer; more are resources alone
	maxImage   = 4 << 20
)

// clip shortens a text to n bytes and keeps its beginning.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// middle shortens a text to about n bytes and says what is missing where.
func middle(s string, n int) string {
	if len(s) <= n {
		return s
	}
	head := clip(s, n/headShare)
	from := len(s) - (n - n/headShare)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, from-len(head), s[from:])
}

// spool holds the text of a running cell or command in bounded memory.
type spool struct {
	head, tail strings.Builder
	lost       int64 // bytes that came and went between them
}

func (t *spool) add(text string) {
	if t.lost == 0 && t.tail.Len() == 0 && t.head.Len() < maxText/headShare {
		n := len(clip(text, maxText/headShare-t.head.Len()))
		t.head.WriteString(text[:n])
		text = text[n:]
	}
	t.tail.WriteString(text)
	if t.tail.Len() > 4*maxText {
		t.cut()
	}
}

// cut brings the end to its size.
func (t *spool) cut() {
	kept := t.tail.String()
	from := len(kept) - (maxText - maxText/headShare)
	if from <= 0 {
		return
	}
	for from < len(kept) && !utf8.RuneStart(kept[from]) {
		from++
	}
	t.lost += int64(from)
	t.tail.Reset()
	t.tail.WriteString(kept[from:])
}

// skip notes bytes that never came.
func (t *spool) skip(n int64) { t.add(fmt.Sprintf("\n[… %d bytes lost on the way …]\n", n)) }

func (t *spool) String() string {
	t.cut()
	if t.lost == 0 {
		return t.head.String() + t.tail.String()
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", t.head.String(), t.lost, t.tail.String())
}

func text(format string, args ...any) *mcp.TextContent {
	return &mcp.TextContent{Text: fmt.Sprintf(format, args...)}
}

// told puts what a caller must know of the sandbox before an answer.
func (p place) told(content []mcp.Content) []mcp.Content {
	if p.note == "" {
		return content
	}
	return append([]mcp.Content{&mcp.TextContent{Text: p.note}}, content...)
}

// answer is a result of text, with what there is to say of the sandbox.
func (p place) answer(format string, args ...any) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: p.told([]mcp.Content{text(format, args...)})}, nil, nil
}

// explain makes an error that a model can act on: what went wrong and what to
// do about it.
func explain(err error) error {
	var e *pandastack.Error
	switch {
	case errors.As(err, &e):
		words := e.Message
		if e.Hint != "" {
			words += ". " + strings.ToUpper(e.Hint[:1]) + e.Hint[1:]
		}
		if e.RequestID != "" && e.Code == "internal" {
			words += " (request " + e.RequestID + ")"
		}
		return fmt.Errorf("%s: %s", e.Code, words)
	case errors.Is(err, pandastack.ErrConnection):
		return fmt.Errorf("the PandaStack server is not reached: %w. Check that its daemon runs (pandastack serve)", err)
	}
	return err
}
