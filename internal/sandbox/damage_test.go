package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// left gives the rest of a sandbox's life.
func (r *rig) left(id string) time.Duration {
	r.t.Helper()
	life, err := r.Lifecycle(context.Background(), "ann", id)
	if err != nil {
		r.t.Fatal(err)
	}
	return life.ExpiresAt.Sub(r.clock.Now())
}

// A time to live is time that passes. Whoever sets the host's clock, a day
// ahead or an hour back, ends nothing early and lets nothing live longer. The
// same holds for the time that a sandbox has been idle.
func TestClockThatIsSet(t *testing.T) {
	for _, step := range []time.Duration{24 * time.Hour, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			r := newRig(t, nil)
			ctx := context.Background()
			before, kept := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)}), r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)})
			r.clock.advance(30 * time.Second)

			r.clock.setBy(step)
			if _, err := r.PatchLifecycle(ctx, "ann", before.ID, api.LifecyclePatch{TTLSeconds: ptr(100)}); err != nil {
				t.Errorf("a renewal right after the step: %v", err)
			}
			between := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)})
			if err := r.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			after := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)})
			for name, id := range map[string]string{"before": before.ID, "long before": kept.ID, "between": between.ID, "after": after.ID} {
				if left := r.left(id); left < 60*time.Second || left > 100*time.Second {
					t.Errorf("the one from %s the step has %s left", name, left)
				}
				if life, err := r.Lifecycle(ctx, "ann", id); err != nil || life.IdleSeconds > 60 {
					t.Errorf("the one from %s the step is idle for %v s, %v", name, life.IdleSeconds, err)
				}
			}
			r.restart() // what was moved is in the store
			if left := r.left(before.ID); left < 60*time.Second || left > 100*time.Second {
				t.Errorf("after a restart it has %s left", left)
			}
			r.clock.advance(101 * time.Second)
			if err := r.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			for name, id := range map[string]string{"before": before.ID, "long before": kept.ID, "between": between.ID, "after": after.ID} {
				if _, err := r.Get(ctx, "ann", id); !errors.Is(err, fault.NotFound) {
					t.Errorf("the one from %s the step outlives its time: %v", name, err)
				}
			}
			r.clean()
		})
	}
}

// While no daemon runs, the wall clock alone counts: there is no other that
// means the same to the next one.
func TestClockThatIsSetWhileNoDaemonRuns(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)})
	r.stop()
	r.clock.setBy(24 * time.Hour)
	r.start()
	if _, err := r.List(context.Background(), "", sandbox.ListFilter{}); err != nil { // it has taken over
		t.Fatal(err)
	}
	if err := r.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(context.Background(), "ann", info.ID); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "time to live") {
		t.Errorf("%v", err)
	}
}

// faultyStore fails writes, as a full disk does.
type faultyStore struct {
	*store.Store
	full *atomic.Bool
}

var errFull = fault.Wrap(syscall.ENOSPC, api.CodeNoSpace, "the disk of the server's database is full")

func (s faultyStore) fails() error {
	if s.full.Load() {
		return errFull
	}
	return nil
}

func (s faultyStore) AddSandbox(ctx context.Context, sb store.Sandbox) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.AddSandbox(ctx, sb)
}

func (s faultyStore) ReplaceSandbox(ctx context.Context, sb store.Sandbox, from ...store.State) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.ReplaceSandbox(ctx, sb, from...)
}

func (s faultyStore) RemoveSandbox(ctx context.Context, id string) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.RemoveSandbox(ctx, id)
}

func (s faultyStore) Expire(ctx context.Context, id, reason string, now time.Time) error {
	if err := s.fails(); err != nil {
		return err
	}
	return s.Store.Expire(ctx, id, reason, now)
}

