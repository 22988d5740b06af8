package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

func testLifecycle(t *testing.T, f *Fixture) {
	sb := f.run(t)
	if f.Talks {
		if got := sb.guest.Do(t, Call{Do: "echo", Text: "hallo"}); got != "hallo" {
			t.Errorf("the guest says %q", got)
		}
		if got, want := sb.guest.Do(t, Call{Do: "hostname"}), "host-"+sb.ID(); got != want {
			t.Errorf("the host name is %q, not %q", got, want)
		}
	}
	if len(f.Leftovers(t)) == 0 {
		t.Error("Leftovers sees nothing of a running sandbox, so it proves nothing")
	}
	stop(t, sb)
	if exit := ended(t, sb); exit.Reason != "stopped" {
		t.Errorf("it ended as %+v, not stopped", exit)
	}
}

func testRestoreOnce(t *testing.T, f *Fixture) {
	ctx := context.Background()
	s, link := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	sb := f.hold(t, inst, link)
	if _, err := p.Restore(ctx, s.Limits); !errors.Is(err, fault.Conflict) {
		t.Errorf("the second Restore gives %v, not a conflict", err)
	}
	if err := p.Discard(ctx); err != nil {
		t.Errorf("Discard after Restore: %v", err)
	}
	if f.Talks {
		sb.guest.Do(t, Call{Do: "echo"}) // Discard did not touch it
	}
	stop(t, sb)
}

