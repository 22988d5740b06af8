package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// The scripts ask the program itself, so that they never know less than it.
var completionScripts = map[string]string{
	"bash": `# In ~/.bashrc: source <(pandastack completion bash)
_pandastack() {
	local IFS=$'\n'
	COMPREPLY=($(pandastack __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _pandastack pandastack
`,
	"zsh": `#compdef pandastack
# In ~/.zshrc, after compinit: source <(pandastack completion zsh)
_pandastack() {
	local -a found
	local line
	for line in "${(@f)$(pandastack __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#found )); then _describe pandastack found; else _files; fi
}
compdef _pandastack pandastack
`,
	"fish": `# In ~/.config/fish/completions/pandastack.fish
complete -c pandastack -a '(pandastack __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

// Run writes the script that a shell reads.
func (c *completionCmd) Run(a *app) error {
	if a.flags.JSON {
		return a.json(document{completionScripts[c.Shell]})
	}
	_, err := fmt.Fprint(a.Out, completionScripts[c.Shell])
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

const completeTime = time.Second // for asking a server; somebody waits with a finger on the key

// Run says what the last of the words may become, a line each, with a tab before
// what it means. Shells ask it; what goes wrong is no answer.
func (c *completeCmd) Run(a *app, k *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, found := range candidates(k.Model.Node, words, a.ids) {
		fmt.Fprintf(a.Out, "%s\t%s\n", found.word, found.means)
	}
	return nil
}

type candidate struct{ word, means string }

// candidates are what the last word may become after the others. The ids of
// sandboxes come from a server.
func candidates(node *kong.Node, words []string, ids func() []candidate) (found []candidate) {
	last := words[len(words)-1]
	positionals, wanted := 0, (*kong.Flag)(nil)
	for i, w := range words[:len(words)-1] {
		switch {
		case w == "--":
			return nil // the rest is a command of the sandbox
		case strings.HasPrefix(w, "-"):
			if f := flagOf(node, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") && i == len(words)-2 {
				wanted = f
			}
		case i > 0 && takesValue(node, words[i-1]):
		default:
			if child := childOf(node, w); child != nil {
				node, positionals = child, 0
			} else {
				positionals++
			}
		}
	}
	offer := func(word, means string) {
		if strings.HasPrefix(word, last) {
			found = append(found, candidate{word, means})
		}
	}
	switch {
	case wanted != nil:
		for _, v := range values(wanted.Value) {
			offer(v, "")
		}
	case strings.HasPrefix(last, "-"):
		for n := node; n != nil; n = n.Parent {
			for _, f := range n.Flags {
				if !f.Hidden {
					offer("--"+f.Name, f.Help)
				}
			}
		}
	case len(node.Children) > 0:
		for _, child := range node.Children {
			if !child.Hidden {
				offer(child.Name, child.Help)
			}
		}
	case positionals < len(node.Positional) || len(node.Positional) > 0 && node.Positional[len(node.Positional)-1].IsSlice():
		p := node.Positional[min(positionals, len(node.Positional)-1)]
		for _, v := range values(p) {
			offer(v, "")
		}
		if named := p.Name == "id" || p.Name == "sandbox"; named && (strings.HasPrefix(verb(node), "sandbox ") || p.Name == "sandbox") {
			for _, id := range ids() {
				offer(id.word, id.means)
			}
		}
	}
	return found
}

func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func takesValue(node *kong.Node, w string) bool {
	if !strings.HasPrefix(w, "-") || strings.Contains(w, "=") {
		return false
	}
	f := flagOf(node, w)
	return f != nil && !f.IsBool()
}

func flagOf(node *kong.Node, w string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
	for n := node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if strings.HasPrefix(w, "--") && f.Name == name || !strings.HasPrefix(w, "--") && f.Short != 0 && strings.HasSuffix(name, string(f.Short)) {
				return f
			}
		}
	}
	return nil
}

// ids are those of the sandboxes that can be reached, none without a server.
func (a *app) ids() (found []candidate) {
	ctx, cancel := context.WithTimeout(a.ctx, completeTime)
	defer cancel()
	client, err := a.client()
	if err != nil {
		return nil
	}
	list, err := client.List(ctx, pandastack.ListOptions{Limit: 100})
	if err != nil {
		return nil
	}
	for _, s := range list {
		found = append(found, candidate{s.ID, plain(s.Template) + ", " + string(s.Status)})
	}
	return found
}
