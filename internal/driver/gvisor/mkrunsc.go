//go:build ignore

// Command mkrunsc builds runsc from the gVisor module that go.mod pins, with
// the seccomp filters of the options that this driver uses worked out at build
// time. Without that each sandbox's sentry and gofer work them out for
// themselves, which is the longest single step of a restore. The filters are
// gVisor's own, computed by its own code: what it finds for these options and
// registers at start is what it would have found then.
//
// It also adds the files in the folder added to gVisor's packages, with which
// limits can be changed and looked at while a sandbox runs, and changes a few
// lines, each of which must be found exactly once: see edits.
//
//	CGO_ENABLED=0 go run -trimpath internal/driver/gvisor/mkrunsc.go -o bin/runsc
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	sentry "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

// programs are the filters to register, by gVisor's package: those of the
// options that the driver's flags lead to. Other options still work, and get
// their filters made at start.
func programs() (map[string][]precompiledseccomp.Program, error) {
	made := map[string][]precompiledseccomp.Program{}
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		return nil, err
	}
	for _, info := range systrap.PrecompiledSeccompInfo() {
		opt := sentry.Options{Platform: info, HostFilesystem: true}
		p, err := precompiledseccomp.Precompile(opt.ConfigKey(), names(opt.Vars()), func(v precompiledseccomp.Values) *seccomp.Program {
			allow, deny := sentryRules(opt, v)
			return program(allow, deny, sentry.SeccompOptions(opt))
		})
		if err != nil {
			return nil, fmt.Errorf("the sentry's filter: %w", err)
		}
		made["runsc/boot/filter"] = append(made["runsc/boot/filter"], p)
	}
	for _, lisafs := range []bool{false, true} {
		opt := gofer.Options{UDSOpenEnabled: true, DirectFS: true, LisafsNeeded: lisafs}
		p, err := precompiledseccomp.Precompile(opt.ConfigKey(), names(opt.Vars()), func(v precompiledseccomp.Values) *seccomp.Program {
			allow, deny := goferRules(opt, v)
			return program(allow, deny, seccomp.ProgramOptions{})
		})
		if err != nil {
			return nil, fmt.Errorf("the gofer's filter: %w", err)
		}
		made["runsc/fsgofer/filter"] = append(made["runsc/fsgofer/filter"], p)
	}
	return made, nil
}

// The functions behind gVisor's own tables of filters, which it exports only
// for all of its hundreds of combinations at once.

//go:linkname sentryRules gvisor.dev/gvisor/runsc/boot/filter/config.rules
func sentryRules(sentry.Options, precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)

//go:linkname goferRules gvisor.dev/gvisor/runsc/fsgofer/filter/config.rules
func goferRules(gofer.Options, precompiledseccomp.Values) (allow, deny seccomp.SyscallRules)

// program puts rules together as the sentry and the gofer do.
func program(allow, deny seccomp.SyscallRules, opts seccomp.ProgramOptions) *seccomp.Program {
	return &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: deny.Copy()}, {Rules: allow.Copy(), Action: seccomp.Allow}},
		Options:  opts,
	}
}

func names(vars precompiledseccomp.Values) []string { return slices.Collect(maps.Keys(vars)) }

func main() {
	out := flag.String("o", "bin/runsc", "where to put the program")
	arch := flag.String("arch", runtime.GOARCH, "what to build it for; filters are worked out only for this machine's own")
	flag.Parse()
	if err := build(*out, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "mkrunsc:", err)
		os.Exit(1)
	}
}

