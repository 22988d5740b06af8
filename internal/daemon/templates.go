package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/template"
)

// builtTemplates shows the domain what has been built.
type builtTemplates struct{ store *template.Store }

var _ sandbox.Templates = builtTemplates{}

func templateStore(cfg *config.Config) *template.Store {
	return template.NewStore(filepath.Dir(cfg.TemplatesDir))
}

// Templates implements sandbox.Templates.
func (b builtTemplates) Templates(ctx context.Context) ([]sandbox.Template, error) {
	list, err := b.store.List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.Template, len(list))
	for i, t := range list {
		out[i] = sandbox.Template{
			Info: describe(t), Rootfs: t.Rootfs, Snapshot: t.Snapshot, Programs: t.Programs,
			PIDs: t.PIDs, Spares: t.Spares,
		}
	}
	return out, nil
}

func describe(t template.Template) api.TemplateInfo {
	return api.TemplateInfo{
		Name: t.Name, Aliases: t.Aliases, Digest: t.Digest, Description: t.Description,
		RootfsPath: t.Rootfs, SizeBytes: t.RootfsBytes + t.SnapshotBytes,
		CPU: t.CPU, MemoryMB: t.MemoryMB, DiskMB: t.DiskMB, IsGlobal: true, BuiltAt: t.BuiltAt,
		Meta: map[string]string{"python": t.Version, "imports": strings.Join(t.Imports, ",")},
	}
}

// Templates lists what is built on this machine, with no daemon.
func Templates(ctx context.Context, cfg *config.Config) ([]api.TemplateInfo, error) {
	list, err := templateStore(cfg).List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]api.TemplateInfo, len(list))
	for i, t := range list {
		out[i] = describe(t)
	}
	return out, nil
}

// BuildTemplate makes a template on this machine, with no daemon. The recipe
// is a name, looked up in the recipes' folder, or a folder.
func BuildTemplate(ctx context.Context, cfg *config.Config, recipe string, log *slog.Logger, progress func(template.Event)) (template.Template, error) {
	dir, err := findRecipe(cfg, recipe)
	if err != nil {
		return template.Template{}, err
	}
	r, err := template.Load(os.DirFS(dir))
	if err != nil {
		return template.Template{}, fmt.Errorf("the recipe in %s: %w", dir, err)
	}
	programs, err := Programs()
	if err != nil {
		return template.Template{}, err
	}
	drv, err := newDriver(cfg, log)
	if err != nil {
		return template.Template{}, err
	}
	builder, ok := drv.(template.Driver)
	if !ok {
		return template.Template{}, fault.New(api.CodeUnsupported, "the driver %s cannot build templates", drv.Name())
	}
	b := template.Builder{Store: templateStore(cfg), Driver: builder, Link: link(log), Programs: programs, Log: log}
	return b.Build(ctx, r, progress)
}

// link gives a build its end of the guest link.
func link(log *slog.Logger) template.Linker {
	return func(_ context.Context, dir string) (func(context.Context) (template.Guest, error), error) {
		l, err := guest.Listen(guest.Options{Dir: dir, SandboxID: "build", Logger: log})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (template.Guest, error) {
			c, err := l.Client(ctx)
			if err != nil {
				l.Close()
				return nil, err
			}
			return buildGuest{c, l}, nil
		}, nil
	}
}

// buildGuest ends the listener with the link.
type buildGuest struct {
	*guest.Client
	listener *guest.Listener
}

// Close implements template.Guest.
func (g buildGuest) Close() error { return g.listener.Close() }

// findRecipe finds a recipe's folder.
func findRecipe(cfg *config.Config, name string) (string, error) {
	isRecipe := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, template.RecipeFile))
		return err == nil
	}
	if isRecipe(name) {
		return name, nil
	}
	if strings.ContainsRune(name, filepath.Separator) {
		return "", fault.New(api.CodeNotFound, "%s has no %s", name, template.RecipeFile)
	}
	places := recipePlaces(cfg)
	var known []string
	for _, place := range places {
		if dir := filepath.Join(place, name); isRecipe(dir) {
			return dir, nil
		}
		found, err := fs.Glob(os.DirFS(place), "*/"+template.RecipeFile)
		if err == nil {
			for _, f := range found {
				known = append(known, filepath.Dir(f))
			}
		}
	}
	e := fault.New(api.CodeNotFound, "there is no recipe %q in %s", name, strings.Join(places, " or "))
	if len(known) > 0 {
		return "", e.WithHint("there are: %s", strings.Join(known, ", "))
	}
	return "", e.WithHint("give the folder of a recipe, or name the folder of all with --set recipes_dir=DIR")
}

func recipePlaces(cfg *config.Config) []string {
	if cfg.RecipesDir != "" {
		return []string{cfg.RecipesDir}
	}
	places := []string{"templates"}
	if self, err := os.Executable(); err == nil {
		places = append(places, filepath.Join(filepath.Dir(self), "..", "templates"))
	}
	return places
}
