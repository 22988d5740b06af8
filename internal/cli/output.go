package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// terminal tells whether a person is likely to be looking.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// json writes an answer for programs.
func (a *app) json(v any) error { return a.encode(v, a.Terminal) }

// encode writes a value as JSON, on one line or over several. On a terminal what
// plain takes out of other texts is written as escapes, which mean the same.
func (a *app) encode(v any, indented bool) error {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indented {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := b.String()
	if a.Terminal {
		out = escaped(out)
	}
	_, err := io.WriteString(a.Out, out)
	return err
}

// escaped is JSON without the characters that plain takes out, all of which are
// in strings but for the ends of lines.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r) || r == '\n':
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// deed is the answer, for programs, of a verb that does something to a thing and
// learns nothing new of it.
type deed struct {
	ID   string `json:"id"`
	Done string `json:"done"`
}

// document is a text that a verb writes, for programs.
type document struct {
	Text string `json:"text"`
}

// did answers programs with what was done; people see that it was no failure.
func (a *app) did(done, id string) error {
	if !a.flags.JSON {
		return nil
	}
	return a.json(deed{id, done})
}

// didAll is did for several things. What was done before a failure is said, too.
func (a *app) didAll(done string, ids []string) error {
	if !a.flags.JSON {
		return nil
	}
	all := []deed{}
	for _, id := range ids {
		all = append(all, deed{id, done})
	}
	return a.json(all)
}

// each does something to several things, one after the other. Those behind a
// failure are tried, too; the first failure is the one that is returned.
func (a *app) each(ids []string, done string, do func(id string) error) error {
	var first error
	finished := []string{}
	for _, id := range ids {
		if err := do(id); err != nil {
			if len(ids) > 1 {
				a.say("%s: %v", id, err)
			}
			if first == nil {
				first = err
			}
			continue
		}
		finished = append(finished, id)
	}
	if err := a.didAll(done, finished); err != nil {
		return err
	}
	return first
}

// say writes a remark, which is not the answer itself. Errors are in some, and
// they name what is in sandboxes.
func (a *app) say(format string, args ...any) {
	if !a.flags.Quiet {
		fmt.Fprintln(a.Err, text(fmt.Sprintf(format, args...)))
	}
}

// tabulate answers with a list: in JSON for programs, by names with --quiet, as a
// table otherwise, and with the words none when there is nothing in it. row gives
// the columns of one thing, of which the first is its name.
func tabulate[T any](a *app, list []T, none string, header []string, row func(T) []string) error {
	if a.flags.JSON {
		return a.json(append([]T{}, list...))
	}
	var rows [][]string
	for _, thing := range list {
		rows = append(rows, row(thing))
	}
	if a.flags.Quiet {
		for _, r := range rows {
			if _, err := fmt.Fprintln(a.Out, r[0]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(rows) == 0 {
		a.say("%s", none)
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{header}, rows...) {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// when shows a time: how far away it is to people, itself to programs.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if !a.Terminal {
		return t.UTC().Format(time.RFC3339)
	}
	d := time.Until(t)
	if d >= 0 {
		return "in " + span(d)
	}
	return span(-d) + " ago"
}

// span shows a length of time in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// size shows a number of bytes.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 3 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %cB", f, "kMGT"[i])
}

// plain takes control characters out of what a sandbox or template says, so
// that it cannot drive the terminal, and those that show a text in another order
// or not at all, so that it is what it looks like.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if hidden(r) {
			return -1
		}
		return r
	}, s)
}

func hidden(r rune) bool {
	return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r) || invisible(r)
}

// invisible are characters without a shape; joiners have their use in scripts and
// in emoji.
func invisible(r rune) bool {
	return r == 0x200b || r >= 0x2060 && r <= 0x2064 || r == 0xfeff || r >= 0xe0000 && r <= 0xe007f
}