// When the store cannot be written to, creates are refused with the reason,
// sandboxes go on, and can be ended all the same: that may be what frees the
// space. The books are set right when it can be written to again.
func TestStoreOnAFullDisk(t *testing.T) {
	full := &atomic.Bool{}
	r := newRig(t, func(c *sandbox.Config) { c.Store = faultyStore{c.Store.(*store.Store), full} })
	ctx := context.Background()
	kept := r.create(api.CreateSandboxRequest{})
	killed := r.create(api.CreateSandboxRequest{})
	expired := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	died := r.create(api.CreateSandboxRequest{})
	full.Store(true)

	if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{}); !errors.Is(err, fault.NoSpace) {
		t.Errorf("Create: %v", err)
	}
	if err := r.Kill(ctx, "ann", killed.ID); err != nil {
		t.Errorf("Kill: %v", err)
	}
	r.clock.advance(11 * time.Second)
	_ = r.Sweep(ctx) // says that it could not tell the store
	r.host.End(died.ID, driver.Exit{Code: 137, Reason: "crashed"})
	eventually(t, "only one is on the host", func() bool { return len(r.host.IDs()) == 1 })
	if _, done, err := r.Guest(ctx, "ann", kept.ID); err != nil {
		t.Errorf("the one that goes on: %v", err)
	} else {
		done()
	}
	if _, _, err := r.Guest(ctx, "ann", killed.ID); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the killed one: %v", err)
	}
	if list, err := r.List(ctx, "ann", sandbox.ListFilter{Status: api.StatusRunning}); err != nil || len(list) != 1 {
		t.Errorf("running are %+v, %v", list, err)
	}

	full.Store(false)
	eventually(t, "the store knows of all ends", func() bool { // the watcher of the one that died may hold its turn
		if err := r.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := r.Get(ctx, "ann", died.ID)
		return err == nil && got.Status == api.StatusFailed
	})
	for id, word := range map[string]string{killed.ID: "killed", expired.ID: "time to live"} {
		if _, err := r.Get(ctx, "ann", id); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), word) {
			t.Errorf("with room again: %v, not %q", err, word)
		}
	}
	if got, err := r.Get(ctx, "ann", died.ID); err != nil || got.Status != api.StatusFailed || got.EndReason != "crashed" {
		t.Errorf("the one that died: %+v, %v", got, err)
	}
	if err := r.Kill(ctx, "ann", kept.ID); err != nil {
		t.Error(err)
	}
	r.clean()
}

// A disk that runs low refuses creates before anything is made, with numbers,
// and a pool is not filled.
func TestLowDisk(t *testing.T) {
	free := &atomic.Int64{}
	free.Store(100 << 20)
	r := newRig(t, func(c *sandbox.Config) {
		c.DiskAvailable = func() (int64, error) { return free.Load(), nil }
		c.MinFreeDiskMB = 300
		c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}}
	})
	_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNoSpace || !strings.Contains(f.Message, "100 MB") || !strings.Contains(f.Message, "300 MB") || f.Hint == "" {
		t.Errorf("%v", err)
	}
	if n := r.PoolSizes()["base"].Restored; n != 0 {
		t.Errorf("%d are in the pool", n)
	}
	free.Store(300 << 20)
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Kill(context.Background(), "ann", info.ID); err != nil {
		t.Error(err)
	}
}

// What the host has run out of is named, and is never an internal error.
func TestHostThatRunsShort(t *testing.T) {
	for errno, kind := range map[syscall.Errno]error{
		syscall.ENOSPC: fault.NoSpace, syscall.EDQUOT: fault.NoSpace, syscall.EMFILE: fault.NoCapacity, syscall.ENFILE: fault.NoCapacity, syscall.ENOMEM: fault.NoCapacity,
	} {
		for _, at := range []string{"prepare", "restore"} {
			t.Run(fmt.Sprintf("%s at %s", errno, at), func(t *testing.T) {
				r := newRig(t, nil)
				fail := func(context.Context, string) error { return &os.PathError{Op: "mkdir", Path: "/x", Err: errno} }
				if at == "prepare" {
					r.host.Break(fake.Faults{Prepare: fail})
				} else {
					r.host.Break(fake.Faults{Restore: fail})
				}
				_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
				var f *fault.Error
				if !errors.Is(err, kind) || !errors.As(err, &f) || f.Hint == "" {
					t.Errorf("%v", err)
				}
				r.clean()
				r.host.Break(fake.Faults{})
				r.create(api.CreateSandboxRequest{})
			})
		}
	}
}

// A daemon that finds no file descriptors for the sandboxes of the last one
// says so and ends. It does not end them: the next daemon may have more.
func TestTakingOverWhileTheHostIsShort(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{})
	r.stop()
	short := &atomic.Bool{}
	short.Store(true)
	st, err := store.Open(context.Background(), r.dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sandbox.Config{Driver: adoptFails{fake.New(r.host), short}, Store: st, Templates: r.tmpls, RunDir: filepath.Join(r.dir, "run"), MemoryAvailable: plenty, DiskAvailable: plenty}
	m, err := sandbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := m.Run(ctx); !errors.Is(err, fault.NoCapacity) || !strings.Contains(err.Error(), "descriptors") {
		t.Errorf("Run: %v", err)
	}
	if err := errors.Join(m.Close(context.Background()), st.Close()); err != nil {
		t.Fatal(err)
	}
	short.Store(false)
	r.start()
	if got, err := r.Get(context.Background(), "ann", info.ID); err != nil || got.Status != api.StatusRunning {
		t.Errorf("the next daemon has %+v, %v", got, err)
	}
}

type adoptFails struct {
	driver.Driver
	short *atomic.Bool
}

func (d adoptFails) Adopt(ctx context.Context, id string) (driver.Instance, error) {
	if d.short.Load() {
		return nil, fmt.Errorf("pidfd: %w", syscall.EMFILE)
	}
	return d.Driver.Adopt(ctx, id)
}

