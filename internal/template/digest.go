package template

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// layout is raised when this package builds something else from the same
// recipe, so that what was built before is built again.
const layout = 1

// digestOf gives the address of a list of inputs.
func digestOf(inputs ...any) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, input := range inputs {
		// Strings, numbers, bytes, slices and maps of them: they always encode.
		if err := enc.Encode(input); err != nil {
			panic(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// digests are the addresses of a recipe's parts.
type digests struct {
	bootstrap string // the distribution's packages
	wheels    string // "" without Python
	rootfs    string // both and what the steps make of them
	snapshot  string // the root filesystem, the programs in it, the driver, what is imported
}

func (r Recipe) digests(goarch string, raise int, programs, fingerprint string) digests {
	var d digests
	packages := slices.Clone(r.Rootfs.Packages)
	slices.Sort(packages)
	d.bootstrap = digestOf(layout, "bootstrap", goarch, r.Rootfs.Suite, packages, r.Rootfs.Exclude, r.Rootfs.Keep)
	if r.Python.Version != "" {
		d.wheels = digestOf(layout, "wheels", goarch, r.Python.Version, r.Python.Lock)
	}
	d.rootfs = digestOf(layout, "rootfs", d.bootstrap, d.wheels, raise, r.Python.Venv, systemScript, installScript, compileScript, r.Steps)
	d.snapshot = digestOf(layout, "snapshot", d.rootfs, programs, fingerprint, r.Limits.MemoryMB,
		r.Python.Interpreter(), r.Snapshot.Imports, r.Snapshot.Warmup, r.Snapshot.Spares)
	return d
}
