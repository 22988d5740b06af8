//go:build realbuild

package template

import (
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/templates"
)

// The real thing: Debian's packages, wheels, gVisor. `make demo` does the same
// through the command line; this is for work on this package alone.
//
//	go test -tags realbuild -run TestRealBuild -v -timeout 30m ./internal/template \
//	    -args -runsc $PWD/bin/runsc -programs DIR -data DIR -recipe code-interpreter
var (
	realRunsc    = flag.String("runsc", "", "path of runsc")
	realPrograms = flag.String("programs", "", "folder with guest and kernel/")
	realData     = flag.String("data", "", "data directory, kept")
	realRecipe   = flag.String("recipe", "base", "name of a recipe, or the path of its folder")
	realNoGuest  = flag.Bool("no-guest", false, "pretend that the agent answers")
)

func TestRealBuild(t *testing.T) {
	d, err := gvisor.New(gvisor.Config{Runsc: *realRunsc, Dir: filepath.Join(*realData, "build")})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := fs.Sub(templates.Recipes, strings.TrimPrefix(*realRecipe, "/"))
	if strings.HasPrefix(*realRecipe, "/") {
		dir, err = os.DirFS(*realRecipe), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{
		Store: NewStore(*realData), Driver: d, Programs: os.DirFS(*realPrograms),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if *realNoGuest {
		b.Link = func(string, string) (Link, error) { return &fakeGuest{ready: true}, nil }
	}
	built, err := b.Build(t.Context(), recipe, func(e Event) { t.Log(e) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", built)
}
