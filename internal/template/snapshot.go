package template

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Time limits of what waits for something inside.
const (
	bootTime     = 60 * time.Second // from the start of a sandbox until its agent answers
	warmTime     = 5 * time.Minute  // for the imports
	snapshotTime = 5 * time.Minute
)

// snapshot makes the memory snapshot if it is not there.
func (r *run) snapshot(ctx context.Context, rootfsBytes int64, programs string, start time.Time) (Template, error) {
	s := r.b.Store
	dir := filepath.Join(s.snapshots(), r.digests.snapshot)
	t, err := s.read(filepath.Join(dir, "template.json"))
	switch {
	case err == nil && missing(t) == "":
		for _, step := range []string{StepWarm, StepSnapshot, StepCheck} {
			r.track.skip(step, "unchanged")
		}
		described := r.describe(t)
		return described, nil
	case err == nil: // something of it is gone: make it again
		if err := s.discard(dir); err != nil {
			return Template{}, err
		}
	case !errors.Is(err, os.ErrNotExist):
		return Template{}, err
	}

	out := filepath.Join(r.staging, "snapshot")
	if err := os.Mkdir(out, 0o711); err != nil {
		return Template{}, err
	}
	rootfs := filepath.Join(s.rootfs(), r.digests.rootfs, "root")
	image := filepath.Join(out, "image")
	t = r.describe(Template{
		Digest: r.digests.snapshot, RootfsDigest: r.digests.rootfs, ProgramsDigest: programs,
		RootfsBytes: rootfsBytes,
	})
	if err := r.warmAndSave(ctx, rootfs, image, &t); err != nil {
		return Template{}, err
	}
	if err := r.check(ctx, rootfs, image); err != nil {
		return Template{}, err
	}
	t.SnapshotBytes = dirBytes(image)
	t.BuiltAt = r.track.now().UTC()
	t.BuildSeconds = r.track.now().Sub(start).Seconds()
	raw, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return Template{}, err
	}
	if err := os.WriteFile(filepath.Join(out, "template.json"), raw, 0o644); err != nil {
		return Template{}, err
	}
	if err := publish(out, dir); err != nil {
		return Template{}, err
	}
	return s.read(filepath.Join(dir, "template.json"))
}

// describe writes into a template what the recipe says about it.
func (r *run) describe(t Template) Template {
	recipe := r.recipe
	t.Name, t.Aliases, t.Description = recipe.Name, recipe.Aliases, recipe.Description
	t.CPU, t.MemoryMB, t.DiskMB, t.PIDs = recipe.Limits.CPU, recipe.Limits.MemoryMB, recipe.Limits.DiskMB, recipe.Limits.PIDs
	t.Python, t.Imports, t.Spares = recipe.Python.Interpreter(), recipe.Snapshot.Imports, recipe.Snapshot.Spares
	return t
}

// sandbox is a running sandbox of a build with its agent on the line.
type sandbox struct {
	inst driver.Instance
	link Link
	Guest
}

// close ends the sandbox, if it has not ended yet.
func (s *sandbox) close(ctx context.Context) error {
	return errors.Join(s.inst.Stop(context.WithoutCancel(ctx)), s.link.Close())
}

