//go:build ignore

// Command mkrunsc builds runsc from the gVisor module that go.mod pins, with
// the seccomp filters of the options that this driver uses worked out at build
// time. Without that each sandbox's sentry and gofer work them out for
// themselves, which is the longest single step of a restore. The filters are
// gVisor's own, computed by its own code: what it finds for these options and
// registers at start is what it would have found then.
//
//	CGO_ENABLED=0 go run -trimpath internal/driver/gvisor/mkrunsc.go -o bin/runsc
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	sentry "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// used are the parts of gVisor's names of filters that the driver's flags lead
// to: no network of the host, files opened by the sentry, no devices.
var used = []string{
	"HostNetwork=false", "HostFilesystem=true", "NVProxy=false", "TPUProxy=false", "RDMAProxy=false", "CgoEnabled=false",
}

func main() {
	out := flag.String("o", "bin/runsc", "where to put the program")
	flag.Parse()
	if err := build(*out); err != nil {
		fmt.Fprintln(os.Stderr, "mkrunsc:", err)
		os.Exit(1)
	}
}

func build(out string) error {
	dir, err := os.MkdirTemp("", "mkrunsc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	module, modfile, err := link(dir)
	if err != nil {
		return err
	}

	replace := map[string]string{}
	for pkg, compile := range map[string]func() ([]precompiledseccomp.Program, error){
		"runsc/boot/filter":    sentry.PrecompiledPrograms,
		"runsc/fsgofer/filter": gofer.PrecompiledPrograms,
	} {
		programs, err := compile()
		if err != nil {
			return fmt.Errorf("filters of %s: %w", pkg, err)
		}
		path := filepath.Join(dir, filepath.Base(filepath.Dir(pkg))+".go")
		if err := os.WriteFile(path, source(programs), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(module, pkg, "registered.go")] = path
	}
	overlay := filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, data, 0o600); err != nil {
		return err
	}

	tmp := out + ".new" // so that a program that runs is replaced, not written over
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-modfile", modfile, "-overlay", overlay, "-o", tmp, "gvisor.dev/gvisor/runsc")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := errors.Join(os.MkdirAll(filepath.Dir(out), 0o755), cmd.Run()); err != nil {
		return fmt.Errorf("build runsc: %w", err)
	}
	return errors.Join(os.Chmod(tmp, 0o755), os.Rename(tmp, out))
}

// link makes the gVisor module appear at a path outside the module cache, where
// alone go build allows files to be added, and a go.mod that says so.
func link(dir string) (module, modfile string, err error) {
	where, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		return "", "", fmt.Errorf("find the gVisor module: %w", err)
	}
	ours, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", "", fmt.Errorf("find go.mod: %w", err)
	}
	cached := strings.TrimSpace(string(where))
	module, modfile = filepath.Join(dir, "gvisor"), filepath.Join(dir, "go.mod")
	if err := os.Symlink(cached, module); err != nil {
		return "", "", err
	}
	from := strings.TrimSpace(string(ours))
	for _, ext := range []string{".mod", ".sum"} {
		data, err := os.ReadFile(strings.TrimSuffix(from, ".mod") + ext)
		if err != nil {
			return "", "", err
		}
		if err := os.WriteFile(strings.TrimSuffix(modfile, ".mod")+ext, data, 0o600); err != nil {
			return "", "", err
		}
	}
	edit := exec.Command("go", "mod", "edit", "-replace=gvisor.dev/gvisor="+module, modfile)
	if said, err := edit.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("%w: %s", err, said)
	}
	return module, modfile, nil
}

// source is a file that is added to gVisor's package filter: it fills the map
// of programs before the package would fill it with none.
func source(programs []precompiledseccomp.Program) []byte {
	var b strings.Builder
	b.WriteString("package filter\n\nimport \"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp\"\n\nfunc init() {\n\tregisterPrecompiledProgramsOnce.Do(func() {\n")
	b.WriteString("\t\tprecompiledPrograms = map[string]precompiledseccomp.Program{}\n")
	for _, p := range programs {
		if matches(p.Name) {
			b.WriteString(p.Registration("\t\t", "precompiledseccomp", "precompiledPrograms"))
		}
	}
	b.WriteString("\t})\n}\n")
	return []byte(b.String())
}

// matches says whether no part of a name contradicts the parts that are used.
func matches(name string) bool {
	for _, part := range used {
		key, _, _ := strings.Cut(part, "=")
		if strings.Contains(name, key+"=") && !strings.Contains(name, part) {
			return false
		}
	}
	return true
}
