package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pandastack/pandastack"

// arrows says what each part may import of the project. "/..." takes in what
// lies below. A part that is not here fails the test: decide where it stands.
var arrows = []struct{ part, may string }{
	{"api", ""},
	{"templates", ""},
	{"internal/arch", ""},
	{"internal/nearest", ""},
	{"internal/fault", "api"},
	{"internal/guestapi", "api internal/fault"},
	{"internal/config", "api internal/fault internal/nearest"},
	{"internal/auth", "api internal/fault"},
	{"internal/store", "api internal/fault"},
	{"internal/caller", ""},
	{"internal/archive", "api internal/fault"},
	{"internal/journal", "api internal/store"},
	{"internal/metrics", "api internal/sandbox"},

	// What leaves a sandbox. The stack below asks the gate above it.
	{"internal/egress", "api internal/fault"},

	// The guest's end imports nothing of the host.
	{"internal/guestd/...", "api internal/fault internal/guestapi internal/guestd/... sdk/go/tree"},
	{"cmd/pandastack-guest", "internal/guestd/... internal/guestapi"},

	// The host's end of the link, and what speaks over it.
	{"internal/guest", "api internal/caller internal/fault internal/guestapi"},
	{"internal/capture", "api internal/guestapi"},
	{"internal/process", "api internal/capture internal/fault internal/guest internal/guestapi"},
	{"internal/kernel/...", "api internal/capture internal/fault internal/guest internal/guestapi internal/process internal/nearest"},

	// What leaves sandboxes: who decides, and what carries it.
	{"internal/netns", "internal/fault"},
	{"internal/egress", "api internal/fault"},
	{"internal/egress/netstack", "internal/egress internal/netns"},

	// Drivers know the contract and nothing of who uses it.
	{"internal/driver", "api internal/egress"},
	{"internal/driver/drivertest/...", "api internal/driver/... internal/egress internal/fault internal/guest internal/guestapi"},
	{"internal/driver/...", "api internal/driver internal/egress/... internal/fault internal/guestapi internal/guestd/... internal/netns"},

	// The domain knows the contract and no driver.
	{"internal/sandbox", "api internal/archive internal/caller internal/driver internal/egress internal/fault internal/guest internal/guestapi internal/nearest internal/store"},
	{"internal/template", "api internal/driver internal/fault internal/guest internal/guestapi internal/nearest"},

	// The agent loop knows what it needs of the rest as interfaces of its own.
	{"internal/llm", "api internal/fault"},
	{"internal/llm/scripted", "internal/llm"},
	{"internal/agent", "api internal/agent/extract internal/fault internal/llm"},
	{"internal/agent/extract", ""},

	{"internal/preview", "api internal/auth internal/fault"},
	{"internal/tools", "api internal/fault internal/guest internal/guestapi internal/store"},
	{"internal/network", "api internal/archive internal/egress internal/fault internal/guestapi internal/store"},
	{"internal/jupyter", "api internal/guestapi internal/kernel"},
	{"internal/httpapi", "api internal/agent internal/auth internal/caller internal/fault internal/guest internal/guestapi internal/journal internal/jupyter internal/kernel internal/network internal/preview internal/process internal/sandbox internal/store internal/tools"},
	{"sdk/go/tree", ""}, // both ends of a copy have it
	{"sdk/go", "api sdk/go/tree"},
	{"internal/mcpserver", "api sdk/go"},
	{"test/conformance/sdk_go", "api sdk/go"},
	{"internal/cli", "api internal/config internal/daemon internal/fault internal/llm/scripted internal/mcpserver internal/template sdk/go"},
	{"internal/daemon", "api internal/agent internal/archive internal/auth internal/caller internal/config internal/driver/... internal/egress/... internal/fault internal/guest internal/guestapi internal/llm internal/network " +
		"internal/httpapi internal/journal internal/jupyter internal/kernel/... internal/mcpserver internal/metrics internal/netns internal/preview internal/process internal/sandbox internal/store internal/template internal/tools templates"},
	{"cmd/pandastack", "internal/cli"},
}

// environment lists who may read the environment: the settings, the client
// SDK, and what runs inside sandboxes.
var environment = []string{"internal/config", "sdk/go", "internal/guestd/...", "cmd/pandastack-guest", "internal/driver/drivertest/..."}

type pkg struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

func matches(pattern, part string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return part == base || strings.HasPrefix(part, base+"/")
	}
	return part == pattern
}

func TestImportsPointDownward(t *testing.T) {
	for _, p := range packages(t) {
		part := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if strings.HasPrefix(part, "examples/") || strings.HasPrefix(part, "bench") || strings.HasPrefix(part, "test/") {
			continue
		}
		i := slices.IndexFunc(arrows, func(a struct{ part, may string }) bool { return matches(a.part, part) })
		if i < 0 {
			t.Errorf("%s has no place in the architecture", part)
			continue
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module+"/")
			if !ours {
				if part == "api" && strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") {
					t.Errorf("api imports %s, and may import the standard library only", imp)
				}
				continue
			}
			if !slices.ContainsFunc(strings.Fields(arrows[i].may), func(m string) bool { return matches(m, dep) }) {
				t.Errorf("%s must not import %s", part, dep)
			}
		}
	}
}

func TestEnvironmentIsReadInOnePlace(t *testing.T) {
	readers := []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}
	for _, p := range packages(t) {
		part := strings.TrimPrefix(p.ImportPath, module+"/")
		if slices.ContainsFunc(environment, func(m string) bool { return matches(m, part) }) {
			continue
		}
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && slices.Contains(readers, sel.Sel.Name) {
					t.Errorf("%s: os.%s: the environment is read in internal/config alone", fset.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
}
