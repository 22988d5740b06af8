package template

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// RecipeFile is the declarative file in a recipe's folder.
const RecipeFile = "recipe.toml"

// maxRecipeBytes bounds each file of a recipe.
const maxRecipeBytes = 4 << 20

// Recipe is what a template is made from: a folder with recipe.toml and the
// files it names, read whole.
type Recipe struct {
	Name        string         `toml:"name"`
	Aliases     []string       `toml:"aliases"`
	Description string         `toml:"description"`
	Limits      RecipeLimits   `toml:"limits"`
	Rootfs      RecipeRootfs   `toml:"rootfs"`
	Python      RecipePython   `toml:"python"`
	Steps       []Step         `toml:"step"`
	Snapshot    RecipeSnapshot `toml:"snapshot"`
}

// RecipeLimits are the defaults of a sandbox made from the template.
type RecipeLimits struct {
	CPU      float64 `toml:"cpu"`
	MemoryMB int     `toml:"memory_mb"`
	DiskMB   int     `toml:"disk_mb"`
	PIDs     int     `toml:"pids"`
}

// RecipeRootfs is what the bootstrapper lays out.
type RecipeRootfs struct {
	Suite    string   `toml:"suite"`
	Packages []string `toml:"packages"`
	Exclude  []string `toml:"exclude"` // paths that packages ship and the template leaves out, as in dpkg's path-exclude
	Keep     []string `toml:"keep"`    // exceptions from Exclude
}

// RecipePython is the virtual environment that kernels run in.
type RecipePython struct {
	Version  string `toml:"version"`      // as in "3.13"; "" for a template without kernels
	Venv     string `toml:"venv"`         // where it is inside
	LockFile string `toml:"requirements"` // in the recipe's folder: every requirement pinned, with hashes
	Lock     []byte `toml:"-"`            // what LockFile holds
}

// Interpreter is the path of the environment's Python inside, "" without one.
func (p RecipePython) Interpreter() string {
	if p.Version == "" {
		return ""
	}
	return p.Venv + "/bin/python"
}

// RecipeSnapshot is what happens in the sandbox before its snapshot is taken.
type RecipeSnapshot struct {
	Imports    []string `toml:"imports"`
	WarmupFile string   `toml:"warmup"` // in the recipe's folder
	Warmup     string   `toml:"-"`      // Python, run once after the imports
	Spares     int      `toml:"spares"`
}

// Step is one command, run as root inside a sandbox without a network.
type Step struct {
	Name string `toml:"name"`
	Run  string `toml:"run"` // for /bin/sh -eu
}

var (
	nameRE    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)
	packageRE = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	suiteRE   = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	versionRE = regexp.MustCompile(`^3\.[0-9]{1,2}$`)
	moduleRE  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// Load reads the recipe in a folder. What is wrong with it is said with the
// file and the field.
func Load(dir fs.FS) (Recipe, error) {
	raw, err := readBounded(dir, RecipeFile)
	if err != nil {
		return Recipe{}, recipeFileError(err, "", RecipeFile)
	}
	r := Recipe{
		Limits:   RecipeLimits{CPU: 2, MemoryMB: 2048, DiskMB: 4096, PIDs: 512},
		Python:   RecipePython{Venv: "/opt/venv"},
		Snapshot: RecipeSnapshot{Spares: 1},
	}
	dec := toml.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return Recipe{}, decodeError(err)
	}
	if r.Python.LockFile != "" {
		if r.Python.Lock, err = readBounded(dir, r.Python.LockFile); err != nil {
			return Recipe{}, recipeFileError(err, "python.requirements", r.Python.LockFile)
		}
	}
	if r.Snapshot.WarmupFile != "" {
		warmup, err := readBounded(dir, r.Snapshot.WarmupFile)
		if err != nil {
			return Recipe{}, recipeFileError(err, "snapshot.warmup", r.Snapshot.WarmupFile)
		}
		r.Snapshot.Warmup = string(warmup)
	}
	if err := r.validate(); err != nil {
		return Recipe{}, err
	}
	return r, nil
}

// decodeError says where in recipe.toml the parser stopped, and at which key.
func decodeError(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) && len(unknown.Errors) > 0 {
		first := unknown.Errors[0]
		key := strings.Join(first.Key(), ".")
		row, _ := first.Position()
		return fault.InvalidField(key, "%s line %d: %s is not a field of a recipe", RecipeFile, row, key)
	}
	var syntax *toml.DecodeError
	if errors.As(err, &syntax) {
		row, column := syntax.Position()
		e := fault.Wrap(err, api.CodeInvalid, "%s line %d, column %d", RecipeFile, row, column)
		e.Field = strings.Join(syntax.Key(), ".")
		return e
	}
	return fault.Wrap(err, api.CodeInvalid, "%s", RecipeFile)
}

func recipeFileError(err error, field, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		e := fault.InvalidField(field, "the recipe's folder has no file %s", name)
		e.Err = err
		return e
	}
	e := fault.InvalidField(field, "%s cannot be read", name)
	e.Err = err
	return e
}

func readBounded(dir fs.FS, name string) ([]byte, error) {
	if !fs.ValidPath(name) {
		return nil, fmt.Errorf("%q is not a path inside the recipe's folder", name)
	}
	info, err := fs.Stat(dir, name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecipeBytes {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), maxRecipeBytes)
	}
	return fs.ReadFile(dir, name)
}

