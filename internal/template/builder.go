package template

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// Driver is what a build needs of a driver. One that also is a
// driver.Fingerprinter has new snapshots made when its fingerprint changes, and
// one that is a driver.RootOwner has the owners of files raised.
type Driver interface {
	driver.Driver
	driver.Builder
	driver.Snapshotter
}

// Builder makes templates.
type Builder struct {
	Store    *Store
	Driver   Driver           // whose sandboxes are builds' alone: what it still has at the start of one is ended
	Programs fs.FS            // guest (the static agent) and kernel/ (the interpreter side)
	Mirror   string           // a line of sources.list instead of the machine's own; its suite is replaced
	Link     Linker           // nil: package guest's
	Log      *slog.Logger     // nil: none
	Now      func() time.Time // nil: the clock
}

// hostAptDir is where the machine's package manager is configured.
const hostAptDir = "/etc/apt"

// Build makes the template of a recipe, or finds that all or part of it is
// there already. Progress may be nil; it is called by one goroutine at a time.
// The failure of a step is a *StepError.
func (b *Builder) Build(ctx context.Context, recipe Recipe, progress func(Event)) (Template, error) {
	now := time.Now
	if b.Now != nil {
		now = b.Now
	}
	logger := b.Log
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if err := recipe.validate(); err != nil {
		return Template{}, err
	}
	start := now()
	track := &tracker{now: now, steps: stepsOf(recipe), report: progress}
	unlock, err := b.Store.lock(ctx, func() {
		track.emit(Event{Kind: EventStart, Text: "waiting for another build on this machine"})
	})
	if err != nil {
		return Template{}, err
	}
	defer unlock()
	if err := b.cleanUp(ctx); err != nil {
		return Template{}, err
	}
	t, err := b.build(ctx, recipe, track, start)
	if err != nil {
		return Template{}, fmt.Errorf("build template %s: %w", recipe.Name, err)
	}
	logger.Info("template built", "template", t.Name, "digest", t.Digest, "seconds", now().Sub(start).Seconds())
	return t, nil
}

// CleanUp ends and removes what a build left that was killed. While a build
// runs, the error is of kind fault.Conflict.
func (b *Builder) CleanUp(ctx context.Context) error {
	unlock, err := b.Store.tryLock()
	if err != nil {
		return err
	}
	if unlock == nil {
		return fault.New("conflict", "a template is being built on this machine").WithHint("wait for its end, or interrupt it")
	}
	defer unlock()
	return b.cleanUp(ctx)
}

// cleanUp is CleanUp for who holds the lock.
func (b *Builder) cleanUp(ctx context.Context) error {
	if _, err := b.Driver.Sweep(ctx, nil); err != nil {
		return fmt.Errorf("end the sandboxes of an unfinished build: %w", err)
	}
	return b.Store.cleanStaging()
}

// stepsOf lists the steps that a build from nothing would take.
func stepsOf(recipe Recipe) []string {
	steps := []string{StepBootstrap}
	if recipe.Python.Version != "" {
		steps = append(steps, StepWheels, StepSystem, StepInstall, StepCompile)
	} else {
		steps = append(steps, StepSystem)
	}
	for _, step := range recipe.Steps {
		steps = append(steps, step.Name)
	}
	return append(steps, StepWarm, StepSnapshot, StepCheck)
}

