package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// shellwords are the words of a line, some in double quotes.
func shellwords(line string) ([]string, error) {
	r := csv.NewReader(strings.NewReader(line))
	r.Comma = ' '
	return r.Read()
}

// Every example is a command line of the verb that it is shown with.
func TestExamplesAreOfTheirVerbs(t *testing.T) {
	for name, lines := range examples {
		for _, line := range lines {
			var g grammar
			k := newParser(&g, Streams{})
			words, err := shellwords(line)
			if err != nil {
				t.Fatal(err)
			}
			ctx, err := k.Parse(words[1:])
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if got := verb(ctx.Selected()); got != name || words[0] != "pandastack" {
				t.Errorf("%q is shown with %s and is of %s", line, name, got)
			}
		}
	}
	var g grammar
	for _, n := range newParser(&g, Streams{}).Model.Leaves(true) {
		if !strings.Contains(n.Detail, "pandastack "+verb(n)) && !strings.Contains(n.Detail, "pandastack -") {
			t.Errorf("the help of %s has no example: %q", verb(n), n.Detail)
		}
	}
}

func TestCompletion(t *testing.T) {
	var g grammar
	model := newParser(&g, Streams{}).Model.Node
	asked := 0
	ids := func() []candidate { asked++; return []candidate{{"sb-1", "base, running"}, {"sb-2", "base, paused"}} }
	for line, want := range map[string]string{
		"sand":                            "sandbox",
		"sandbox h":                       "hibernate",
		"sandbox hib":                     "hibernate",
		"--api http://x sandbox wak":      "wake",
		"-q sandbox at":                   "attach",
		"sandbox get ":                    "sb-1 sb-2",
		"sandbox kill sb-2 sb-":           "sb-1 sb-2",
		"sandbox logs --stream ":          "both stdout stderr",
		"sandbox logs --stream=both sb-2": "sb-2",
		"sandbox top --ever":              "--every",
		"sandbox exec sb-1 -- ls ":        "",
		"sandbox cp ":                     "",
		"completion ":                     "bash zsh fish",
		"completion bash ":                "",
		"context ls ":                     "sb-1 sb-2",
		"nonsense ":                       "",
		"__comp":                          "",
	} {
		var got []string
		for _, c := range candidates(model, strings.Split(line, " "), ids) {
			got = append(got, c.word)
		}
		if line == "nonsense " {
			continue // nothing is known of it; nothing must break
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if asked == 0 {
		t.Error("nobody asked for ids")
	}
	for shell, script := range completionScripts {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // the shell is not on this machine
		}
		flag := "-n"
		if shell == "fish" {
			flag = "--no-execute"
		}
		cmd := exec.Command(path, flag)
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s cannot read its script: %v %s", shell, err, out)
		}
	}
}

func TestManual(t *testing.T) {
	var g grammar
	var b bytes.Buffer
	model := newParser(&g, Streams{}).Model
	if err := manual(&b, model); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, want := range []string{
		".TH PANDASTACK 1", `.SS pandastack sandbox attach ID [PID]`, `.B \-\-detach\-keys KEYS`, ".SH EXIT STATUS\n.TP\n.B 0", `pandastack sandbox exec \-it sb\-1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "__complete") {
		t.Error("what is hidden is in it")
	}
	for _, n := range model.Leaves(true) {
		if !strings.Contains(page, roff("pandastack "+verb(n))) {
			t.Errorf("it lacks %s", verb(n))
		}
	}
}

// The exit codes are a promise to scripts.
func TestExitCodes(t *testing.T) {
	want := map[api.Code]int{
		api.CodeInvalid: 2, api.CodeUnauthenticated: 4, api.CodeDenied: 4, api.CodeNotFound: 3, api.CodeConflict: 1, api.CodeTooLarge: 2, api.CodeRateLimited: 6,
		api.CodeInternal: 70, api.CodeUnsupported: 1, api.CodeUnreachable: 1, "a code of tomorrow": 70, api.CodeNoCapacity: 6, api.CodeTimeout: 5, api.CodeNoSpace: 6,
	}
	report := func(err error) (int, string) {
		var b bytes.Buffer
		a := &app{Streams: Streams{Err: &b}, flags: &grammar{}}
		return a.report(err), b.String()
	}
	for code := range exitOf {
		if _, ok := want[code]; !ok || hintOf[code] == "" {
			t.Errorf("%s: no exit code is promised, or there is no hint for it", code)
		}
	}
	for code, exit := range want {
		for _, err := range []error{&pandastack.Error{Code: code, Message: "words", Hint: "a hint"}, fmt.Errorf("wrapped: %w", fault.New(code, "words").WithHint("a hint"))} {
			if got, said := report(err); got != exit || !strings.HasPrefix(said, "pandastack: ") || !strings.Contains(said, "\n  ") {
				t.Errorf("%s: exit code %d, want %d; said %q", code, got, exit, said)
			}
		}
	}
	for exit, err := range map[int]error{
		0: nil, 9: failed(9), 2: usageError{errors.New("no such flag")}, 7: fmt.Errorf("%w: refused", pandastack.ErrConnection), 70: errors.New("anything"), 130: context.Canceled,
	} {
		if got, said := report(err); got != exit || err != nil && exit != 9 && said == "" {
			t.Errorf("%v: exit code %d, want %d; said %q", err, got, exit, said)
		}
	}
	for _, exit := range []int{0, 1, 2, 3, 4, 5, 6, 7, 70, 130} {
		if !slices.ContainsFunc(exitMeanings, func(m struct {
			code  int
			means string
		}) bool {
			return m.code == exit
		}) {
			t.Errorf("the manual page does not have %d", exit)
		}
	}
}
