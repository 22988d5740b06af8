package template

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// bootstrapper lays out a distribution's packages with mmdebstrap, from the
// archives, keys and proxies that the machine's own package manager uses.
type bootstrapper struct {
	etcApt fs.FS  // stands for /etc/apt
	host   string // the path of etcApt on the host
	mirror string // a line of sources.list instead of the machine's own
	arch   string // Debian's name of the architecture
}

// debianArch gives Debian's name of a Go architecture.
func debianArch(goarch string) string { return goarch }

// run writes the root filesystem's archive, compressed, to cache, and lays it
// out in dir at the same time. Scratch is a folder for the run.
func (b bootstrapper) run(ctx context.Context, r RecipeRootfs, scratch, cache, dir string, raise int, log io.Writer, bytes *atomic.Int64) error {
	if _, err := exec.LookPath("mmdebstrap"); err != nil {
		return fault.Wrap(err, api.CodeUnsupported, "the program mmdebstrap, which lays out packages, is missing").WithHint("apt-get install mmdebstrap")
	}
	sources, err := b.sources(r.Suite, scratch)
	if err != nil {
		return err
	}
	args := slices.Concat(
		[]string{"--variant=minbase", "--format=tar", "--architectures=" + b.arch},
		b.aptOptions(ctx),
		packageOptions(r),
		[]string{
			// What the machine needed to get at the packages is not the sandbox's business.
			`--customize-hook=rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap`,
			"--customize-hook=upload sources.list /etc/apt/sources.list",
			r.Suite, "-",
		},
		sources,
	)
	cmd := hostCommand(ctx, syscall.SIGTERM, log, "mmdebstrap", args...)
	cmd.Dir = scratch
	cmd.Env = append(cmd.Environ(), "TMPDIR="+scratch)
	cmd.Stdout = nil
	stream, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	return runCommand(ctx, cmd, func() error { return saveAndExtract(ctx, stream, cache, dir, raise, bytes) })
}

// sources gives the lines for the bootstrapper, and writes into scratch the
// sources.list that sandboxes get: the same without credentials and host paths.
func (b bootstrapper) sources(suite, scratch string) ([]string, error) {
	var picked []aptSource
	if b.mirror != "" {
		picked = parseOneLine("the configured mirror", b.mirror)
		if len(picked) != 1 {
			return nil, fault.InvalidField("mirror", "the mirror %q is not a line of sources.list such as \"deb URI suite main\"", b.mirror)
		}
		picked[0].Suites = []string{suite}
	} else {
		all, err := readAptSources(b.etcApt)
		if err != nil {
			return nil, err
		}
		if picked, err = bootstrapSources(all, suite); err != nil {
			return nil, err
		}
	}
	var lines []string
	var inside strings.Builder
	for i, src := range picked {
		signedBy := strings.Join(strings.Fields(src.SignedBy), ",")
		if block, ok := src.keyBlock(); ok {
			signedBy = filepath.Join(scratch, fmt.Sprintf("key-%d.asc", i))
			if err := os.WriteFile(signedBy, []byte(block), 0o644); err != nil {
				return nil, err
			}
		}
		for line := range strings.Lines(src.line(signedBy)) {
			lines = append(lines, strings.TrimSpace(line))
		}
		src.Options = nil
		inside.WriteString(withoutCredentials(src).line("/usr/share/keyrings/debian-archive-keyring.gpg"))
	}
	return lines, os.WriteFile(filepath.Join(scratch, "sources.list"), []byte(inside.String()), 0o644)
}

// aptOptions hands on how this machine reaches its archives: proxies, private
// certificate authorities, client certificates, credentials.
func (b bootstrapper) aptOptions(ctx context.Context) []string {
	options := []string{`--aptopt=APT::Install-Recommends "false"`, `--aptopt=Acquire::Languages "none"`}
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "Acquire").Output()
	if err == nil {
		options = append(options, acquireOptions(string(out))...)
	}
	for name, key := range map[string]string{"auth.conf": "netrc", "auth.conf.d": "netrcparts"} {
		if _, err := fs.Stat(b.etcApt, name); err == nil {
			options = append(options, fmt.Sprintf("--aptopt=Dir::Etc::%s %q", key, filepath.Join(b.host, name)))
		}
	}
	slices.Sort(options)
	return options
}

// acquireOptions picks from `apt-config dump` what says how to reach archives.
func acquireOptions(dump string) []string {
	var options []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSuffix(strings.TrimSpace(line), ";")
		key, _, _ := strings.Cut(line, " ")
		parts := strings.Split(strings.ToLower(key), "::")
		if len(parts) < 2 || parts[0] != "acquire" {
			continue
		}
		transport := slices.Contains([]string{"http", "https", "ftp", "tor"}, parts[1])
		plain := slices.Contains([]string{"check-date", "check-valid-until", "retries", "forceipv4", "forceipv6"}, parts[1])
		if transport || plain {
			options = append(options, "--aptopt="+line)
		}
	}
	return options
}

func packageOptions(r RecipeRootfs) []string {
	var options []string
	for _, pattern := range r.Exclude {
		options = append(options, "--dpkgopt=path-exclude="+pattern)
	}
	for _, pattern := range r.Keep { // dpkg lets the last match decide
		options = append(options, "--dpkgopt=path-include="+pattern)
	}
	if len(r.Packages) > 0 {
		options = append(options, "--include="+strings.Join(r.Packages, ","))
	}
	return options
}

// saveAndExtract reads a tar stream once for both.
func saveAndExtract(ctx context.Context, stream io.Reader, cache, dir string, raise int, bytes *atomic.Int64) (err error) {
	f, err := os.OpenFile(cache, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2))
	if err != nil {
		return err
	}
	tee := io.TeeReader(&countingReader{stream, bytes}, packed)
	if err := extract(ctx, dir, bufio.NewReaderSize(tee, 1<<20), raise); err != nil {
		return errors.Join(err, packed.Close())
	}
	if _, err := io.Copy(io.Discard, tee); err != nil { // the padding after the archive's end
		return errors.Join(err, packed.Close())
	}
	return packed.Close()
}

// extractCached lays out an archive that saveAndExtract kept.
func extractCached(ctx context.Context, cache, dir string, raise int, bytes *atomic.Int64) error {
	f, err := os.Open(cache)
	if err != nil {
		return err
	}
	defer f.Close()
	unpacked, err := zstd.NewReader(f)
	if err != nil {
		return err
	}
	defer unpacked.Close()
	return extract(ctx, dir, &countingReader{unpacked, bytes}, raise)
}

// countingReader counts for progress.
type countingReader struct {
	io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}