// build does what is missing. The caller holds the lock.
func (b *Builder) build(ctx context.Context, recipe Recipe, track *tracker, start time.Time) (t Template, err error) {
	programs, err := b.Store.putPrograms(b.Programs)
	if err != nil {
		return Template{}, err
	}
	fingerprint := ""
	if f, ok := b.Driver.(driver.Fingerprinter); ok {
		if fingerprint, err = f.Fingerprint(ctx); err != nil {
			return Template{}, fmt.Errorf("ask the driver for its version: %w", err)
		}
	}
	staging, err := b.Store.stage(recipe.Name + "-")
	if err != nil {
		return Template{}, err
	}
	defer func() { err = errors.Join(err, removeTree(staging)) }()
	log, err := os.OpenFile(filepath.Join(b.Store.logs(), recipe.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return Template{}, err
	}
	defer log.Close()
	r := &run{
		b: b, recipe: recipe, track: track, staging: staging, log: log,
		programs: b.Store.programsDir(programs),
		digests:  recipe.digests(runtime.GOARCH, b.rootOwner(), programs, fingerprint),
	}
	rootfsBytes, err := r.rootfs(ctx)
	if err != nil {
		return Template{}, err
	}
	if t, err = r.snapshot(ctx, rootfsBytes, programs, start); err != nil {
		return Template{}, err
	}
	if err := b.Store.point(t); err != nil {
		return Template{}, err
	}
	return t, nil
}

func (b *Builder) rootOwner() int {
	if o, ok := b.Driver.(driver.RootOwner); ok {
		return o.RootOwner()
	}
	return 0
}

// step runs one step of the build on the host or in a sandbox. Its failure
// names the step and shows the end of its log.
func (r *run) step(name, text string, bytes func() int64, do func() error) error {
	// A build that finds everything there leaves the log of the one that made it.
	r.fresh.Do(func() { _ = r.log.Truncate(0) })
	fmt.Fprintf(r.log, "\n=== %s\n", name)
	end := r.track.begin(name, text, bytes)
	err := do()
	end(err)
	if err == nil {
		return nil
	}
	fmt.Fprintf(r.log, "=== %s failed: %v\n", name, err)
	failed := &StepError{Step: name, Log: r.log.Name(), Err: err}
	var exit *stepExit
	if errors.As(err, &exit) {
		failed.Tail = exit.tail
	} else {
		failed.Tail = tailOf(filepath.Join(r.staging, name+".log"))
	}
	return failed
}

// rootfs makes the root filesystem if it is not there.
func (r *run) rootfs(ctx context.Context) (bytes int64, err error) {
	s := r.b.Store
	dir := filepath.Join(s.rootfs(), r.digests.rootfs)
	made, err := readRootfs(filepath.Join(dir, rootfsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err == nil {
		for _, step := range r.track.steps[:len(r.track.steps)-3] {
			r.track.skip(step, "unchanged")
		}
		return made.Bytes, nil
	}
	if err := checkSpace(r.staging, rootfsSpace); err != nil {
		return 0, err
	}
	out := filepath.Join(r.staging, "rootfs")
	root := filepath.Join(out, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return 0, err
	}
	if err := os.Chmod(out, 0o711); err != nil {
		return 0, err
	}
	both, both_ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return r.bootstrap(both_ctx, root) })
	if r.recipe.Python.Version != "" {
		both.Go(func() error { return r.wheels(both_ctx) })
	}
	if err := both.Wait(); err != nil {
		return 0, err
	}
	if err := makeMountPoints(root, r.b.rootOwner()); err != nil {
		return 0, err
	}
	for _, step := range r.insideSteps() {
		err := r.step(step.Name, "", nil, func() error {
			return r.inside(ctx, root, step.Name, step.Run, r.wheelBinds())
		})
		if err != nil {
			return 0, err
		}
	}
	made = rootfsMade{Bytes: dirBytes(root), Recipe: r.recipe.Name, Bootstrap: r.digests.bootstrap, Wheels: r.digests.wheels}
	raw, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(out, rootfsFile), raw, 0o644); err != nil {
		return 0, err
	}
	return made.Bytes, publish(out, dir)
}

// rootfsMade is what stands beside a root filesystem.
type rootfsMade struct {
	Recipe    string `json:"recipe"` // the first that made it
	Bytes     int64  `json:"bytes"`
	Bootstrap string `json:"bootstrap"`
	Wheels    string `json:"wheels,omitempty"`
}

const (
	rootfsFile   = "rootfs.json"
	bootstrapExt = ".tar.zst"
)

func readRootfs(file string) (made rootfsMade, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return made, err
	}
	if err := json.Unmarshal(raw, &made); err != nil {
		return made, fmt.Errorf("the description %s of a root filesystem is damaged: %w", file, err)
	}
	return made, nil
}

