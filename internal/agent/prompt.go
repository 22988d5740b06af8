package agent

import (
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/llm"
)

// PromptVersion names the prompts that new runs get. A change to one makes a
// new folder: runs say which they had.
const PromptVersion = "v1"

//go:embed prompts
var promptFiles embed.FS

// preImported is what every context has before the first cell.
const preImported = "math, sys, os, json, re, datetime, collections"

// Environment is what the sandbox says of itself; see python/agent_setup.py.
type Environment struct {
	Python       string   `json:"python"`
	CWD          string   `json:"cwd"`
	Packages     []string `json:"packages"`
	MorePackages int      `json:"more_packages"`
	Files        []struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	} `json:"files"`
	MoreFiles bool `json:"more_files"`
	MemoryMB  int  `json:"memory_mb"`
	CPUs      int  `json:"cpus"`

	// Network and Secrets are the server's to say: they cannot be seen from inside.
	Network string   `json:"-"`
	Secrets []string `json:"-"` // hosts whose requests get a header on their way out
}

const (
	maxHosts = 30  // that a prompt names
	maxNamed = 100 // packages, and files: what a sandbox says of itself may be anything
)

const noNetwork = "no network"

// reach says what the sandbox may reach.
func (env *Environment) reach(n api.NetworkInfo) {
	env.Network, env.Secrets = noNetwork, nil
	for host := range n.Secrets {
		env.Secrets = append(env.Secrets, line(host))
	}
	slices.Sort(env.Secrets)
	p := n.Policy
	except := ""
	if len(p.Deny) > 0 {
		except = " but for " + named(p.Deny)
	}
	switch {
	case p.Mode == api.NetworkOpen:
		env.Network = "the public internet" + except
	case len(p.Allow) > 0 && p.Policy != "":
		env.Network = "of the network only " + named(p.Allow) + except + ", and what the policy " + line(p.Policy) + " of the server has"
	case len(p.Allow) > 0:
		env.Network = "of the network only " + named(p.Allow) + except
	case p.Policy != "" && p.Mode != api.NetworkDeny:
		env.Network = "of the network only what the policy " + line(p.Policy) + " of the server has"
	}
}

// named lists what rules are about, methods and paths included.
func named(rules []api.NetworkRule) string {
	var out []string
	for i, r := range rules {
		if i == maxHosts {
			out = append(out, fmt.Sprintf("%d more", len(rules)-i))
			break
		}
		text := r.Text
		if text == "" {
			text = r.Host + r.CIDR
			for j, p := range r.Ports {
				text += map[bool]string{true: ":", false: ","}[j == 0] + strconv.Itoa(p)
			}
			if more := strings.Join(append(slices.Clone(r.Methods), r.Paths...), " "); more != "" {
				text += " (" + more + ")"
			}
		}
		out = append(out, line(text))
	}
	return strings.Join(out, ", ")
}

// systemPrompt renders the prompt of a dialect.
func systemPrompt(version, dialect string, env Environment, limits api.AgentLimits, instructions string) (string, error) {
	t, err := template.ParseFS(promptFiles, "prompts/"+version+"/*.md")
	if err != nil {
		return "", fmt.Errorf("reading the prompts %s: %w", version, err)
	}
	if _, err := t.New("environment").Parse(trimmed(t.Lookup("environment.md"))); err != nil {
		return "", fmt.Errorf("reading the prompts %s: %w", version, err)
	}
	env.Packages, env.Files = env.Packages[:min(len(env.Packages), maxNamed)], env.Files[:min(len(env.Files), maxNamed)]
	for i, p := range env.Packages {
		env.Packages[i] = line(p)
	}
	for i, f := range env.Files {
		env.Files[i].Path = line(f.Path)
	}
	env.Python, env.CWD = line(env.Python), line(env.CWD)
	var b strings.Builder
	err = t.ExecuteTemplate(&b, dialect+".md", struct {
		Environment
		CellSeconds           float64
		MaxTurns              int
		Imports, Instructions string
	}{env, limits.CellSeconds, limits.MaxTurns, preImported, strings.TrimSpace(instructions)})
	if err != nil {
		return "", fmt.Errorf("writing the prompt: %w", err)
	}
	return strings.TrimSpace(b.String()), nil
}

func trimmed(t *template.Template) string { return strings.TrimSpace(t.Root.String()) }

// line makes what comes from the sandbox one short line.
func line(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}

// runPython is the tool of the dialect "tool".
var runPython = llm.Tool{
	Name:        "run_python",
	Description: "Run Python in the sandbox. Variables, imports and files stay from call to call. The result is what it printed, the value of its last expression, its figures, or its traceback.",
	Parameters:  json.RawMessage(`{"type":"object","properties":{"code":{"type":"string","description":"The Python to run."}},"required":["code"],"additionalProperties":false}`),
}
