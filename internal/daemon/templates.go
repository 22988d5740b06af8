package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/template"
	"github.com/pandastack/pandastack/templates"
)

// builtTemplates shows the domain what has been built.
type builtTemplates struct{ store *template.Store }

var _ sandbox.Templates = builtTemplates{}

func templateStore(cfg *config.Config) *template.Store {
	return template.NewStore(filepath.Dir(cfg.TemplatesDir))
}

// templatesFor gives what sandboxes can be made from. The fake driver needs no
// templates, so it has two that are always there.
func templatesFor(cfg *config.Config) sandbox.Templates {
	if cfg.Driver == "fake" {
		return pretendedTemplates{cfg.DataDir}
	}
	return builtTemplates{templateStore(cfg)}
}

// pretendedTemplates are those of the fake driver.
type pretendedTemplates struct{ dir string }

var _ sandbox.Templates = pretendedTemplates{}

// Templates implements sandbox.Templates.
func (p pretendedTemplates) Templates(context.Context) ([]sandbox.Template, error) {
	made := func(name, alias string) sandbox.Template {
		return sandbox.Template{
			Info: api.TemplateInfo{
				Name: name, Aliases: []string{alias}, Digest: "pretended-" + name, CPU: 1, MemoryMB: 256, DiskMB: 256, PIDs: 64, IsGlobal: true,
			},
			Rootfs: p.dir, Snapshot: p.dir, Programs: p.dir, PIDs: 64, Spares: 1, RootfsDigest: "pretended-" + name,
		}
	}
	return []sandbox.Template{made("base", "ubuntu-24.04"), made("code-interpreter", "python")}, nil
}

// ByDigest implements sandbox.Templates.
func (p pretendedTemplates) ByDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	list, err := p.Templates(ctx)
	for _, t := range list {
		if t.Info.Digest == digest {
			return t, nil
		}
	}
	return sandbox.Template{}, errors.Join(err, fault.New(api.CodeNotFound, "there is no template with the digest %q", digest))
}

// Templates implements sandbox.Templates.
func (b builtTemplates) Templates(ctx context.Context) ([]sandbox.Template, error) {
	list, err := b.store.Named(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]sandbox.Template, len(list))
	for i, t := range list {
		out[i] = b.forDomain(t)
	}
	return out, nil
}

// ByDigest implements sandbox.Templates.
func (b builtTemplates) ByDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	t, err := b.store.ByDigest(ctx, digest)
	return b.forDomain(t), err
}

func (b builtTemplates) forDomain(t template.Template) sandbox.Template {
	return sandbox.Template{
		Info: describe(t), Rootfs: t.Rootfs, Snapshot: t.Snapshot, Programs: t.Programs,
		PIDs: t.PIDs, Spares: t.Spares, Missing: t.Missing, RootfsDigest: t.RootfsDigest, ProgramsDigest: t.ProgramsDigest,
		Contents: func(ctx context.Context) (string, error) { return b.store.Contents(ctx, t) },
	}
}

func describe(t template.Template) api.TemplateInfo {
	return api.TemplateInfo{
		Name: t.Name, Aliases: t.Aliases, Digest: t.Digest, Description: t.Description,
		RootfsPath: t.Rootfs, SizeBytes: t.RootfsBytes + t.SnapshotBytes,
		CPU: t.CPU, MemoryMB: t.MemoryMB, DiskMB: t.DiskMB, PIDs: t.PIDs, IsGlobal: true, BuiltAt: t.BuiltAt,
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

// RemoveTemplate takes a template's name away, with no daemon. Its files stay as
// long as sandboxes or snapshots need them; a daemon removes what is left over.
func RemoveTemplate(ctx context.Context, cfg *config.Config, name string) error {
	return templateStore(cfg).Remove(ctx, name)
}

// BuildTemplate makes a template on this machine, with no daemon. The recipe
// is the name of one that comes with PandaStack, or a folder.
func BuildTemplate(ctx context.Context, cfg *config.Config, recipe string, log *slog.Logger, progress func(template.Event)) (template.Template, error) {
	dir, err := findRecipe(cfg.RecipesDir, recipe)
	if err != nil {
		return template.Template{}, err
	}
	r, err := template.Load(dir)
	if err != nil {
		return template.Template{}, fmt.Errorf("the recipe %s: %w", recipe, err)
	}
	programs, err := Programs()
	if err != nil {
		return template.Template{}, err
	}
	b, err := newBuilder(cfg, log)
	if err != nil {
		return template.Template{}, err
	}
	b.Programs = programs
	return b.Build(ctx, r, progress)
}

// newBuilder makes what builds templates. Builds have their sandboxes apart,
// out of reach of a daemon that cleans up.
func newBuilder(cfg *config.Config, log *slog.Logger) (*template.Builder, error) {
	if err := mayServe(cfg); err != nil {
		return nil, err
	}
	drv, err := newDriver(cfg, buildDir, log)
	if err != nil {
		return nil, err
	}
	d, ok := drv.(template.Driver)
	if !ok {
		return nil, fault.New(api.CodeUnsupported, "the driver %s cannot build templates", drv.Name())
	}
	return &template.Builder{Store: templateStore(cfg), Driver: d, Log: log}, nil
}

// findRecipe finds a recipe: a folder, or a name among those in recipesDir or,
// when that is empty, among those that come with PandaStack.
func findRecipe(recipesDir, name string) (fs.FS, error) {
	if _, err := os.Stat(filepath.Join(name, template.RecipeFile)); err == nil {
		return os.DirFS(name), nil
	}
	if strings.ContainsRune(name, filepath.Separator) {
		return nil, fault.New(api.CodeNotFound, "%s has no %s", name, template.RecipeFile)
	}
	var all fs.FS = templates.Recipes
	if recipesDir != "" {
		all = os.DirFS(recipesDir)
	}
	found, err := fs.Glob(all, "*/"+template.RecipeFile)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, f := range found {
		if path.Dir(f) == name {
			return fs.Sub(all, name)
		}
		known = append(known, path.Dir(f))
	}
	return nil, fault.New(api.CodeNotFound, "there is no recipe %q", name).
		WithHint("there are: %s; or give the folder of one", strings.Join(known, ", "))
}
