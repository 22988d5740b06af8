package agent

import (
	"bytes"
	"flag"
	"image"
	"image/color"
	pngfmt "image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/api"
)

var update = flag.Bool("update", false, "write the golden files")

// The prompts as models get them. A change to a prompt that was in a release is
// a new version, not another golden file.
func TestPrompts(t *testing.T) {
	env := Environment{Python: "3.12.3", CWD: "/workspace", Packages: []string{"numpy 2.3.1", "pandas 2.3.0"}, MorePackages: 40, MemoryMB: 1024, CPUs: 2, MoreFiles: true, Network: "of the network only api.example.com", Secrets: []string{"api.example.com"}}
	env.Files = append(env.Files, struct {
		Path  string `json:"path"`
		Bytes int64  `json:"bytes"`
	}{"/workspace/sales\n.csv", 5321})
	for _, dialect := range []string{dialectText, dialectTool} {
		for name, tc := range map[string]struct {
			env          Environment
			instructions string
		}{"full": {env, "Answer in French."}, "bare": {Environment{Python: "3.12.3", CWD: "/workspace", MemoryMB: 512, CPUs: 1, Network: "no network"}, ""}} {
			got, err := systemPrompt(PromptVersion, dialect, tc.env, withDefaults(api.AgentLimits{}), tc.instructions)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "prompts", PromptVersion, dialect+"-"+name+".md")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got+"\n"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("%s (run with -update when that is meant):\n%s", file, diff)
			}
		}
	}
}

// drawPNG is a picture of that size.
func drawPNG(t testing.TB, width, height int) []byte {
	im := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.White, color.Black})
	for i := 0; i < len(im.Pix); i += 7 {
		im.Pix[i] = 1
	}
	var b bytes.Buffer
	if err := pngfmt.Encode(&b, im); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// docs/codeact.md shows the prompt that models really get.
func TestTheDocumentedPromptIsTheOneInUse(t *testing.T) {
	doc, err := os.ReadFile("../../docs/codeact.md")
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := systemPrompt(PromptVersion, dialectText, Environment{}, withDefaults(api.AgentLimits{}), "")
	if err != nil {
		t.Fatal(err)
	}
	ours, _, _ := strings.Cut(prompt, "# Where you are")
	if !strings.Contains(string(doc), ours) {
		t.Errorf("docs/codeact.md does not have this prompt:\n%s", ours)
	}
}