func build(out, arch string) error {
	dir, err := os.MkdirTemp("", "mkrunsc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	module, modfile, err := link(dir)
	if err != nil {
		return err
	}

	made := map[string][]precompiledseccomp.Program{}
	if arch == runtime.GOARCH {
		if made, err = programs(); err != nil {
			return err
		}
	}
	replace := map[string]string{}
	for pkg, programs := range made {
		path := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".go")
		if err := os.WriteFile(path, source(programs), 0o600); err != nil {
			return err
		}
		replace[filepath.Join(module, pkg, "registered.go")] = path
	}
	if err := change(dir, module, replace); err != nil {
		return err
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
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := errors.Join(os.MkdirAll(filepath.Dir(out), 0o755), cmd.Run()); err != nil {
		return fmt.Errorf("build runsc: %w", err)
	}
	return errors.Join(os.Chmod(tmp, 0o755), os.Rename(tmp, out))
}

// copyUnit is how much a write to memory that is shared after a fork copies.
const copyUnit = 32 << 10

//go:embed added/*.go
var added embed.FS

// additions are files that are added to gVisor's packages.
var additions = map[string]string{
	"added/boot.go":    "runsc/boot",
	"added/kernel.go":  "pkg/sentry/kernel",
	"added/mm.go":      "pkg/sentry/mm",
	"added/overlay.go": "pkg/sentry/fsimpl/overlay",
	"added/tcp.go":     "pkg/tcpip/transport/tcp",
	"added/pgalloc.go": "pkg/sentry/pgalloc",
	"added/stateio.go": "pkg/sentry/state/stateio",
	"added/tmpfs.go":   "pkg/sentry/fsimpl/tmpfs",
}

// edit changes a text in one of gVisor's files, which must be there once.
type edit struct{ file, from, to string }

var edits = []edit{
	// How much of a forked process's memory a write copies. gVisor copies the 2 MiB
	// around it, and so nearly all that an interpreter has, since reference counts
	// lie everywhere.
	{"pkg/sentry/mm/pma.go",
		"copyAR = pseg.Range().Intersect(hugeMaskAR)\n",
		fmt.Sprintf("copyAR = pseg.Range().Intersect(hostarch.AddrRange{Start: ar.Start &^ (%[1]d - 1), End: (ar.End + %[1]d - 1) &^ (%[1]d - 1)})\n", copyUnit)},
	// The file system at /dev holds devices and links. Its size is half the host's
	// memory otherwise, whatever the description says.
	{"pkg/sentry/fsimpl/dev/dev.go", `"mode=0755",`, `"mode=0755,size=4m,nr_inodes=4096",`},
	// Writes that a full file system refuses are counted.
	{"pkg/sentry/fsimpl/tmpfs/tmpfs.go", "pagesUsed atomicbitops.Uint64\n", "pagesUsed atomicbitops.Uint64\n\n\trefused atomicbitops.Uint64 `state:\"nosave\"`\n"},
	{"pkg/sentry/fsimpl/tmpfs/filesystem.go",
		"\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\treturn 0\n", "\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\tfs.refused.Add(1)\n\t\t\treturn 0\n"},
	{"pkg/sentry/fsimpl/tmpfs/filesystem.go",
		"\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\treturn false\n", "\t\tif fs.maxSizeInPages <= pagesUsed {\n\t\t\tfs.refused.Add(1)\n\t\t\treturn false\n"},
	{"pkg/sentry/fsimpl/tmpfs/filesystem.go",
		"\t\tif pagesFree < pagesInc {\n\t\t\treturn false\n", "\t\tif pagesFree < pagesInc {\n\t\t\tfs.refused.Add(1)\n\t\t\treturn false\n"},
	// A packet socket is made part of a group of one, which hands it all packets as
	// before, and for which the host's kernel waits until no processor looks at it.
	{"runsc/boot/controller.go", "\t\t\tif isPacket {\n", "\t\t\tif isPacket && link.NumChannels > 1 {\n"},
	// A connection that a copy has no more is reset, rather than at its end: what was
	// received would pass for all there is.
	{"pkg/tcpip/transport/tcp/endpoint_state.go",
		"\t// attempt to send RST as route will be nil.\n", "\t// attempt to send RST as route will be nil.\n\te.hardError = &tcpip.ErrConnectionReset{}\n"},
	// So are processes that the limit of processes refuses.
	{"pkg/sentry/kernel/kernel.go",
		"\t\tuc.rlimitNProc.Add(^uint64(0))\n\t\treturn linuxerr.EAGAIN\n", "\t\tuc.rlimitNProc.Add(^uint64(0))\n\t\ttasksRefused.Add(1)\n\t\treturn linuxerr.EAGAIN\n"},
	// Pages are read by a few goroutines. gVisor takes 128, each with a thread of the
	// host while it reads, and lets the sentry run on as many cores more.
	{"pkg/sentry/state/stateio/pagesfile.go", "pagesFileFDDefaultMaxParallel = 128", "pagesFileFDDefaultMaxParallel = 4"},
	// Pages of a snapshot can be loaded when they are asked for: see added/pgalloc.go.
	{"pkg/sentry/pgalloc/save_restore.go", "type AsyncPagesFileLoad struct {\n", "type AsyncPagesFileLoad struct {\n\tended chan struct{} // closed when nothing will be loaded any more\n\twaits bool          // it has read all but what nobody has asked for\n\n"},
	{"pkg/sentry/pgalloc/save_restore.go", "\tgo apfl.main()\n", "\tapfl.ended = make(chan struct{})\n\tloading.Store(apfl)\n\tgo func() {\n\t\tdefer close(apfl.ended)\n\t\tapfl.main()\n\t}()\n"},
	{"pkg/sentry/pgalloc/save_restore.go", "\tapfl.mu.Unlock()\n\tif pending {\n", "\tapfl.mu.Unlock()\n\tif pending {\n\t\tapfl.lfStatus.Notify(aplLFPending)\n"},
	{"pkg/sentry/pgalloc/save_restore.go", "\tfr.End = hostarch.MustPageRoundUp(fr.End)\n\n\tapfl := amfl.pf\n",
		"\tfr.End = hostarch.MustPageRoundUp(fr.End)\n\n\tapfl := amfl.pf\n\tif onDemand.Load() {\n\t\tamfl.readNow(fr)\n\t}\n"},
	{"pkg/sentry/pgalloc/save_restore.go",
		"// Fill remaining queue with reads for pages with no waiters.\n\t\tif apfl.canEnqueue() {\n", "// Fill remaining queue with reads for pages with no waiters.\n\t\tif !onDemand.Load() && apfl.canEnqueue() {\n"},
	{"pkg/sentry/pgalloc/save_restore.go", "\t\t\tif ev&aplLFDone != 0 {\n", "\t\t\tif ev&aplLFDone != 0 && apfl.idle() {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tif ev&aplLFDone != 0 {\n"},
	{"pkg/sentry/pgalloc/save_restore.go", "\t\t\t\t\tapfl.amfls.Remove(amfl)\n", "\t\t\t\t\tapfl.amfls.Remove(amfl)\n\t\t\t\t\tif apfl.waits {\n\t\t\t\t\t\tapfl.lfStatus.Notify(aplLFDone)\n\t\t\t\t\t}\n"},
	{"pkg/sentry/pgalloc/pgalloc.go", "\tf.decommitOrManuallyZero(fr)\n\n\tf.mu.Lock()\n\tdefer f.mu.Unlock()\n",
		"\tif l := f.asyncPageLoad.Load(); l != nil {\n\t\t_ = l.awaitLoad(fr) // or what was thrown away would come back\n\t}\n\tf.decommitOrManuallyZero(fr)\n\n\tf.mu.Lock()\n\tdefer f.mu.Unlock()\n"},
	{"runsc/boot/restore.go", "\tdefer timer.Log()\n", "\tif !pgalloc.OnDemand() { // it looks again and again whether all is loaded\n\t\tdefer timer.Log()\n\t}\n"},
	{"runsc/boot/restore.go", "\t// Wait for page loading to complete if happening in the background.\n\tif r.asyncMFLoader != nil {\n",
		"\tif r.asyncMFLoader != nil && pgalloc.OnDemand() {\n\t\tgo endWithoutPages(k, r.asyncMFLoader)\n\t} else if r.asyncMFLoader != nil {\n"},
	// Neither while memory is laid out in a file, nor while it is read back, is there garbage worth
	// collecting: see added/boot.go.
	{"runsc/boot/controller.go", "\ttimer := starttime.Timer(\"Restore\")\n", "\tdefer collectLater()()\n\ttimer := starttime.Timer(\"Restore\")\n"},
	{"runsc/boot/controller.go", "\treturn cm.l.save(o)\n", "\tholding.Lock()\n\tdefer holding.Unlock()\n\tdefer collectLater()()\n\treturn cm.l.save(o)\n"},
	// While pages are loaded, no more of them are waited for than are needed: see added/mm.go.
	{"pkg/sentry/mm/address_space.go", "setMapUnit(32 << 20)", "setMapUnit(loadUnit(mf, pseg, ar))"},
	{"pkg/sentry/mm/pma.go",
		"\t\t\t\t\tif err := pseg.getInternalMappingsLocked(); err != nil {\n\t\t\t\t\t\treturn pstart, pseg.PrevGap(), err\n\t\t\t\t\t}\n",
		"\t\t\t\t\tfrom, part, err := pseg.partMappings(copyAR)\n\t\t\t\t\tif err == nil && !part {\n\t\t\t\t\t\tif err = pseg.getInternalMappingsLocked(); err == nil {\n" +
			"\t\t\t\t\t\t\tfrom = mm.internalMappingsLocked(pseg, copyAR)\n\t\t\t\t\t\t}\n\t\t\t\t\t}\n\t\t\t\t\tif err != nil {\n\t\t\t\t\t\treturn pstart, pseg.PrevGap(), err\n\t\t\t\t\t}\n"},
	{"pkg/sentry/mm/pma.go", "reader := safemem.BlockSeqReader{Blocks: mm.internalMappingsLocked(pseg, copyAR)}", "reader := safemem.BlockSeqReader{Blocks: from}"},
	{"pkg/sentry/mm/io.go",
		"\t\t// directly, avoiding a slice allocation.\n\t\tif err := pseg.getInternalMappingsLocked(); err != nil {\n",
		"\t\t// directly, avoiding a slice allocation.\n\t\tif part, ok, err := pseg.partMappings(ar); ok || err != nil {\n\t\t\treturn part, nil, err\n\t\t}\n\t\tif err := pseg.getInternalMappingsLocked(); err != nil {\n"},
	{"pkg/sentry/mm/io.go",
		"\t\tif err := pseg.getInternalMappingsLocked(); err == nil {\n",
		"\t\tif part, ok, err := pseg.partMappings(pmaAR); ok {\n\t\t\tfor ; !part.IsEmpty(); part = part.Tail() {\n\t\t\t\tims = append(ims, part.Head())\n\t\t\t}\n\t\t\tunbufBytes += uint64(pmaAR.Length())\n" +
			"\t\t} else if err != nil {\n\t\t\treturn ims, t, unbufBytes, err\n\t\t} else if err := pseg.getInternalMappingsLocked(); err == nil {\n"},
}

// change makes the changed and added files, and says in replace where they
// stand for gVisor's own.
func change(dir, module string, replace map[string]string) error {
	texts := map[string][]byte{}
	for _, e := range edits {
		text, ok := texts[e.file]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(module, e.file)); err != nil {
				return err
			}
		}
		if n := bytes.Count(text, []byte(e.from)); n != 1 {
			return fmt.Errorf("%s has %q %d times, not once", e.file, e.from, n)
		}
		texts[e.file] = bytes.Replace(text, []byte(e.from), []byte(e.to), 1)
	}
	for name, pkg := range additions {
		text, err := added.ReadFile(name)
		if err != nil {
			return err
		}
		texts[filepath.Join(pkg, "pandastack.go")] = bytes.TrimPrefix(text, []byte("//go:build ignore\n"))
	}
	for file, text := range texts {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		replace[filepath.Join(module, file)] = path
	}
	return nil
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
		b.WriteString(p.Registration("\t\t", "precompiledseccomp", "precompiledPrograms"))
	}
	b.WriteString("\t})\n}\n")
	return []byte(b.String())
}