// A template whose files were taken away under a running daemon: creates say
// what is gone and how to have it back, what runs goes on, what waited in the
// pool ends, and the pool is not tried again and again. Built anew, all is well.
func TestTemplateTakenAway(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}} })
	ctx := context.Background()
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
	running := r.create(api.CreateSandboxRequest{})
	eventually(t, "the pool is full again", func() bool { return r.PoolSizes()["base"].Restored == 1 })

	var prepares atomic.Int64
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error { prepares.Add(1); return nil }})
	r.tmpls.lose("/data/templates/rootfs/x")
	r.clock.advance(time.Minute) // what was read of templates is stale
	_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNotFound || f.Field != "template" || !strings.Contains(f.Message, "/data/templates/rootfs/x") || !strings.Contains(f.Hint, "template build base") {
		t.Errorf("Create: %v", err)
	}
	eventually(t, "the pool is empty", func() bool { return r.PoolSizes()["base"].Restored == 0 })
	if list, err := r.Templates(ctx); err != nil || len(list) != 1 {
		t.Errorf("templates are %+v, %v", list, err)
	}
	if _, done, err := r.Guest(ctx, "ann", running.ID); err != nil {
		t.Errorf("the running one: %v", err)
	} else {
		done()
	}
	if n := prepares.Load(); n != 0 {
		t.Errorf("%d sandboxes were begun from what is not there", n)
	}

	r.tmpls.lose("")
	r.tmpls.replace("d9")
	r.clock.advance(time.Minute)
	if info := r.create(api.CreateSandboxRequest{}); info.Status != api.StatusRunning {
		t.Errorf("built anew: %+v", info)
	}
	eventually(t, "the pool is of the new one", func() bool { return r.PoolSizes()["base"].Restored == 1 })
}

// A pool that cannot be filled is tried at growing intervals, not in a loop.
func TestPoolThatCannotBeFilled(t *testing.T) {
	var tries atomic.Int64
	r := newRig(t, nil)
	r.stop()
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error {
		tries.Add(1)
		return errors.New("the snapshot is damaged")
	}})
	r.change = func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 2}} }
	r.start()
	eventually(t, "it was tried", func() bool { return tries.Load() > 0 })
	for range 20 { // each of these wakes who fills the pool
		if _, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{}); err == nil {
			t.Fatal("it was created")
		}
	}
	if n := tries.Load() - 20; n > 4 {
		t.Errorf("the pool was tried %d times meanwhile", n)
	}
	r.clean()
}

// However often the guest dials and speaks, the life of its sandbox stays as
// its owner set it.
func TestGuestCannotLengthenItsLife(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(100)})
	r.clock.advance(50 * time.Second)
	for range 5 {
		r.host.Guest(info.ID).BreakLink()
		eventually(t, "it has dialled again", func() bool {
			b, done, err := r.Guest(ctx, "", info.ID)
			if err != nil {
				return false
			}
			defer done()
			_, err = b.Health(ctx)
			return err == nil
		})
		if left := r.left(info.ID); left > 50*time.Second {
			t.Errorf("it has %s left", left)
		}
	}
	r.clock.advance(51 * time.Second)
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("it lives: %v", err)
	}
}

// Owner, metadata and expiry are in the row before anything runs: whoever looks
// at a sandbox in the middle of its creation can tell whose it is, and no sweep
// takes it for nobody's.
func TestOwnerIsWrittenBeforeAnythingRuns(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	entered, leave := make(chan string), make(chan struct{})
	r.host.Break(fake.Faults{Prepare: func(_ context.Context, id string) error { entered <- id; <-leave; return nil }})
	var wg sync.WaitGroup
	wg.Go(func() {
		r.create(api.CreateSandboxRequest{Metadata: map[string]string{"run": "7"}, TTLSeconds: ptr(60)})
	})
	id := <-entered
	row, err := r.store.Sandbox(ctx, id)
	if err != nil || row.Owner != "ann" || row.Metadata["run"] != "7" || row.ExpiresAt.IsZero() || row.State != store.Creating {
		t.Errorf("in the middle: %+v, %v", row, err)
	}
	for range 3 {
		if err := r.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
	}
	close(leave)
	wg.Wait()
	if got, err := r.Get(ctx, "ann", id); err != nil || got.Status != api.StatusRunning {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

// A place is free at the moment that a kill returns, and a create that failed
// never held one: the count does not lag.
func TestCountDoesNotLag(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxSandboxes = 1 })
	ctx := context.Background()
	for range 30 {
		info := r.create(api.CreateSandboxRequest{})
		if err := r.Kill(ctx, "ann", info.ID); err != nil {
			t.Fatal(err)
		}
		r.host.Break(fake.Faults{Restore: func(context.Context, string) error { return errors.New("boom") }})
		if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{}); err == nil {
			t.Fatal("it was created")
		}
		r.host.Break(fake.Faults{})
	}
}