// insideSteps are the steps that run in a sandbox, in order.
func (r *run) insideSteps() []Step {
	steps := []Step{{StepSystem, systemScript}}
	if r.recipe.Python.Version != "" {
		steps = append(steps, Step{StepInstall, installScript}, Step{StepCompile, compileScript})
	}
	return slices.Concat(steps, r.recipe.Steps)
}

func (r *run) wheelBinds() map[string]string {
	if r.digests.wheels == "" {
		return nil
	}
	return map[string]string{wheelsMount: r.wheelCache()}
}

func (r *run) wheelCache() string {
	return filepath.Join(r.b.Store.cache(), "wheels", r.digests.wheels)
}

func (r *run) bootstrapCache() string {
	return filepath.Join(r.b.Store.cache(), "bootstrap", r.digests.bootstrap+bootstrapExt)
}

// bootstrap lays the distribution's packages out in root.
func (r *run) bootstrap(ctx context.Context, root string) error {
	var moved atomic.Int64
	cache := r.bootstrapCache()
	if _, err := os.Stat(cache); err == nil {
		return r.step(StepBootstrap, "from the cache", moved.Load, func() error {
			return extractCached(ctx, cache, root, r.b.rootOwner(), &moved)
		})
	}
	text := fmt.Sprintf("%s with %d packages and what they need", r.recipe.Rootfs.Suite, len(r.recipe.Rootfs.Packages))
	return r.step(StepBootstrap, text, moved.Load, func() error {
		scratch := filepath.Join(r.staging, "bootstrap")
		if err := os.Mkdir(scratch, 0o711); err != nil {
			return err
		}
		archive := filepath.Join(r.staging, "bootstrap.tar.zst")
		boot := bootstrapper{etcApt: os.DirFS(hostAptDir), host: hostAptDir, mirror: r.b.Mirror, arch: debianArch(runtime.GOARCH)}
		err := r.hostStep(StepBootstrap, func(log *os.File) error {
			return boot.run(ctx, r.recipe.Rootfs, scratch, archive, root, r.b.rootOwner(), log, &moved)
		})
		if err != nil {
			return err
		}
		return os.Rename(archive, cache)
	})
}

// wheels downloads what the requirements name.
func (r *run) wheels(ctx context.Context) error {
	if _, err := os.Stat(r.wheelCache()); err == nil {
		r.track.skip(StepWheels, "in the cache")
		return nil
	}
	dir, scratch := filepath.Join(r.staging, "wheels"), filepath.Join(r.staging, "pip")
	bytes := func() int64 { return dirBytes(dir) + dirBytes(scratch) }
	return r.step(StepWheels, "with pip", bytes, func() error {
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(scratch, 0o700)); err != nil {
			return err
		}
		err := r.hostStep(StepWheels, func(log *os.File) error {
			return downloadWheels(ctx, r.recipe.Python, runtime.GOARCH, scratch, dir, log)
		})
		if err != nil {
			return err
		}
		return publish(dir, r.wheelCache())
	})
}

// hostStep gives a step on the host a log file of its own.
func (r *run) hostStep(name string, do func(log *os.File) error) error {
	log, err := os.Create(filepath.Join(r.staging, name+".log"))
	if err != nil {
		return err
	}
	err = do(log)
	return errors.Join(err, log.Close(), r.appendLog(log.Name()))
}

// newID makes an id for a sandbox of a build. Ids have one length.
func newID() string {
	raw := make([]byte, 10)
	_, _ = rand.Read(raw) // never fails
	return hex.EncodeToString(raw)
}

// invalidImports is the error for modules that a template cannot import.
func invalidImports(failed map[string]string) error {
	var names []string
	for name := range failed {
		names = append(names, name)
	}
	slices.Sort(names)
	text := ""
	for _, name := range names {
		text += "\n  " + name + ": " + failed[name]
	}
	return fault.InvalidField("snapshot.imports", "the template cannot import%s", text)
}
