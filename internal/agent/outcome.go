package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm"
)

// The types with which python/agent_setup.py speaks to the loop.
const (
	answerType      = "application/vnd.pandastack.final-answer+json"
	adviceType      = "application/vnd.pandastack.advice+json"
	environmentType = "application/vnd.pandastack.environment+json"
)

// What of a cell's output is held while it runs.
const (
	holdHead  = 256 << 10
	holdTail  = 256 << 10
	maxAdvice = 50
	maxAnswer = 1 << 20
)

// watched is a cell that runs: its output in order, the middle of it missing
// when there is much.
type watched struct {
	head, tail  strings.Builder
	full        bool // the head is
	dropped     int64
	stream      string // that the last text was of
	printed     bool
	figures     []drawn
	extra       int // figures beyond maxFigures
	answer      *string
	advice      []api.AgentAdvice
	environment *Environment
	tables      *api.AgentLoaded
	outputs     outputs
	end         *api.Execution
}

func (w *watched) text(s string) {
	if !w.full {
		n := cutAt(s, holdHead-w.head.Len())
		w.head.WriteString(s[:n])
		if s = s[n:]; s == "" {
			return
		}
		w.full = true
	}
	w.tail.WriteString(s)
	if w.tail.Len() > 2*holdTail {
		kept := w.tail.String()
		from := len(kept) - holdTail
		for from < len(kept) && !utf8.RuneStart(kept[from]) {
			from++
		}
		w.dropped += int64(from)
		w.tail.Reset()
		w.tail.WriteString(kept[from:])
	}
}

// cutAt is the largest length up to n at which s may be cut.
func cutAt(s string, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}

// label says that what follows is of another kind than what came before.
func (w *watched) label(stream string) {
	if w.stream == stream {
		return
	}
	if stream != "" || w.stream != "" {
		w.newline()
	}
	if stream != "stdout" && stream != "" {
		w.text("[" + stream + "]\n")
	} else if w.stream != "" && stream == "stdout" {
		w.text("[stdout]\n")
	}
	w.stream = stream
}

func (w *watched) newline() {
	last := w.tail.String()
	if last == "" {
		last = w.head.String()
	}
	if last != "" && !strings.HasSuffix(last, "\n") {
		w.text("\n")
	}
}

// add takes an event of the cell.
func (w *watched) add(e api.Event) {
	figures := len(w.figures)
	defer func() { w.outputs.add(e, len(w.figures) > figures, len(w.figures)) }()
	switch e.Type {
	case api.EventStdout, api.EventStderr:
		w.label(e.Type)
		w.text(e.Text)
		w.printed = true
	case api.EventGap:
		w.dropped += max(e.Dropped, 0)
		w.newline()
		w.text(fmt.Sprintf("[… %d bytes of %s lost on the way …]\n", max(e.Dropped, 0), e.Stream))
		w.printed = true
	case api.EventResult:
		w.result(e)
	case api.EventInputRequest:
		w.label("input")
		w.text("the cell asked for input, and nobody can answer\n")
	case api.EventEnd:
		w.end = e.Execution
	}
}

