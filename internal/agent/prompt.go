package agent

import (
	"embed"
	"encoding/json"
	"fmt"
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
	for i, p := range env.Packages {
		env.Packages[i] = line(p)
	}
	for i, f := range env.Files {
		env.Files[i].Path = line(f.Path)
	}
	env.Python, env.CWD = line(env.Python), line(env.CWD)
	const network = "no network but what was opened for this sandbox" // which cannot be seen from inside
	var b strings.Builder
	err = t.ExecuteTemplate(&b, dialect+".md", struct {
		Environment
		CellSeconds      float64
		MaxTurns         int
		Imports, Network string
		Instructions     string
	}{env, limits.CellSeconds, limits.MaxTurns, preImported, network, strings.TrimSpace(instructions)})
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
