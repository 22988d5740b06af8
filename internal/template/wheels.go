package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// newestGlibc is the minor version of the C library that templates have at
// least (2.41 in trixie); wheels built for it or an older one run there.
const newestGlibc = 41

// downloadWheels fetches every locked requirement as a wheel, with the
// machine's own pip and its configuration. Nothing of a wheel is run: pip only
// checks its hash and writes it down. Scratch is a folder for the run.
func downloadWheels(ctx context.Context, p RecipePython, goarch, scratch, dir string, log io.Writer) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fault.Wrap(err, api.CodeUnsupported, "the program python3, which downloads wheels, is missing").WithHint("apt-get install python3-pip")
	}
	if out, err := exec.CommandContext(ctx, python, "-m", "pip", "--version").CombinedOutput(); err != nil {
		return fault.Wrap(fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out))), "unsupported", "%s has no pip", python).
			WithHint("apt-get install python3-pip")
	}
	lock := filepath.Join(dir, lockName)
	if err := os.WriteFile(lock, p.Lock, 0o644); err != nil {
		return err
	}
	args := []string{
		"-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--progress-bar=off",
		"--only-binary=:all:", "--require-hashes", "--no-deps",
		"--implementation=cp", "--python-version=" + p.Version,
	}
	for _, platform := range wheelPlatforms(goarch) {
		args = append(args, "--platform="+platform)
	}
	args = append(args, "--dest="+dir, "--requirement="+lock)
	cmd := hostCommand(ctx, syscall.SIGINT, log, python, args...)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+scratch) // pip downloads there, and moves it all at the end
	return runCommand(ctx, cmd, nil)
}

// lockName is the file beside the wheels that says what is installed.
const lockName = "requirements.lock"

// wheelPlatforms are the platform tags that run in templates, the best first.
func wheelPlatforms(goarch string) []string {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[goarch]
	oldest := map[string]int{"amd64": 5, "arm64": 17}[goarch]
	var tags []string
	for minor := newestGlibc; minor >= oldest; minor-- {
		tags = append(tags, fmt.Sprintf("manylinux_2_%d_%s", minor, machine))
		if old := map[int]string{17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}[minor]; old != "" {
			tags = append(tags, old+"_"+machine)
		}
	}
	return tags
}

// dirBytes adds up the files under a folder, hard links once each name.
func dirBytes(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it is being written to
			}
			return err
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