// start makes a sandbox with a link and waits for its agent.
func (r *run) start(ctx context.Context, log string, make func(id, linkDir string) (driver.Instance, error)) (*sandbox, error) {
	id := newID()
	dir := filepath.Join(r.staging, "link-"+id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	listen := r.b.Link
	if listen == nil {
		listen = guestLinker(r.b.Log)
	}
	link, err := listen(dir, id)
	if err != nil {
		return nil, err
	}
	inst, err := make(id, dir)
	if err != nil {
		return nil, errors.Join(err, link.Close())
	}
	sb := &sandbox{inst: inst, link: link}
	err = r.whileRunning(ctx, inst, bootTime, func(ctx context.Context) (err error) {
		sb.Guest, err = link.Guest(ctx)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for the guest agent: %w", err), sb.close(ctx), r.appendLog(log))
	}
	return sb, nil
}

// whileRunning calls do, and gives up when the sandbox ends or time is up.
func (r *run) whileRunning(ctx context.Context, inst driver.Instance, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %s", limit)) })
	defer timer.Stop()
	go func() {
		if exit, err := inst.Wait(ctx); err == nil {
			cancel(fmt.Errorf("the sandbox ended (%s, status %d) %s", exit.Reason, exit.Code, exit.Detail))
		}
	}()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

// warmAndSave starts the agent and the interpreter and writes their memory.
func (r *run) warmAndSave(ctx context.Context, rootfs, image string, t *Template) error {
	log := filepath.Join(r.staging, StepWarm+".log")
	var sb *sandbox
	text := fmt.Sprintf("the agent and an interpreter with %d modules", len(r.recipe.Snapshot.Imports))
	err := r.step(StepWarm, text, nil, func() (err error) {
		sb, err = r.start(ctx, log, func(id, linkDir string) (driver.Instance, error) {
			return r.b.Driver.Boot(ctx, driver.BootSpec{
				Spec: driver.Spec{
					ID: id, Hostname: "sandbox", Rootfs: rootfs, LinkDir: linkDir, Programs: r.programs,
					DiskMB: r.recipe.Limits.DiskMB,
					Limits: driver.Limits{MemoryMB: r.recipe.Limits.MemoryMB, PIDs: r.recipe.Limits.PIDs},
				},
				Log: log,
			})
		})
		if err != nil {
			return err
		}
		if err := r.warm(ctx, sb, t); err != nil {
			return errors.Join(err, sb.close(ctx), r.appendLog(log))
		}
		return r.appendLog(log)
	})
	if err != nil {
		return err
	}
	return r.step(StepSnapshot, "", func() int64 { return dirBytes(image) }, func() error {
		ctx, cancel := context.WithTimeout(ctx, snapshotTime)
		defer cancel()
		err := r.b.Driver.Snapshot(ctx, sb.inst, image, driver.Save{Stop: true, Stays: true})
		return errors.Join(err, sb.close(ctx))
	})
}

func (r *run) warm(ctx context.Context, sb *sandbox, t *Template) error {
	recipe := r.recipe
	if recipe.Python.Version == "" {
		return nil
	}
	imports := recipe.Snapshot.Imports
	if imports == nil {
		imports = []string{} // none; nil would mean the interpreter's own list
	}
	var answer guestapi.WarmResponse
	err := r.whileRunning(ctx, sb.inst, warmTime, func(ctx context.Context) (err error) {
		answer, err = sb.Warm(ctx, guestapi.WarmRequest{
			Python: recipe.Python.Interpreter(), Imports: imports, Warmup: recipe.Snapshot.Warmup,
			Spares: recipe.Snapshot.Spares,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("warm the interpreter: %w", err)
	}
	if len(answer.Failed) > 0 {
		return invalidImports(answer.Failed)
	}
	for _, module := range slices.Sorted(maps.Keys(answer.Imports)) {
		fmt.Fprintf(r.log, "%-24s %6.3f s\n", module, answer.Imports[module])
	}
	t.Version = answer.Version
	return nil
}

// check restores a copy and hears from its agent, so that no template is
// published whose sandboxes cannot be made.
func (r *run) check(ctx context.Context, rootfs, image string) error {
	return r.step(StepCheck, "a restored copy", nil, func() error {
		limits := driver.Limits{CPU: r.recipe.Limits.CPU, MemoryMB: r.recipe.Limits.MemoryMB, PIDs: r.recipe.Limits.PIDs}
		sb, err := r.start(ctx, filepath.Join(r.staging, StepCheck+".log"), func(id, linkDir string) (driver.Instance, error) {
			prepared, err := r.b.Driver.Prepare(ctx, driver.Spec{
				ID: id, Hostname: "sandbox", Rootfs: rootfs, Snapshot: image, LinkDir: linkDir, Programs: r.programs,
				DiskMB: r.recipe.Limits.DiskMB, Limits: limits,
			})
			if err != nil {
				return nil, err
			}
			inst, err := prepared.Restore(ctx, limits)
			if err != nil {
				return nil, errors.Join(err, prepared.Discard(context.WithoutCancel(ctx)))
			}
			return inst, nil
		})
		if err != nil {
			return err
		}
		var health guestapi.Health
		err = r.whileRunning(ctx, sb.inst, bootTime, func(ctx context.Context) (err error) {
			health, err = sb.Health(ctx)
			return err
		})
		if err == nil && !health.Ready {
			err = errors.New("the agent of the restored copy says that it is not ready")
		}
		return errors.Join(err, sb.close(ctx))
	})
}