func (w *watched) result(e api.Event) {
	if raw, ok := e.Data[answerType]; ok {
		var given struct {
			Text string `json:"text"`
		}
		if json.Unmarshal([]byte(raw), &given) == nil && w.answer == nil {
			text := given.Text[:cutAt(given.Text, maxAnswer)]
			w.answer = &text
		}
		return
	}
	if raw, ok := e.Data[adviceType]; ok {
		var found []api.AgentAdvice
		if json.Unmarshal([]byte(raw), &found) == nil {
			for _, a := range found[:min(len(found), max(0, maxAdvice-len(w.advice)))] {
				w.advice = append(w.advice, api.AgentAdvice{Kind: line(a.Kind), Line: a.Line, What: line(a.What)})
			}
		}
		return
	}
	if raw, ok := e.Data[tablesType]; ok {
		w.tables = tablesIn(raw)
		return
	}
	if raw, ok := e.Data[environmentType]; ok {
		env := new(Environment)
		if json.Unmarshal([]byte(raw), env) == nil {
			w.environment = env
		}
		return
	}
	w.printed = true
	for _, mime := range pictures {
		raw, ok := e.Data[mime]
		if !ok {
			continue
		}
		if len(w.figures) == maxFigures {
			w.extra++
			return
		}
		w.label("figure")
		d, err := decodeFigure(mime, raw)
		if err != nil {
			w.text(fmt.Sprintf("a figure that cannot be shown: %v\n", err))
		} else {
			w.figures = append(w.figures, d)
			w.text(fmt.Sprintf("figure %d, %d×%d pixels\n", len(w.figures), d.width, d.height))
		}
		w.stream = ""
		return
	}
	w.label("result")
	text, ok := e.Data["text/plain"]
	if !ok {
		var types []string
		for t := range e.Data {
			types = append(types, line(t))
		}
		text = "a value of the types " + strings.Join(types, ", ") + ", which has no text"
	}
	w.text(text)
	w.newline()
	w.stream = "" // the next result is another
}

// whole is all text that is held.
func (w *watched) whole() string {
	if w.tail.Len() == 0 {
		return w.head.String()
	}
	middle := ""
	if w.dropped > 0 {
		middle = fmt.Sprintf("\n[… %d bytes left out …]\n", w.dropped)
	}
	return w.head.String() + middle + w.tail.String()
}

// outcome describes a cell that ended. budget is in tokens; figures are named
// by the caller. cell and of count the cells of its turn.
func (w *watched) outcome(index, of int, deadline time.Duration, budget int) (o api.AgentOutcome, full string) {
	x := w.end
	o = api.AgentOutcome{
		Index: index, End: string(x.End), ErrorName: line(x.ErrorName), ErrorValue: short(x.ErrorValue, 500), StateSurvived: x.StateSurvived,
		DurationMS: x.DurationMS, OutputPath: x.OutputPath, Answer: w.answer, Advice: w.advice,
	}
	if w.answer != nil {
		o.End, o.ErrorName, o.ErrorValue = string(api.EndOK), "", ""
	}
	body := strings.TrimRight(w.whole(), "\n")
	if w.extra > 0 {
		body += fmt.Sprintf("\n[%d more figures are not shown: a cell shows up to %d]", w.extra, maxFigures)
	}
	words := endWords(x, deadline, w.printed)
	if w.answer != nil {
		words = ""
	}
	full = body
	body = collapse(body)
	trace := ""
	if x.Error != nil && x.End == api.EndError && w.answer == nil {
		trace = "[error]\n" + *x.Error
	}
	// The traceback comes first in having room: it is what is needed next.
	trace, _ = fit(trace, max(budget/2, 100), "", 0)
	room := max(budget-llm.Guess(trace)-llm.Guess(words), 50)
	body, o.Cut = fit(body, room, o.OutputPath, w.dropped)
	o.Cut = o.Cut || w.dropped > 0 || x.Truncated
	parts := []string{header(index, of, x, w.answer)}
	for _, p := range []string{body, trace, words} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	o.Text = strings.Join(parts, "\n")
	o.Digest = digest(body, trace, string(x.End))
	return o, full
}

func header(index, of int, x *api.Execution, answer *string) string {
	name := "Observation"
	if of > 1 {
		name = fmt.Sprintf("Observation, cell %d of %d", index, of)
	}
	end := "ok"
	switch x.End {
	case api.EndOK:
	case api.EndError:
		end = "error"
		if x.ErrorName != "" {
			end = line(x.ErrorName)
		}
	default:
		end = strings.ReplaceAll(string(x.End), "_", " ")
	}
	if answer != nil {
		end = "answered"
	}
	return fmt.Sprintf("%s: %s in %.2f s", name, end, x.DurationMS/1000)
}