func (r Recipe) validate() error {
	checks := []func() error{r.checkNames, r.checkLimits, r.checkRootfs, r.checkPython, r.checkSteps}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r Recipe) checkNames() error {
	if !nameRE.MatchString(r.Name) {
		return fault.InvalidField("name", "the name %q must be 1 to 63 lower-case letters, digits, dots and dashes", r.Name)
	}
	for i, alias := range r.Aliases {
		if !nameRE.MatchString(alias) {
			return fault.InvalidField(fmt.Sprintf("aliases[%d]", i), "the alias %q must be 1 to 63 lower-case letters, digits, dots and dashes", alias)
		}
	}
	return nil
}

func (r Recipe) checkLimits() error {
	within := func(field string, value, least, most float64) error {
		if value < least || value > most {
			return fault.InvalidField(field, "%s is %v, but must be between %v and %v", field, value, least, most)
		}
		return nil
	}
	return errors.Join(
		within("limits.cpu", r.Limits.CPU, 0.1, 256),
		within("limits.memory_mb", float64(r.Limits.MemoryMB), 128, 1<<20),
		within("limits.disk_mb", float64(r.Limits.DiskMB), 64, 1<<24),
		within("limits.pids", float64(r.Limits.PIDs), 16, 1<<16),
		within("snapshot.spares", float64(r.Snapshot.Spares), 0, 16),
	)
}

func (r Recipe) checkRootfs() error {
	if !suiteRE.MatchString(r.Rootfs.Suite) {
		return fault.InvalidField("rootfs.suite", "the suite %q must be a release's code name, such as \"trixie\"", r.Rootfs.Suite)
	}
	for i, name := range r.Rootfs.Packages {
		if !packageRE.MatchString(name) {
			return fault.InvalidField(fmt.Sprintf("rootfs.packages[%d]", i), "%q is not the name of a package", name)
		}
	}
	for field, patterns := range map[string][]string{"exclude": r.Rootfs.Exclude, "keep": r.Rootfs.Keep} {
		for i, pattern := range patterns {
			if !strings.HasPrefix(pattern, "/") || strings.ContainsAny(pattern, "\n\x00") {
				return fault.InvalidField(fmt.Sprintf("rootfs.%s[%d]", field, i), "the pattern %q must begin with a slash", pattern)
			}
		}
	}
	return nil
}

func (r Recipe) checkPython() error {
	p := r.Python
	if p.Version == "" {
		if p.LockFile != "" || len(r.Snapshot.Imports) > 0 || r.Snapshot.WarmupFile != "" {
			return fault.InvalidField("python.version", "requirements, imports and a warmup need python.version")
		}
		return nil
	}
	if !versionRE.MatchString(p.Version) {
		return fault.InvalidField("python.version", "the version %q must look like 3.13", p.Version)
	}
	if !slices.Contains(r.Rootfs.Packages, "python3-venv") {
		return fault.InvalidField("rootfs.packages", "a template with Python needs the package python3-venv")
	}
	if !path.IsAbs(p.Venv) || path.Clean(p.Venv) != p.Venv || p.Venv == "/" {
		return fault.InvalidField("python.venv", "the path %q must be absolute, such as \"/opt/venv\"", p.Venv)
	}
	if p.LockFile == "" {
		return fault.InvalidField("python.requirements", "a template with Python needs locked requirements")
	}
	if err := checkLock(p.LockFile, p.Lock); err != nil {
		return err
	}
	for i, module := range r.Snapshot.Imports {
		if !moduleRE.MatchString(module) {
			return fault.InvalidField(fmt.Sprintf("snapshot.imports[%d]", i), "%q is not the name of a module", module)
		}
	}
	return nil
}

// checkLock sees that every requirement is pinned and hashed, and that nothing
// in the file sends pip elsewhere.
func checkLock(file string, lock []byte) error {
	text := strings.ReplaceAll(string(lock), "\\\n", " ")
	found := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, _, pinned := strings.Cut(line, "==")
		switch {
		case strings.HasPrefix(line, "-"):
			return fault.InvalidField("python.requirements", "%s has the option %q; only pinned requirements may stand there", file, strings.Fields(line)[0])
		case !pinned:
			return fault.InvalidField("python.requirements", "%s: %q is not pinned with ==", file, strings.Fields(line)[0])
		case !strings.Contains(line, "--hash=sha256:"):
			return fault.InvalidField("python.requirements", "%s: %s has no sha256 hash", file, strings.TrimSpace(name)).
				WithHint("compile the file again with hashes, see the comment in requirements.in")
		}
		found++
	}
	if found == 0 {
		return fault.InvalidField("python.requirements", "%s holds no requirement", file)
	}
	return nil
}

func (r Recipe) checkSteps() error {
	seen := map[string]bool{}
	for i, step := range r.Steps {
		field := fmt.Sprintf("step[%d]", i)
		switch {
		case !nameRE.MatchString(step.Name):
			return fault.InvalidField(field+".name", "the step's name %q must be lower-case letters, digits, dots and dashes", step.Name)
		case seen[step.Name] || slices.Contains(reservedSteps, step.Name):
			return fault.InvalidField(field+".name", "the step's name %q is taken", step.Name)
		case strings.TrimSpace(step.Run) == "" || strings.ContainsRune(step.Run, 0):
			return fault.InvalidField(field+".run", "the step %q has no command", step.Name)
		}
		seen[step.Name] = true
	}
	return nil
}
