package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type manCmd struct{}

// Run writes the manual page, from what the help is made of.
func (c *manCmd) Run(a *app, k *kong.Kong) error { return manual(a.Out, k.Model) }

// roff makes text safe in a manual page.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

func manual(w io.Writer, app *kong.Application) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`.TH PANDASTACK 1 "" "PandaStack" "User Commands"`)
	line(".SH NAME\npandastack \\- %s", roff(strings.TrimSuffix(strings.ToLower(app.Help[:1])+app.Help[1:], ".")))
	line(".SH SYNOPSIS\n.B pandastack\n[OPTIONS] COMMAND [ARGUMENTS]")
	line(".SH OPTIONS")
	options(line, app.Flags)
	line(".SH COMMANDS")
	for _, n := range app.Leaves(true) {
		line(".SS %s", roff("pandastack "+usage(n)))
		line("%s", roff(n.Help))
		for _, p := range n.Positional {
			line(".TP\n.I %s\n%s", roff(strings.ToUpper(p.Name)), roff(p.Help))
		}
		options(line, n.Flags)
		if lines := examples[verb(n)]; len(lines) > 0 {
			line(".PP\n.nf\n.RS")
			for _, l := range lines {
				line("%s", roff(l))
			}
			line(".RE\n.fi")
		}
	}
	line(".SH EXIT STATUS")
	for _, e := range exitMeanings {
		line(".TP\n.B %d\n%s", e.code, roff(e.means))
	}
	line(".SH FILES\n.TP\n.I ~/.config/pandastack/config.json\nAddress and key of the server, and profiles.")
	line(".TP\n.I /etc/pandastack/pandastack.toml\nSettings of the daemon; see\n.BR \"pandastack config sample\" .")
	line(".SH ENVIRONMENT\n.TP\n.B PANDASTACK_API, PANDASTACK_API_URL\nAddress of the server.\n.TP\n.B PANDASTACK_API_KEY\nThe key.")
	_, err := io.WriteString(w, b.String())
	return err
}

func usage(n *kong.Node) string {
	words := []string{verb(n)}
	for _, p := range n.Positional {
		word := strings.ToUpper(p.Name)
		if p.IsSlice() {
			word += "..."
		}
		if !p.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

func options(line func(string, ...any), flags []*kong.Flag) {
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		name := "--" + f.Name
		if f.Short != 0 {
			name = "-" + string(f.Short) + ", " + name
		}
		if !f.IsBool() {
			name += " " + f.FormatPlaceHolder()
		}
		line(".TP\n.B %s\n%s", roff(name), roff(f.Help))
	}
}
