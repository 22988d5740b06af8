package daemon

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// section gives a part of docs/operations.md.
func section(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(raw), "\n## "+name+"\n")
	if !ok {
		t.Fatalf("there is no section %q", name)
	}
	text, _, _ := strings.Cut(rest, "\n## ")
	return text
}

// firstColumn gives the names in backquotes that begin the rows of a table.
func firstColumn(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(cells[1], -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Every metric is in the table, and nothing else is.
func TestMetricsAreDocumented(t *testing.T) {
	r := serve(t, shortDir(t), map[string]string{"pool_ready": "1", "pool_prepared": "1", "pool_templates": "base"})
	id := r.create()
	r.do(404, "POST", "/v1/sandboxes", `{"template":"nothing"}`)
	r.do(204, "DELETE", "/v1/sandboxes/"+id, "")
	page := r.do(200, "GET", "/metrics", "")
	var served []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (pandastack_\w+) `).FindAllStringSubmatch(page, -1) {
		served = append(served, m[1])
	}
	written := firstColumn(section(t, "Metrics"))
	for _, name := range served {
		if !slices.Contains(written, name) {
			t.Errorf("%s is served and not in docs/operations.md", name)
		}
	}
	// Those without a value yet are not on the page.
	for _, name := range written {
		if !slices.Contains(served, name) && name != "pandastack_pool_misses_total" && name != "pandastack_pool_fills_total" {
			t.Errorf("%s is in docs/operations.md and not served", name)
		}
	}
	alerts := regexp.MustCompile(`pandastack_[a-z_]+`).FindAllString(section(t, "Metrics"), -1)
	for _, name := range alerts {
		if base := strings.TrimSuffix(name, "_bucket"); !slices.Contains(written, base) {
			t.Errorf("an alert asks for %s, which there is not", name)
		}
	}
}

// Every type of event is in the table, and nothing else is.
func TestEventsAreDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../api/event.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(s.Names[0].Name, "Life") {
			word, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			types = append(types, word)
		}
		return true
	})
	slices.Sort(types)
	if written := firstColumn(section(t, "Events")); !slices.Equal(types, written) {
		t.Errorf("docs/operations.md has %q\napi/event.go has      %q", written, types)
	}
}