func testDiscard(t *testing.T, f *Fixture) {
	ctx := context.Background()
	s, _ := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Discard(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Restore(ctx, s.Limits); err == nil {
		t.Error("a discarded sandbox was restored")
	}
}

func testExited(t *testing.T, f *Fixture) {
	sb := f.run(t)
	var waits sync.WaitGroup
	for range 3 {
		waits.Go(func() {
			exit, err := sb.Wait(context.Background())
			if err != nil || exit.Code != 7 || exit.Reason != "exited" || exit.At.IsZero() {
				t.Errorf("Wait: %+v, %v; not exited with 7", exit, err)
			}
		})
	}
	f.exit(t, sb, 7)
	waits.Wait()
	if exit := ended(t, sb); exit.Code != 7 {
		t.Errorf("Wait after the end: %+v", exit)
	}
	stop(t, sb)
	if exit := ended(t, sb); exit.Code != 7 || exit.Reason != "exited" {
		t.Errorf("Stop after the end made it %+v", exit)
	}
}

func testWaitIsCancelled(t *testing.T, f *Fixture) {
	sb := f.run(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := sb.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: %v", err)
	}
	stop(t, sb)
}

func testStopIsIdempotent(t *testing.T, f *Fixture) {
	sb := f.run(t)
	var stops sync.WaitGroup
	for range 4 {
		stops.Go(func() {
			if err := sb.Stop(context.Background()); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
	}
	stops.Wait()
	stop(t, sb)
	if exit := ended(t, sb); exit.Reason != "stopped" {
		t.Errorf("it ended as %+v", exit)
	}
}

func testStopWhileWaiting(t *testing.T, f *Fixture) {
	sb := f.run(t)
	got := make(chan driver.Exit)
	go func() {
		exit, _ := sb.Wait(context.Background())
		got <- exit
	}()
	stop(t, sb)
	if exit := <-got; exit.Reason != "stopped" {
		t.Errorf("it ended as %+v", exit)
	}
}

func testKilledFromOutside(t *testing.T, f *Fixture) {
	sb := f.run(t)
	other := f.run(t)
	f.Kill(t, sb.ID())
	if exit := ended(t, sb); exit.Reason != "crashed" || exit.Detail == "" {
		t.Errorf("it ended as %+v, not crashed with a detail", exit)
	}
	stop(t, sb)
	if f.Talks {
		other.guest.Do(t, Call{Do: "echo"})
	}
	stop(t, other)
}

func testAdopt(t *testing.T, f *Fixture) {
	ctx := context.Background()
	sb := f.run(t)
	id := sb.ID()
	if f.Talks {
		sb.guest.Do(t, Call{Do: "keep", Path: "a", Text: "before"})
	}
	d := f.Reopen(t)
	inst, err := d.Adopt(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if inst.ID() != id {
		t.Errorf("%s was adopted for %s", inst.ID(), id)
	}
	if f.Talks {
		if got := sb.guest.Do(t, Call{Do: "kept", Path: "a"}); got != "before" {
			t.Errorf("its memory holds %q", got)
		}
	}
	again, err := d.Adopt(ctx, id)
	if err != nil {
		t.Errorf("Adopt of what was adopted: %v", err)
	}
	f.exit(t, sb, 9)
	for _, i := range []driver.Instance{inst, again} {
		if exit := ended(t, i); exit.Code != 9 || exit.Reason != "exited" {
			t.Errorf("it ended as %+v, not exited with 9", exit)
		}
	}
	stop(t, inst)
}

func testAdoptOfTheGone(t *testing.T, f *Fixture) {
	ctx := context.Background()
	ended := f.run(t).ID()
	stopped := f.run(t)
	stop(t, stopped)
	s, _ := f.spec(t)
	if _, err := f.Driver.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	f.Kill(t, ended)
	d := f.Reopen(t)
	for name, id := range map[string]string{
		"that never was": "t9999", "that ended meanwhile": ended, "that was stopped": stopped.ID(), "that was only prepared": s.ID,
	} {
		if inst, err := d.Adopt(ctx, id); !errors.Is(err, fault.NotFound) {
			t.Errorf("Adopt of one %s: %v, %v; not an error of the kind not_found", name, inst, err)
		}
	}
}

func testSweep(t *testing.T, f *Fixture) {
	ctx := context.Background()
	keep, gone := f.run(t), f.run(t)
	s, _ := f.spec(t)
	if _, err := f.Driver.Prepare(ctx, s); err != nil {
		t.Fatal(err)
	}
	d := f.Reopen(t)
	removed, err := d.Sweep(ctx, map[string]bool{keep.ID(): true, "t9999": true})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(removed)
	if want := []string{gone.ID(), s.ID}; !slices.Equal(removed, want) {
		t.Errorf("Sweep removed %q, not %q", removed, want)
	}
	if f.Talks {
		keep.guest.Do(t, Call{Do: "echo"})
	}
	inst, err := d.Adopt(ctx, keep.ID())
	if err != nil {
		t.Fatal(err)
	}
	stop(t, inst)
	if removed, err := d.Sweep(ctx, nil); err != nil || len(removed) > 0 {
		t.Errorf("the second Sweep: %q, %v", removed, err)
	}
}

func testSweepOfAll(t *testing.T, f *Fixture) {
	ctx := context.Background()
	sb := f.run(t)
	s, _ := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := f.Driver.Sweep(ctx, nil)
	if err != nil || len(removed) != 2 {
		t.Fatalf("Sweep: %q, %v", removed, err)
	}
	if left := f.Leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	ended(t, sb)
	stop(t, sb)
	if _, err := p.Restore(ctx, s.Limits); !errors.Is(err, fault.NotFound) {
		t.Errorf("Restore of what was swept: %v, not of the kind not_found", err)
	}
	if err := p.Discard(ctx); err != nil {
		t.Errorf("Discard of what was swept: %v", err)
	}
}

func testBadSpecs(t *testing.T, f *Fixture) {
	for name, c := range map[string]struct {
		spoil func(*driver.Spec)
		kind  error
	}{
		"no id":             {func(s *driver.Spec) { s.ID = "" }, fault.Invalid},
		"a path as id":      {func(s *driver.Spec) { s.ID = "../x" }, fault.Invalid},
		"an id too long":    {func(s *driver.Spec) { s.ID = strings.Repeat("x", 64) }, fault.Invalid},
		"no snapshot":       {func(s *driver.Spec) { s.Snapshot = "" }, fault.Invalid},
		"no such snapshot":  {func(s *driver.Spec) { s.Snapshot = "/nowhere" }, fault.NotFound},
		"negative cores":    {func(s *driver.Spec) { s.Limits.CPU = -1 }, fault.Invalid},
		"cores not a limit": {func(s *driver.Spec) { s.Limits.CPU = math.NaN() }, fault.Invalid},
		"negative memory":   {func(s *driver.Spec) { s.Limits.MemoryMB = -1 }, fault.Invalid},
		"negative pids":     {func(s *driver.Spec) { s.Limits.PIDs = -1 }, fault.Invalid},
		"negative disk":     {func(s *driver.Spec) { s.DiskMB = -1 }, fault.Invalid},
	} {
		s, _ := f.spec(t)
		c.spoil(&s)
		p, err := f.Driver.Prepare(context.Background(), s)
		if !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, not an error of the kind %s", name, err, c.kind)
		}
		if p != nil && err == nil {
			_ = p.Discard(context.Background())
		}
	}
}

func testIDsAreUsedOnce(t *testing.T, f *Fixture) {
	sb := f.run(t)
	s, _ := f.spec(t)
	s.ID = sb.ID()
	if _, err := f.Driver.Prepare(context.Background(), s); !errors.Is(err, fault.Conflict) {
		t.Errorf("Prepare with the id of a running sandbox: %v, not a conflict", err)
	}
	if f.Talks {
		sb.guest.Do(t, Call{Do: "echo"}) // the refusal did not clean up the other's things
	}
	stop(t, sb)
}

func testCancelledFromStart(t *testing.T, f *Fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	s, _ := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if inst, err := p.Restore(ctx, s.Limits); err == nil {
		stop(t, inst)
		t.Error("Restore does not heed its context")
	}
	s, _ = f.spec(t)
	if p, err := f.Driver.Prepare(ctx, s); err == nil {
		_ = p.Discard(context.Background())
		t.Error("Prepare does not heed its context")
	}
}

// testCancelledAtTheEnd ends sandboxes as a daemon does that is ending itself.
func testCancelledAtTheEnd(t *testing.T, f *Fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sb := f.run(t)
	s, _ := f.spec(t)
	p, err := f.Driver.Prepare(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sb.Stop(ctx), p.Discard(ctx)); err != nil {
		t.Errorf("Stop and Discard with a cancelled context: %v", err)
	}
	if left := f.Leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// testCancelledInBetween cancels at many points of a start. Whatever the
// outcome, nothing may stay behind.
func testCancelledInBetween(t *testing.T, f *Fixture) {
	start := func(ctx context.Context) error {
		s, _ := f.spec(t)
		p, err := f.Driver.Prepare(ctx, s)
		if err != nil {
			return err
		}
		inst, err := p.Restore(ctx, s.Limits)
		if err != nil {
			return errors.Join(err, p.Discard(context.Background()))
		}
		return inst.Stop(context.Background())
	}
	began := time.Now()
	if err := start(context.Background()); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	const points = 12
	for i := range points {
		ctx, cancel := context.WithTimeout(context.Background(), whole*time.Duration(i)/points)
		err := start(ctx)
		cancel()
		if left := f.Leftovers(t); len(left) > 0 {
			t.Fatalf("cancelled at %d/%d, with %v, it left %q", i, points, err, left)
		}
	}
}

func testSeveralAtOnce(t *testing.T, f *Fixture) {
	var all sync.WaitGroup
	for i := range 6 {
		s, link := f.spec(t)
		all.Go(func() {
			if err := cycle(t, f, s, link, fmt.Sprint(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// cycle makes, uses and ends a sandbox.
func cycle(t *testing.T, f *Fixture, s driver.Spec, link *Link, say string) error {
	ctx := context.Background()
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		return err
	}
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		return err
	}
	defer func() { _ = inst.Stop(ctx) }()
	if f.Talks {
		guest := link.Accept(t)
		if got, err := guest.Try(Call{Do: "echo", Text: say}); err != nil || got != say {
			return fmt.Errorf("the guest of %s, asked to say %q: %q, %w", s.ID, say, got, err)
		}
		if got, err := guest.Try(Call{Do: "hostname"}); err != nil || got != s.Hostname {
			return fmt.Errorf("the guest of %s has the name %q, %w", s.ID, got, err)
		}
		_ = guest.conn.Close()
	}
	return inst.Stop(ctx)
}

func testCycles(t *testing.T, f *Fixture) {
	cycles := 100
	if testing.Short() {
		cycles = 12
	}
	round := func(n int) {
		todo := make(chan struct{}, n)
		for range n {
			todo <- struct{}{}
		}
		close(todo)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range todo {
					s, link := f.spec(t)
					if err := cycle(t, f, s, link, s.ID); err != nil {
						t.Error(err)
					}
					link.Close()
				}
			})
		}
		all.Wait()
	}
	round(4) // what is made once for all is made now
	before := fds(t)
	round(cycles)
	if left := f.Leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	if now := fds(t); now > before+2 { // the runtime may have opened one of its own
		t.Errorf("%d open files before, %d after", before, now)
	}
}

func testCheck(t *testing.T, f *Fixture) {
	for _, c := range f.Driver.Check(context.Background()) {
		if c.Name == "" || c.Detail == "" {
			t.Errorf("%+v lacks a name or a detail", c)
		}
		if !c.OK {
			t.Logf("%+v", c)
			if c.Fix == "" {
				t.Errorf("%+v fails and does not say what to do", c)
			}
		}
	}
	if f.Driver.Name() == "" {
		t.Error("the driver has no name")
	}
}

func testStats(t *testing.T, f *Fixture) {
	ctx := context.Background()
	sb := f.run(t)
	before, err := sb.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if f.Talks {
		if before.MemoryBytes <= 0 || before.PIDs <= 0 {
			t.Errorf("a running sandbox uses %+v", before)
		}
		sb.guest.Do(t, Call{Do: "spin", N: 300})
		sb.guest.Do(t, Call{Do: "alloc", N: 50})
		after, err := sb.Stats(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if after.CPUSeconds < before.CPUSeconds+0.1 {
			t.Errorf("after 0.3 s of work: %v s of CPU, before %v s", after.CPUSeconds, before.CPUSeconds)
		}
		if after.MemoryBytes < before.MemoryBytes+40<<20 {
			t.Errorf("after taking 50 MB: %d bytes, before %d", after.MemoryBytes, before.MemoryBytes)
		}
	}
	stop(t, sb)
	if _, err := sb.Stats(ctx); err == nil {
		t.Error("a stopped sandbox has stats")
	}
}