// endWords says what a model cannot know about how its cell ended, and what is
// left of its state.
func endWords(x *api.Execution, deadline time.Duration, printed bool) string {
	lost := "All variables, imports and functions are lost; files are still there. Import and load again what you need."
	if x.StateSurvived {
		lost = "Variables, imports and functions are still there."
	}
	above := ""
	if printed {
		above = " What it printed until then is above."
	}
	switch x.End {
	case api.EndOK:
		if !printed {
			return "The cell ran and printed nothing. To see a value, print it or put it on the last line."
		}
		return ""
	case api.EndError:
		return ""
	case api.EndTimeout:
		how := "was interrupted at"
		if !x.StateSurvived {
			how = "did not react to an interrupt and was ended after"
		}
		return fmt.Sprintf("[deadline] The cell %s its deadline of %g seconds.%s %s Make it do less at a time.", how, deadline.Seconds(), above, lost)
	case api.EndOOM:
		return "[out of memory] The cell used more memory than there is, and its interpreter was ended." + above + " " + lost + " Work on less at a time."
	case api.EndInterrupted:
		return "[interrupted] The cell was interrupted." + above + " " + lost
	}
	return "[interpreter died] The interpreter ended while the cell ran." + above + " " + lost
}

// refused is the outcome of code that never ran.
func refused(index, of int, words string) api.AgentOutcome {
	name := "Observation"
	if of > 1 {
		name = fmt.Sprintf("Observation, cell %d of %d", index, of)
	}
	return api.AgentOutcome{Index: index, End: "refused", StateSurvived: true, Text: name + ": not run. " + words, Digest: digest(words)}
}

// marks say in a text what it lacks.
var marks = regexp.MustCompile(`\n?\[… \d+ bytes (left out|of \w+ lost on the way) …\]\n`)

// fit cuts the middle out of a text that has more tokens than it may. lacks is
// how many bytes were left out of it before, where its marks say so: they are
// counted with what is cut.
func fit(text string, tokens int, path string, lacks int64) (string, bool) {
	total := llm.Guess(text)
	if total <= tokens {
		return text, false
	}
	// By proportion of bytes, and then exactly.
	keep := len(text) * tokens / total * 9 / 10
	for {
		head, tail := cutAt(text, keep*3/5), len(text)-keep*2/5
		for tail < len(text) && !utf8.RuneStart(text[tail]) {
			tail++
		}
		where := ""
		if path != "" {
			where = "; all of it is in " + path
		}
		out := fmt.Sprintf("%s\n[… %d bytes left out%s …]\n%s", strings.TrimRight(text[:head], "\n"), leftOut(text[head:tail], lacks), where, strings.TrimLeft(text[tail:], "\n"))
		if keep < 40 || llm.Guess(out) <= tokens+40 {
			return out, true
		}
		keep = keep * 9 / 10
	}
}

func leftOut(cut string, lacks int64) int64 {
	n := int64(len(cut)) + lacks
	for _, mark := range marks.FindAllString(cut, -1) {
		n -= int64(len(mark))
	}
	return n
}

const repeatsShown = 3

// collapse says of a line that comes again and again how often it came.
func collapse(text string) string {
	lines := strings.Split(text, "\n")
	var out []string
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		if n > repeatsShown+1 && strings.TrimSpace(lines[i]) != "" {
			out = append(out, lines[i], fmt.Sprintf("[the line above %d more times]", n-1))
		} else {
			out = append(out, lines[i:i+n]...)
		}
		i += n
	}
	return strings.Join(out, "\n")
}

func short(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:cutAt(s, n)] + "…"
}

var changing = regexp.MustCompile(`0x[0-9a-f]{6,}|\d+\.\d+ ?(s|ms|µs|seconds)\b|Cell In\[\d+\]|\[… \d+ bytes`)

// digest is the same for what is the same but for addresses, times, the number of
// the cell, and how much of long output was left out, which hangs on how it came.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(changing.ReplaceAllString(strings.TrimSpace(p), "·")))
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
