package template

import "io/fs"

// RecipeFile is the declarative file in a recipe's folder.
const RecipeFile = "recipe.toml"

// Recipe is what a template is made from: a folder with recipe.toml and the
// files it names, read whole.
type Recipe struct {
	Name        string
	Aliases     []string
	Description string

	Limits   RecipeLimits
	Rootfs   RecipeRootfs
	Python   RecipePython
	Steps    []Step
	Env      map[string]string // of the guest agent, and so of everything in the sandbox
	Snapshot RecipeSnapshot
}

// RecipeLimits are the defaults of a sandbox made from the template.
type RecipeLimits struct {
	CPU      float64
	MemoryMB int
	DiskMB   int
	PIDs     int
}

// RecipeRootfs is what the bootstrapper lays out.
type RecipeRootfs struct {
	Suite    string
	Packages []string
	Exclude  []string // paths that packages ship and the template leaves out, shell patterns
	Keep     []string // exceptions from Exclude
}

// RecipePython is the virtual environment that kernels run in.
type RecipePython struct {
	Version string // as in "3.13"; "" for a template without kernels
	Venv    string // where it is inside
	Lock    []byte // requirements with hashes
}

// RecipeSnapshot is what happens in the sandbox before its snapshot is taken.
type RecipeSnapshot struct {
	Imports []string
	Warmup  string // Python, run once after the imports
	Spares  int
}

// Step is one command, run as root inside a sandbox without a network.
type Step struct {
	Name string
	Run  string // for /bin/sh -eu
}

// Load reads the recipe in a folder. What is wrong with it is said with the
// file and the field.
func Load(dir fs.FS) (Recipe, error) { return Recipe{}, nil }
