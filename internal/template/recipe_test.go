package template

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/templates"
)

const goodRecipe = `
name = "tiny"
aliases = ["small"]
[limits]
memory_mb = 512
[rootfs]
suite = "trixie"
packages = ["python3-venv", "python3"]
[python]
version = "3.13"
requirements = "requirements.lock"
[snapshot]
imports = ["json"]
warmup = "warmup.py"
[[step]]
name = "fonts"
run = "fc-cache"
`

const goodLock = "# comment\nsix==1.17.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n    # via x\n"

func recipeFS(recipe string, more ...string) fstest.MapFS {
	files := fstest.MapFS{
		RecipeFile:          {Data: []byte(recipe)},
		"requirements.lock": {Data: []byte(goodLock)},
		"warmup.py":         {Data: []byte("x = 1\n")},
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	return files
}

func TestLoad(t *testing.T) {
	got, err := Load(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	want := Recipe{
		Name: "tiny", Aliases: []string{"small"},
		Limits: RecipeLimits{CPU: 2, MemoryMB: 512, DiskMB: 4096, PIDs: 512},
		Rootfs: RecipeRootfs{Suite: "trixie", Packages: []string{"python3-venv", "python3"}},
		Python: RecipePython{Version: "3.13", Venv: "/opt/venv", LockFile: "requirements.lock", Lock: []byte(goodLock)},
		Steps:  []Step{{Name: "fonts", Run: "fc-cache"}},
		Snapshot: RecipeSnapshot{
			Imports: []string{"json"}, WarmupFile: "warmup.py", Warmup: "x = 1\n", Spares: 1,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if python := got.Python.Interpreter(); python != "/opt/venv/bin/python" {
		t.Errorf("the interpreter is %q", python)
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	change := func(old, new string) fstest.MapFS { return recipeFS(strings.Replace(goodRecipe, old, new, 1)) }
	for name, test := range map[string]struct {
		files fs.FS
		field string
		words string
	}{
		"no recipe":         {fstest.MapFS{}, "", "no file recipe.toml"},
		"syntax":            {change(`name = "tiny"`, `name = "tiny`), "", "line 2"},
		"unknown field":     {change("suite =", "release = 1\nsuite ="), "rootfs.release", "line 7: rootfs.release is not a field"},
		"wrong type":        {change("memory_mb = 512", `memory_mb = "512"`), "limits.memory_mb", "line 5"},
		"no name":           {change(`name = "tiny"`, ""), "name", "lower-case"},
		"path in name":      {change(`name = "tiny"`, `name = "../tiny"`), "name", "lower-case"},
		"bad alias":         {change(`"small"`, `"Small"`), "aliases[0]", "lower-case"},
		"negative memory":   {change("memory_mb = 512", "memory_mb = -1"), "limits.memory_mb", "between 128 and"},
		"no suite":          {change(`suite = "trixie"`, ""), "rootfs.suite", "code name"},
		"option as package": {change(`"python3"]`, `"--hook=x"]`), "rootfs.packages[1]", "not the name of a package"},
		"no venv package":   {change(`"python3-venv", `, ""), "rootfs.packages", "python3-venv"},
		"python version":    {change(`"3.13"`, `"three"`), "python.version", "look like 3.13"},
		"lock missing":      {change("requirements.lock", "other.lock"), "python.requirements", "no file other.lock"},
		"lock outside":      {change("requirements.lock", "../../etc/passwd"), "python.requirements", "cannot be read"},
		"relative venv":     {change(`version = "3.13"`, "version = \"3.13\"\nvenv = \"venv\""), "python.venv", "absolute"},
		"bad import":        {change(`["json"]`, `["os; print()"]`), "snapshot.imports[0]", "not the name of a module"},
		"step's name taken": {change(`name = "fonts"`, `name = "bootstrap"`), "step[0].name", "taken"},
		"step empty":        {change(`run = "fc-cache"`, `run = " "`), "step[0].run", "no command"},
		"exclude relative":  {change("suite =", "exclude = [\"usr/share\"]\nsuite ="), "rootfs.exclude[0]", "begin with a slash"},
		"imports alone":     {change("version = \"3.13\"\nrequirements = \"requirements.lock\"", ""), "python.version", "need python.version"},
		"not pinned":        {recipeFS(goodRecipe, "requirements.lock", "six\n"), "python.requirements", "not pinned"},
		"not hashed":        {recipeFS(goodRecipe, "requirements.lock", "six==1.17.0\n"), "python.requirements", "six has no sha256 hash"},
		"option in lock":    {recipeFS(goodRecipe, "requirements.lock", "--index-url=elsewhere\n"), "python.requirements", "--index-url"},
		"empty lock":        {recipeFS(goodRecipe, "requirements.lock", "# nothing\n"), "python.requirements", "no requirement"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(test.files)
			if !errors.Is(err, fault.Invalid) {
				t.Fatalf("got %v, want an error of the kind invalid", err)
			}
			if !strings.Contains(err.Error(), test.words) {
				t.Errorf("got %q, want it to say %q", err, test.words)
			}
			var f *fault.Error
			if !errors.As(err, &f) || f.Field != test.field {
				t.Errorf("the field is %q, want %q (%v)", f.Field, test.field, err)
			}
		})
	}
}

// The packages of both recipes are laid out once.
func TestOwnRecipes(t *testing.T) {
	var bootstraps []string
	for _, name := range []string{"base", "code-interpreter"} {
		dir, err := fs.Sub(templates.Recipes, name)
		if err != nil {
			t.Fatal(err)
		}
		recipe, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if recipe.Name != name {
			t.Errorf("the recipe in %s is called %s", name, recipe.Name)
		}
		bootstraps = append(bootstraps, recipe.digests("amd64", 0, "", "").bootstrap)
	}
	if bootstraps[0] != bootstraps[1] {
		t.Error("the recipes name different packages, so that these are laid out twice")
	}
}

func TestDigestsFollowTheirInputs(t *testing.T) {
	base, err := Load(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	of := func(r Recipe) digests { return r.digests("amd64", 7, "programs", "driver 1") }
	want := of(base)
	for name, test := range map[string]struct {
		change                              func(*Recipe)
		bootstrap, wheels, rootfs, snapshot bool // change
	}{
		"nothing":       {func(r *Recipe) {}, false, false, false, false},
		"description":   {func(r *Recipe) { r.Description, r.Limits.CPU, r.Aliases = "x", 1, nil }, false, false, false, false},
		"package order": {func(r *Recipe) { r.Rootfs.Packages = []string{"python3", "python3-venv"} }, false, false, false, false},
		"package":       {func(r *Recipe) { r.Rootfs.Packages = append(r.Rootfs.Packages[:1:1], "git") }, true, false, true, true},
		"lock":          {func(r *Recipe) { r.Python.Lock = []byte("other") }, false, true, true, true},
		"step":          {func(r *Recipe) { r.Steps = []Step{{"fonts", "true"}} }, false, false, true, true},
		"imports":       {func(r *Recipe) { r.Snapshot.Imports = nil }, false, false, false, true},
		"memory":        {func(r *Recipe) { r.Limits.MemoryMB++ }, false, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := base
			test.change(&changed)
			got := of(changed)
			for part, differs := range map[string][2]bool{
				"bootstrap": {got.bootstrap != want.bootstrap, test.bootstrap},
				"wheels":    {got.wheels != want.wheels, test.wheels},
				"rootfs":    {got.rootfs != want.rootfs, test.rootfs},
				"snapshot":  {got.snapshot != want.snapshot, test.snapshot},
			} {
				if differs[0] != differs[1] {
					t.Errorf("%s changed: %v, want %v", part, differs[0], differs[1])
				}
			}
		})
	}
	for name, other := range map[string]digests{
		"programs":     base.digests("amd64", 7, "others", "driver 1"),
		"driver":       base.digests("amd64", 7, "programs", "driver 2"),
		"architecture": base.digests("arm64", 7, "programs", "driver 1"),
		"owner":        base.digests("amd64", 8, "programs", "driver 1"),
	} {
		onlySnapshot := name == "programs" || name == "driver"
		if other.snapshot == want.snapshot || (other.rootfs == want.rootfs) != onlySnapshot {
			t.Errorf("with another %s: %+v from %+v", name, other, want)
		}
	}
}
