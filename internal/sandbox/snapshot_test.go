package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// images names what lies in the folder of the images.
func (r *rig) images() []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "images"))
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// sweepUntil sweeps until a condition holds: a sandbox whose turn is taken is
// left to the next sweep.
func (r *rig) sweepUntil(what string, ok func() bool) {
	r.t.Helper()
	eventually(r.t, what, func() bool {
		if err := r.Sweep(context.Background()); err != nil {
			r.t.Fatal(err)
		}
		return ok()
	})
}

// reboot ends all that runs on the host.
func (r *rig) reboot() {
	r.t.Helper()
	if _, err := fake.New(r.host).Sweep(context.Background(), nil); err != nil {
		r.t.Fatal(err)
	}
}

// cell runs a cell to its end and gives what it printed.
func (r *rig) cell(id, eid, code string) string {
	r.t.Helper()
	for {
		out, err := r.tryCell(id, eid, code)
		if errors.Is(err, guest.ErrLinkLost) {
			continue // a snapshot cut it; the same id never runs twice
		}
		if err != nil {
			r.t.Fatalf("cell %q in %s: %v", code, id, err)
		}
		return out
	}
}

func (r *rig) tryCell(id, eid, code string) (string, error) {
	ctx := context.Background()
	c, done, err := r.Guest(ctx, "ann", id)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := c.CreateContext(ctx, api.CreateContextRequest{ID: "x"}); err != nil && !errors.Is(err, fault.Conflict) {
		return "", err
	}
	events, err := c.Run(ctx, "x", guestapi.RunRequest{ExecutionID: eid, Code: code, Follow: true})
	if err != nil {
		return "", err
	}
	defer events.Close()
	out := ""
	for {
		e, err := events.Next()
		if err != nil {
			return out, err
		}
		switch e.Type {
		case api.EventStdout:
			out += e.Text
		case api.EventEnd:
			return out, nil
		}
	}
}

// begin starts a cell that waits for Signal(name), and returns when it runs.
func (r *rig) begin(id, eid, name string) {
	r.t.Helper()
	ctx := context.Background()
	c, done, err := r.Guest(ctx, "ann", id)
	if err != nil {
		r.t.Fatal(err)
	}
	defer done()
	if _, err := c.CreateContext(ctx, api.CreateContextRequest{ID: "x"}); err != nil && !errors.Is(err, fault.Conflict) {
		r.t.Fatal(err)
	}
	events, err := c.Run(ctx, "x", guestapi.RunRequest{ExecutionID: eid, Code: "wait('" + name + "')", Follow: true})
	if err != nil {
		r.t.Fatal(err)
	}
	defer events.Close()
	if _, err := events.Next(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) snapshot(id string, req api.SnapshotRequest) api.Snapshot {
	r.t.Helper()
	sn, err := r.Snapshot(context.Background(), "ann", id, req)
	if err != nil {
		r.t.Fatalf("Snapshot: %v", err)
	}
	return sn
}

func TestSnapshotAndCreateFromIt(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{CPU: ptr(2.0), MemoryMB: ptr(700), Envs: map[string]string{"A": "b"}})
	r.cell(info.ID, "e1", "a = 7")
	sn := r.snapshot(info.ID, api.SnapshotRequest{Name: "seven", Metadata: map[string]string{"k": "v"}})
	r.cell(info.ID, "e2", "a = 8")

	if sn.Name != "seven" || sn.SandboxID != info.ID || sn.Template != "base" || sn.SizeBytes <= 0 || sn.Workspace != "ann" || sn.MemoryMB != 700 || sn.Metadata["k"] != "v" {
		t.Errorf("the snapshot is %+v", sn)
	}
	made := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID, Template: "ubuntu-24.04", Envs: map[string]string{"C": "d"}})
	if made.FromSnapshot != sn.ID || made.CPU != 2 || made.MemoryMB != 700 || made.Generation != info.Generation+1 || made.Template != "base" {
		t.Errorf("created %+v", made)
	}
	if got := r.cell(made.ID, "e3", "print(a)"); got != "7\n" {
		t.Errorf("the copy has %q", got)
	}
	if got := r.cell(info.ID, "e3", "print(a)"); got != "8\n" {
		t.Errorf("the original has %q", got)
	}
	a := r.host.Guest(made.ID).Assigned()
	if len(a) != 1 || !a[0].KeepEnvs || !a[0].Reseed || a[0].Envs["C"] != "d" || a[0].Hostname != made.ID || a[0].Generation != made.Generation || len(a[0].MachineID) != 32 {
		t.Errorf("assigned %+v", a)
	}
	if other := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID, Reseed: ptr(false)}); r.host.Guest(other.ID).Assigned()[0].Reseed {
		t.Error("reseeded though it was not to be")
	}

	// Of a sandbox that came from a snapshot the lineage is told.
	second := r.snapshot(made.ID, api.SnapshotRequest{})
	if second.ParentID != sn.ID || second.SandboxID != made.ID {
		t.Errorf("the second snapshot is %+v", second)
	}
	list, err := r.Snapshots(ctx, "ann", "")
	if err != nil || len(list) != 2 || list[0].ID != second.ID || list[1].ID != sn.ID {
		t.Errorf("listed %+v, %v", list, err)
	}
	if list, err := r.Snapshots(ctx, "ann", info.ID); err != nil || len(list) != 1 || list[0].ID != sn.ID {
		t.Errorf("of one sandbox: %+v, %v", list, err)
	}
	if got, err := r.PatchSnapshot(ctx, "ann", sn.ID, api.SnapshotPatch{Name: ptr("sieben")}); err != nil || got.Name != "sieben" || got.Metadata["k"] != "v" {
		t.Errorf("renamed %+v, %v", got, err)
	}
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	if got := r.cell(made.ID, "e4", "print(a)"); got != "7\n" {
		t.Errorf("without its snapshot the copy has %q", got)
	}
	if got := r.images(); !slices.Equal(got, []string{second.ID}) {
		t.Errorf("images %q", got)
	}
}

func TestSnapshotsAreTheirOwners(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	for name, call := range map[string]func() error{
		"Snapshot":       func() error { _, err := r.Snapshot(ctx, "bob", info.ID, api.SnapshotRequest{}); return err },
		"GetSnapshot":    func() error { _, err := r.GetSnapshot(ctx, "bob", sn.ID); return err },
		"PatchSnapshot":  func() error { _, err := r.PatchSnapshot(ctx, "bob", sn.ID, api.SnapshotPatch{}); return err },
		"DeleteSnapshot": func() error { return r.DeleteSnapshot(ctx, "bob", sn.ID) },
		"Create": func() error {
			_, err := r.Create(ctx, "bob", api.CreateSandboxRequest{FromSnapshot: sn.ID})
			return err
		},
		"Hibernate": func() error { return r.Hibernate(ctx, "bob", info.ID, api.CarryRequest{}) },
		"Wake":      func() error { return r.Wake(ctx, "bob", info.ID) },
	} {
		if err := call(); !errors.Is(err, fault.NotFound) {
			t.Errorf("%s of another's: %v", name, err)
		}
	}
	if list, err := r.Snapshots(ctx, "bob", ""); err != nil || len(list) != 0 {
		t.Errorf("bob sees %v, %v", list, err)
	}
	for field, req := range map[string]api.SnapshotRequest{
		"name": {Name: strings.Repeat("x", 200)}, "metadata": {Metadata: map[string]string{"": "v"}},
	} {
		_, err := r.Snapshot(ctx, "ann", info.ID, req)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != field {
			t.Errorf("a bad %s: %v", field, err)
		}
	}
}

// A snapshot waits for running cells, then refuses, or takes them along.
func TestSnapshotOfRunningCells(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.SettleTime = time.Second })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	r.begin(info.ID, "long", "go")
	_, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeConflict || !strings.Contains(f.Hint, "carry_running") {
		t.Errorf("a snapshot of a running cell: %v", err)
	}
	r.snapshot(info.ID, api.SnapshotRequest{CarryRunning: true})
	taken := make(chan error, 1)
	r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error { return nil }})
	go func() {
		_, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{})
		taken <- err
	}()
	r.host.Guest(info.ID).Signal("go")
	if err := <-taken; err != nil {
		t.Errorf("a snapshot while the cell ended: %v", err)
	}
}

// Calls that come while a snapshot is taken wait, and those that cannot be
// repeated are waited for.
func TestCallsDuringASnapshot(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	entered, leave := make(chan struct{}), make(chan struct{})
	r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error { close(entered); <-leave; return nil }})
	_, upload, err := r.Guest(guest.Unrepeatable(ctx), "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	go func() {
		_, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{})
		taken <- err
	}()
	select {
	case <-entered:
		t.Fatal("it did not wait for the upload")
	case <-time.After(50 * time.Millisecond): // spreads the end of the upload into the wait
	}
	upload()
	<-entered
	called := make(chan error, 1)
	go func() {
		_, done, err := r.Guest(ctx, "ann", info.ID)
		if err == nil {
			done()
		}
		called <- err
	}()
	select {
	case err := <-called:
		t.Errorf("a call did not wait: %v", err)
	case <-time.After(50 * time.Millisecond): // a call that waits cannot be seen to wait
	}
	close(leave)
	if err := errors.Join(<-taken, <-called); err != nil {
		t.Error(err)
	}
}

// An upload that does not end is not cut, unless it is to be.
func TestSnapshotDuringALongUpload(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.SettleTime = time.Millisecond })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	_, upload, err := r.Guest(guest.Unrepeatable(ctx), "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer upload()
	if _, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{}); !errors.Is(err, fault.Conflict) {
		t.Errorf("a snapshot in its middle: %v", err)
	}
	r.snapshot(info.ID, api.SnapshotRequest{CarryRunning: true})
}

func TestDamagedSnapshotsStartNothing(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	for name, spoil := range map[string]func(file string) error{
		"truncated": func(f string) error { return os.Truncate(f, 5) },
		"gone":      os.Remove,
		"flipped": func(f string) error {
			data, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			data[len(data)-3] ^= 1
			return os.WriteFile(f, data, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			sn := r.snapshot(info.ID, api.SnapshotRequest{})
			if err := spoil(filepath.Join(r.dir, "images", sn.ID, "image.json")); err != nil {
				t.Fatal(err)
			}
			restores := r.host.Restores()
			_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{FromSnapshot: sn.ID})
			if !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("created from it: %v", err)
			}
			if r.host.Restores() != restores {
				t.Error("something was restored")
			}
			if err := r.DeleteSnapshot(ctx, "ann", sn.ID); err != nil {
				t.Errorf("it cannot be deleted: %v", err)
			}
		})
	}
}

// A snapshot that fails, for whatever reason, leaves the sandbox at work.
func TestSnapshotThatFails(t *testing.T) {
	var free atomic.Int64
	free.Store(100 << 30)
	r := newRig(t, func(c *sandbox.Config) { c.DiskAvailable = func() (int64, error) { return free.Load(), nil } })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Persistent: true})
	r.cell(info.ID, "e1", "a = 1")
	for name, spoil := range map[string]func() error{
		"no disk": func() error { free.Store(512 << 20); return fault.NoSpace },
		"the driver fails": func() error {
			free.Store(100 << 30)
			r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error { return errors.New("boom") }})
			return nil
		},
	} {
		want := spoil()
		for what, call := range map[string]func() error{
			"snapshot":  func() error { _, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{}); return err },
			"hibernate": func() error { return r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}) },
			"pause":     func() error { return r.Pause(ctx, "ann", info.ID) },
		} {
			if err := call(); err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if got := r.cell(info.ID, name+what, "print(a)"); got != "1\n" {
				t.Errorf("%s, %s: afterwards it says %q", name, what, got)
			}
		}
	}
	if got := r.images(); len(got) > 0 {
		t.Errorf("images %q", got)
	}
}

func TestSnapshotsKeepTheirTemplate(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	r.tmpls.replace("d9")
	if used, err := r.TemplatesInUse(ctx); err != nil || !used["d1"] {
		t.Errorf("in use: %v, %v", used, err)
	}
	made := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID})
	if err := r.Kill(ctx, "ann", made.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); err != nil {
		t.Fatal(err)
	}
	if used, err := r.TemplatesInUse(ctx); err != nil || used["d1"] {
		t.Errorf("then: %v, %v", used, err)
	}
	r.clean()
}

func TestDeleteWhileASandboxIsMade(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	entered, leave := make(chan struct{}), make(chan struct{})
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error { close(entered); <-leave; return nil }})
	created := make(chan error, 1)
	go func() {
		_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{FromSnapshot: sn.ID})
		created <- err
	}()
	<-entered
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("deleted meanwhile: %v", err)
	}
	close(leave)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); err != nil {
		t.Errorf("deleted afterwards: %v", err)
	}
}

// Prepared sandboxes of the pool serve snapshots of the same template.
func TestSnapshotsUseThePool(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Prepared: 1}} })
	full := func() bool { return r.PoolSizes()["base"].Prepared == 1 }
	info := r.create(api.CreateSandboxRequest{})
	r.cell(info.ID, "e", "a = 5")
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	eventually(t, "the pool is full", full)
	made := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID})
	if made.BootMode != "prepared" || made.Generation != 2 {
		t.Errorf("made %+v", made)
	}
	if got := r.cell(made.ID, "f", "print(a)"); got != "5\n" {
		t.Errorf("it says %q", got)
	}
	c, done, err := r.Guest(context.Background(), "ann", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if c.Generation() != 2 {
		t.Errorf("its guest was told generation %d", c.Generation())
	}
}

// Prepared sandboxes of the pool serve those that wake up, too, which then go by
// another id on the host.
func TestWakesUseThePool(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Prepared: 1}} })
	full := func() bool { return r.PoolSizes()["base"].Prepared == 1 }
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	r.cell(info.ID, "e", "a = 5")
	eventually(t, "the pool is full", full)
	var place string
	for round := range 2 {
		if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
			t.Fatal(err)
		}
		if ids := r.host.IDs(); slices.Contains(ids, info.ID) {
			t.Errorf("it sleeps, and on the host are %q", ids)
		}
		eventually(t, "the pool is full", full)
		pooled := r.host.IDs()
		if got := r.cell(info.ID, fmt.Sprint("f", round), "print(a)"); got != "5\n" {
			t.Errorf("it says %q", got)
		}
		if ids := r.host.IDs(); slices.Contains(ids, info.ID) || !slices.Contains(ids, pooled[0]) {
			t.Errorf("it woke, and of %q there are %q on the host", pooled, ids)
		}
		place = pooled[0]
	}
	r.restart() // the next daemon finds it under that id
	if got := r.cell(info.ID, "g", "print(a)"); got != "5\n" {
		t.Errorf("after a restart it says %q", got)
	}
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	if ids := r.host.IDs(); slices.Contains(ids, place) {
		t.Errorf("it was killed, and on the host are %q", ids)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "run", place)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was killed, and its link folder: %v", err)
	}
}

// One of the pool that is dead keeps nobody asleep.
func TestWakeFromADamagedPool(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Prepared: 1}} })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	r.cell(info.ID, "e", "a = 5")
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Prepared == 1 })
	r.host.Break(fake.Faults{Restore: func(_ context.Context, id string) error {
		if id != info.ID {
			return errors.New("its sentry is dead")
		}
		return nil
	}})
	if got := r.cell(info.ID, "f", "print(a)"); got != "5\n" {
		t.Errorf("it says %q", got)
	}
	if ids := r.host.IDs(); !slices.Contains(ids, info.ID) {
		t.Errorf("on the host are %q", ids)
	}
}

func TestHibernateAndWake(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Envs: map[string]string{"A": "b"}})
	r.cell(info.ID, "e1", "a = 7")
	for range 2 { // it is idempotent
		if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if ids := r.host.IDs(); len(ids) > 0 {
		t.Errorf("on the host: %q", ids)
	}
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusHibernated {
		t.Errorf("it is %+v, %v", got, err)
	}
	if list, err := r.List(ctx, "ann", sandbox.ListFilter{Status: api.StatusHibernated}); err != nil || len(list) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
	// A call wakes it.
	if got := r.cell(info.ID, "e2", "print(a)"); got != "7\n" {
		t.Errorf("awake it says %q", got)
	}
	got, err := r.Get(ctx, "ann", info.ID)
	if err != nil || got.Status != api.StatusRunning || got.Generation != info.Generation+1 || got.BootMode != "wake" {
		t.Errorf("awake it is %+v, %v", got, err)
	}
	a := r.host.Guest(info.ID).Assigned()
	if len(a) != 1 || a[0].Reseed || !a[0].KeepEnvs || a[0].Hostname != info.ID || a[0].MachineID != "" || a[0].Generation != got.Generation {
		t.Errorf("told %+v", a)
	}
	for range 3 {
		if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Wake(ctx, "ann", info.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.cell(info.ID, "e3", "print(a)"); got != "7\n" {
		t.Errorf("after three more rounds it says %q", got)
	}
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	r.clean()
}

// Many calls at once wake it once.
func TestWakeStorm(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Hibernate(context.Background(), "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	before := r.host.Restores()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			c, done, err := r.Guest(context.Background(), "ann", info.ID)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			if _, err := c.Health(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := r.host.Restores() - before; n != 1 {
		t.Errorf("%d restores", n)
	}
}

// Who follows a cell in a sandbox that is put to sleep is told so, and does not
// wake it; the cell goes on when somebody does.
func TestFollowersDoNotWake(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Guest(guest.WithoutWaking(ctx), "ann", info.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("a follower: %v", err)
	}
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusHibernated {
		t.Errorf("it is %+v, %v", got, err)
	}
	if err := r.Wake(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	// Through a pause they wait.
	if err := r.Pause(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	followed := make(chan error, 1)
	go func() {
		_, done, err := r.Guest(guest.WithoutWaking(ctx), "ann", info.ID)
		if err == nil {
			done()
		}
		followed <- err
	}()
	if err := r.Resume(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-followed; err != nil {
		t.Errorf("a follower through a pause: %v", err)
	}
}

// What sleeps or is paused is there after the machine went down.
func TestReboot(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	asleep, paused, running := r.create(api.CreateSandboxRequest{}), r.create(api.CreateSandboxRequest{}), r.create(api.CreateSandboxRequest{})
	for _, info := range []api.SandboxInfo{asleep, paused, running} {
		r.cell(info.ID, "e1", "a = 7")
	}
	if err := errors.Join(r.Hibernate(ctx, "ann", asleep.ID, api.CarryRequest{}), r.Pause(ctx, "ann", paused.ID)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.reboot()
	if err := os.RemoveAll(filepath.Join(r.dir, "run")); err != nil {
		t.Fatal(err)
	}
	r.start()
	if got, err := r.Get(ctx, "ann", running.ID); err != nil || got.Status != api.StatusFailed || got.EndReason != "lost" {
		t.Errorf("the one that ran is %+v, %v", got, err)
	}
	if got := r.cell(asleep.ID, "e2", "print(a)"); got != "7\n" {
		t.Errorf("the one that slept says %q", got)
	}
	if got, err := r.Get(ctx, "ann", paused.ID); err != nil || got.Status != api.StatusPaused {
		t.Errorf("the paused one is %+v, %v", got, err)
	}
	if _, _, err := r.Guest(ctx, "ann", paused.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("a call to it: %v", err)
	}
	if err := r.Resume(ctx, "ann", paused.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.cell(paused.ID, "e2", "print(a)"); got != "7\n" {
		t.Errorf("the one that was paused says %q", got)
	}
	for _, id := range []string{asleep.ID, paused.ID, running.ID} {
		if err := r.Kill(ctx, "ann", id); err != nil {
			t.Error(err)
		}
	}
	r.clean()
}

// A daemon that is killed after the image was written and before the row was
// has neither lost the sandbox nor got it twice.
func TestKilledWhileHibernating(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	r.cell(info.ID, "e1", "a = 7")
	inst, err := fake.New(r.host).Adopt(ctx, info.ID)
	if err != nil {
		t.Fatal(err)
	}
	row, err := r.store.Sandbox(ctx, info.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	image := filepath.Join(r.dir, "images", info.ID+"-1")
	if err := fake.New(r.host).Snapshot(ctx, inst, image, driver.Save{Stop: true}); err != nil {
		t.Fatal(err)
	}
	r.start()
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusHibernated {
		t.Errorf("it is %+v, %v", got, err)
	}
	if got := r.cell(info.ID, "e2", "print(a)"); got != "7\n" {
		t.Errorf("it says %q", got)
	}

	// An image of an earlier life is not taken for the present.
	r.stop()
	if err := os.MkdirAll(image, 0o700); err != nil {
		t.Fatal(err)
	}
	if row.Generation != 1 {
		t.Fatalf("generation %d", row.Generation)
	}
	r.reboot()
	r.start()
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusFailed {
		t.Errorf("with an old image it is %+v, %v", got, err)
	}
	if got := r.images(); len(got) > 0 {
		t.Errorf("images %q", got)
	}
}

// Whoever waits for what a kill stops is told of the kill, even by a driver
// that only says that its context ended.
func TestKilledWhileSomethingIsDone(t *testing.T) {
	ctx := context.Background()
	for name, do := range map[string]func(r *rig, id string) error{
		"hibernate": func(r *rig, id string) error { return r.Hibernate(ctx, "ann", id, api.CarryRequest{}) },
		// In the middle of being asked how much that is.
		"hibernate, stats": func(r *rig, id string) error { return r.Hibernate(ctx, "ann", id, api.CarryRequest{}) },
		"snapshot, stats":  func(r *rig, id string) error { _, err := r.Snapshot(ctx, "ann", id, api.SnapshotRequest{}); return err },
		"pause":            func(r *rig, id string) error { return r.Pause(ctx, "ann", id) },
		"snapshot":         func(r *rig, id string) error { _, err := r.Snapshot(ctx, "ann", id, api.SnapshotRequest{}); return err },
		"fork":             func(r *rig, id string) error { _, err := r.Fork(ctx, "ann", id, api.ForkRequest{}); return err },
		"wake":             func(r *rig, id string) error { return r.Wake(ctx, "ann", id) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			info := r.create(api.CreateSandboxRequest{})
			if name == "wake" {
				if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
					t.Fatal(err)
				}
			}
			begun := make(chan struct{})
			untilStopped := func(ctx context.Context, _ string) error {
				close(begun)
				<-ctx.Done()
				return fmt.Errorf("runsc: %w", ctx.Err())
			}
			faults := fake.Faults{Prepare: untilStopped, Snapshot: untilStopped}
			if strings.HasSuffix(name, "stats") {
				faults.Stats = untilStopped
			}
			r.host.Break(faults)
			said := make(chan error)
			go func() { said <- do(r, info.ID) }()
			<-begun
			if err := r.Kill(ctx, "ann", info.ID); err != nil {
				t.Error(err)
			}
			if err := <-said; !errors.Is(err, fault.Conflict) {
				t.Errorf("it was killed meanwhile: %v", err)
			}
			r.clean()
		})
	}
}

// A write that is under way when its sandbox is paused is done, not refused and
// done later; what comes then is refused.
func TestPauseWaitsForWrites(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	_, done, err := r.Guest(guest.Unrepeatable(ctx), "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	var written atomic.Bool
	r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error {
		if !written.Load() {
			t.Error("it was paused in the middle of a write")
		}
		return nil
	}})
	paused := make(chan error)
	go func() { paused <- r.Pause(ctx, "ann", info.ID) }()
	eventually(t, "calls wait for the pause", func() bool {
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, done, err := r.Guest(short, "ann", info.ID)
		if err == nil {
			done()
		}
		return errors.Is(err, context.DeadlineExceeded)
	})
	written.Store(true)
	done()
	if err := <-paused; err != nil {
		t.Error(err)
	}
	if _, _, err := r.Guest(ctx, "ann", info.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("a call to a paused sandbox: %v", err)
	}
}

func TestExpiryOfPersistentOnes(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Persistent: true, TTLSeconds: ptr(10)})
	r.begin(info.ID, "long", "go") // what runs is carried
	r.clock.advance(11 * time.Second)
	r.sweepUntil("it sleeps after its time", func() bool {
		got, err := r.Get(ctx, "ann", info.ID)
		return err == nil && got.Status == api.StatusHibernated
	})
	r.clock.advance(time.Hour)
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.ExpiresAt.Before(r.clock.Now()) || got.ExpiresAt.After(r.clock.Now().Add(10*time.Second)) {
		t.Errorf("awake it expires at %v, %v", got.ExpiresAt, err)
	}
	// One that is not persistent ends, also in its sleep.
	short := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	if err := r.Hibernate(ctx, "ann", short.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(11 * time.Second)
	r.sweepUntil("the other is gone", func() bool { _, err := r.Get(ctx, "ann", short.ID); return errors.Is(err, fault.NotFound) })
	if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{TTLSeconds: ptr(86401)}); !errors.Is(err, fault.Invalid) {
		t.Errorf("beyond the ceiling: %v", err)
	}
	r.create(api.CreateSandboxRequest{TTLSeconds: ptr(86401), Persistent: true})
}

func TestIdleTimeout(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{IdleTimeoutSeconds: ptr(60), TTLSeconds: ptr(3600)})
	sweep := func(after time.Duration, want api.Status) {
		t.Helper()
		r.clock.advance(after)
		r.sweepUntil("it is "+string(want), func() bool {
			got, err := r.Get(ctx, "ann", info.ID)
			return err == nil && got.Status == want
		})
	}
	sweep(59*time.Second, api.StatusRunning)
	r.cell(info.ID, "e1", "a = 7")
	sweep(59*time.Second, api.StatusRunning)
	_, done, err := r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	sweep(70*time.Second, api.StatusRunning) // a call is in progress
	done()
	r.begin(info.ID, "long", "go")
	sweep(61*time.Second, api.StatusRunning) // a cell runs that nobody follows
	r.host.Guest(info.ID).Signal("go")
	eventually(t, "the cell has ended", func() bool { return r.cell(info.ID, "e2", "print(a)") == "7\n" })
	sweep(61*time.Second, api.StatusHibernated)
	if _, err := r.PatchLifecycle(ctx, "ann", info.ID, api.LifecyclePatch{IdleTimeoutSeconds: ptr(0)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Wake(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	sweep(100*time.Second, api.StatusRunning)
}

func TestRetention(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.HibernatedFor = 100 * time.Hour })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Persistent: true})
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	expiring := func() (n int) {
		for _, kind := range r.events(info.ID) {
			if kind == api.LifeExpiring {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		after time.Duration
		said  int
	}{{89 * time.Hour, 0}, {2 * time.Hour, 1}, {time.Hour, 1}} {
		r.clock.advance(step.after)
		if err := r.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		if n := expiring(); n != step.said {
			t.Errorf("%s later it was said %d times", step.after, n)
		}
		if _, err := r.Get(ctx, "ann", info.ID); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.advance(9 * time.Hour)
	r.sweepUntil("it is gone", func() bool { _, err := r.Get(ctx, "ann", info.ID); return err != nil })
	if _, err := r.Get(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "hibernated for longer") {
		t.Errorf("at the end: %v", err)
	}
	r.clean()
}

func TestHibernateAll(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	kept, plain := r.create(api.CreateSandboxRequest{Persistent: true}), r.create(api.CreateSandboxRequest{})
	if err := r.HibernateAll(ctx); err != nil {
		t.Fatal(err)
	}
	if ids := r.host.IDs(); !slices.Equal(ids, []string{plain.ID}) {
		t.Errorf("on the host: %q", ids)
	}
	r.restart()
	if _, _, err := r.Guest(ctx, "ann", kept.ID); err != nil {
		t.Errorf("the next daemon cannot wake it: %v", err)
	}
	none, cancel := context.WithCancel(ctx)
	cancel()
	if err := r.HibernateAll(none); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Get(ctx, "ann", kept.ID); err != nil || got.Status != api.StatusRunning {
		t.Errorf("without time for it: %+v, %v", got, err)
	}
}

// Whatever meets: hibernate, wake, kill. It ends in one of the three, and
// nothing is left.
func TestSleepRaces(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	for i := range 40 {
		info := r.create(api.CreateSandboxRequest{})
		if i%2 == 0 {
			if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for _, f := range []func() error{
			func() error { return r.Wake(ctx, "ann", info.ID) },
			func() error {
				_, done, err := r.Guest(ctx, "ann", info.ID)
				if err == nil {
					done()
				}
				return err
			},
			func() error { return r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}) },
			func() error {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond) // spreads the kill over the others
				return r.Kill(ctx, "ann", info.ID)
			},
		} {
			all.Go(func() {
				if err := f(); fault.CodeOf(err) == api.CodeInternal && err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := r.Kill(ctx, "ann", info.ID); err != nil && !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.Conflict) {
			t.Error(err)
		}
		r.clean()
	}
}

// A wake that fails leaves it asleep, and it can be tried again.
func TestWakeThatFails(t *testing.T) {
	for name, f := range map[string]fake.Faults{
		"prepare": {Prepare: func(context.Context, string) error { return errors.New("boom") }},
		"restore": {Restore: func(context.Context, string) error { return errors.New("boom") }},
		"assign":  {Assign: func(string) error { return errors.New("boom") }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			ctx := context.Background()
			info := r.create(api.CreateSandboxRequest{})
			r.cell(info.ID, "e1", "a = 7")
			if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
				t.Fatal(err)
			}
			r.host.Break(f)
			if err := r.Wake(ctx, "ann", info.ID); err == nil {
				t.Fatal("it woke up")
			}
			if ids := r.host.IDs(); len(ids) > 0 {
				t.Errorf("on the host: %q", ids)
			}
			r.host.Break(fake.Faults{})
			if got := r.cell(info.ID, "e2", "print(a)"); got != "7\n" {
				t.Errorf("it says %q", got)
			}
		})
	}
}

func (r *rig) fork(id string, req api.ForkRequest) api.Fork {
	r.t.Helper()
	made, err := r.Fork(context.Background(), "ann", id, req)
	if err != nil {
		r.t.Fatalf("Fork: %v", err)
	}
	return made
}

func TestFork(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Metadata: map[string]string{"run": "7"}, TTLSeconds: ptr(1000), MemoryMB: ptr(700), Persistent: true, IdleTimeoutSeconds: ptr(500)})
	r.cell(info.ID, "e1", "a = 7")
	snapshots := atomic.Int32{}
	r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error { snapshots.Add(1); return nil }})
	made := r.fork(info.ID, api.ForkRequest{Count: ptr(8), Metadata: map[string]string{"b": "c"}, Envs: map[string]string{"X": "y"}})
	r.cell(info.ID, "e2", "a = 8")
	if len(made.Children) != 8 || made.ParentID != info.ID || len(made.Errors) > 0 || made.TreeID != "" {
		t.Fatalf("made %+v", made)
	}
	if n := snapshots.Load(); n != 1 {
		t.Errorf("%d images for eight copies", n)
	}
	entropy := map[string]bool{}
	for _, c := range made.Children {
		if got := r.cell(c.ID, "e3", "print(a)"); got != "7\n" {
			t.Errorf("a copy says %q", got)
		}
		if c.ForkedFrom != info.ID || c.FromSnapshot != "" || c.MemoryMB != 700 || c.TTLSeconds != 1000 || c.Persistent || c.IdleTimeoutSeconds != 500 ||
			c.Metadata["run"] != "7" || c.Metadata["b"] != "c" || c.Generation != 2 {
			t.Errorf("a copy is %+v", c)
		}
		a := r.host.Guest(c.ID).Assigned()[0]
		if !a.Reseed || !a.KeepEnvs || a.Envs["X"] != "y" || a.Hostname != c.ID {
			t.Errorf("it was told %+v", a)
		}
		entropy[string(a.Entropy)+a.MachineID] = true
	}
	if len(entropy) != 8 {
		t.Errorf("%d different entropies", len(entropy))
	}
	if got := r.cell(info.ID, "e4", "print(a)"); got != "8\n" {
		t.Errorf("the parent says %q", got)
	}
	if got := r.images(); len(got) > 0 {
		t.Errorf("images %q", got)
	}
	// One that sleeps is copied without waking it.
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	child := r.fork(info.ID, api.ForkRequest{TTLSeconds: ptr(5)}).Children[0]
	if got := r.cell(child.ID, "e5", "print(a)"); got != "8\n" || child.TTLSeconds != 5 {
		t.Errorf("the copy of one that sleeps says %q, %+v", got, child)
	}
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusHibernated {
		t.Errorf("the parent is %+v, %v", got, err)
	}
	if got := r.cell(info.ID, "e6", "print(a)"); got != "8\n" {
		t.Errorf("awake it says %q", got)
	}
	for field, req := range map[string]api.ForkRequest{
		"count": {Count: ptr(17)}, "metadata": {Metadata: map[string]string{"": "x"}}, "envs": {Envs: map[string]string{"A=": "x"}}, "ttl_seconds": {TTLSeconds: ptr(0)},
	} {
		_, err := r.Fork(ctx, "ann", info.ID, req)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != field {
			t.Errorf("a bad %s: %v", field, err)
		}
	}
	if _, err := r.Fork(ctx, "bob", info.ID, api.ForkRequest{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("another's: %v", err)
	}
}

// Memory is asked for before anything is copied, with numbers.
func TestForkWithoutMemory(t *testing.T) {
	var free atomic.Int64
	free.Store(64 << 30)
	r := newRig(t, func(c *sandbox.Config) {
		c.MemoryAvailable = func() (int64, error) { return free.Load(), nil }
		c.MinFreeMB = 100
	})
	info := r.create(api.CreateSandboxRequest{})
	r.host.Break(fake.Faults{Snapshot: func(context.Context, string) error { t.Error("something was copied"); return nil }})
	free.Store(105 << 20) // a copy of the fake takes 1 MB
	_, err := r.Fork(context.Background(), "ann", info.ID, api.ForkRequest{Count: ptr(10)})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNoCapacity || !strings.Contains(f.Message, "10 more would take about 10 MB") || !strings.Contains(f.Message, "105 MB are free") {
		t.Errorf("%v", err)
	}
}

// What fails, fails for one copy; a fork without any fails.
func TestForkFailuresArePerChild(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxSandboxes = 4 })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	made := r.fork(info.ID, api.ForkRequest{Count: ptr(5)})
	if len(made.Children) != 3 || len(made.Errors) != 2 || made.Errors[0].Code != api.CodeNoCapacity || made.Errors[0].Message == "" {
		t.Errorf("made %+v", made)
	}
	if _, err := r.Fork(ctx, "ann", info.ID, api.ForkRequest{Count: ptr(2)}); !errors.Is(err, fault.NoCapacity) {
		t.Errorf("with no place left: %v", err)
	}
	for _, c := range made.Children {
		if err := r.Kill(ctx, "ann", c.ID); err != nil {
			t.Error(err)
		}
	}
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Error(err)
	}
	r.clean()
}

// A client that leaves takes its copies along: nobody would know of them.
func TestForkOfAClientThatLeaves(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Concurrency = 1 }) // the first is whole when the second is cut short
	info := r.create(api.CreateSandboxRequest{})
	ctx, leave := context.WithCancel(context.Background())
	var restores atomic.Int32
	r.host.Break(fake.Faults{Restore: func(context.Context, string) error {
		if restores.Add(1) == 2 {
			leave()
		}
		return nil
	}})
	if _, err := r.Fork(ctx, "ann", info.ID, api.ForkRequest{Count: ptr(4)}); err == nil {
		t.Error("it was answered")
	}
	eventually(t, "only the parent is on the host", func() bool { return len(r.host.IDs()) == 1 })
	if err := r.Kill(context.Background(), "ann", info.ID); err != nil {
		t.Error(err)
	}
	r.clean()
}

func TestForkTreeAndPromote(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	made, err := r.ForkTree(ctx, "ann", info.ID, api.ForkRequest{Count: ptr(3)})
	if err != nil || len(made.Children) != 3 || made.TreeID == "" {
		t.Fatalf("made %+v, %v", made, err)
	}
	for i, c := range made.Children {
		if l := c.Metadata; l["fork_tree_id"] != made.TreeID || l["fork_tree_role"] != "branch" || l["fork_parent_id"] != info.ID || l["fork_index"] != string(rune('0'+i)) {
			t.Errorf("branch %d carries %v", i, l)
		}
	}
	winner := made.Children[1].ID
	for what, call := range map[string]func() error{
		"conflict of the parent": func() error { _, err := r.Promote(ctx, "ann", info.ID, api.PromoteRequest{}); return err },
		"invalid tree": func() error {
			_, err := r.Promote(ctx, "ann", winner, api.PromoteRequest{TreeID: "tr-x"})
			return err
		},
	} {
		if err := call(); string(fault.CodeOf(err)) != strings.Fields(what)[0] {
			t.Errorf("%s: %v", what, err)
		}
	}
	got, err := r.Promote(ctx, "ann", winner, api.PromoteRequest{CleanupSiblings: true, TreeID: made.TreeID})
	if err != nil || got.Winner != winner || got.TreeID != made.TreeID || len(got.Deleted) != 2 || slices.Contains(got.Deleted, winner) || len(got.Failures) > 0 {
		t.Errorf("promoted %+v, %v", got, err)
	}
	if now, err := r.Get(ctx, "ann", winner); err != nil || now.Metadata["fork_tree_role"] != "winner" {
		t.Errorf("the winner is %+v, %v", now, err)
	}
	if ids := r.host.IDs(); len(ids) != 2 {
		t.Errorf("on the host: %q", ids)
	}
}

// A snapshot with a time to live goes when that is over, with its files, and
// says so; one without stays.
func TestSnapshotsExpire(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(3600)})
	stays := r.snapshot(info.ID, api.SnapshotRequest{})
	short := r.snapshot(info.ID, api.SnapshotRequest{TTLSeconds: 60})
	longer := r.snapshot(info.ID, api.SnapshotRequest{TTLSeconds: 60})
	kept := r.snapshot(info.ID, api.SnapshotRequest{TTLSeconds: 60})
	if stays.ExpiresAt != nil || short.ExpiresAt == nil || !short.ExpiresAt.Equal(short.CreatedAt.Add(time.Minute).Truncate(time.Millisecond)) {
		t.Errorf("they expire at %v, %v", stays.ExpiresAt, short.ExpiresAt)
	}
	if sn, err := r.PatchSnapshot(ctx, "ann", longer.ID, api.SnapshotPatch{TTLSeconds: ptr(600)}); err != nil || !sn.ExpiresAt.After(*short.ExpiresAt) {
		t.Errorf("given more time: %+v, %v", sn, err)
	}
	if sn, err := r.PatchSnapshot(ctx, "ann", kept.ID, api.SnapshotPatch{TTLSeconds: ptr(0)}); err != nil || sn.ExpiresAt != nil {
		t.Errorf("to stay: %+v, %v", sn, err)
	}
	if sn, err := r.PatchSnapshot(ctx, "ann", short.ID, api.SnapshotPatch{Name: ptr("n")}); err != nil || !sn.ExpiresAt.Equal(*short.ExpiresAt) {
		t.Errorf("another name: %+v, %v", sn, err)
	}
	list := func() (ids []string) {
		all, err := r.Snapshots(ctx, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, sn := range all {
			ids = append(ids, sn.ID)
		}
		slices.Sort(ids)
		return ids
	}
	sorted := func(ids ...string) []string { slices.Sort(ids); return ids }
	if err := r.Sweep(ctx); err != nil || len(list()) != 4 {
		t.Fatalf("before their time: %v, %v", list(), err)
	}

	r.clock.advance(61 * time.Second)
	if got, want := list(), sorted(stays.ID, longer.ID, kept.ID); !slices.Equal(got, want) {
		t.Errorf("over, and not swept yet: %q", got)
	}
	if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{FromSnapshot: short.ID}); !errors.Is(err, fault.NotFound) {
		t.Errorf("made from one that is over: %v", err)
	}
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Snapshot(ctx, short.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("its row: %v", err)
	}
	if got, want := r.images(), sorted(stays.ID, longer.ID, kept.ID); !slices.Equal(got, want) {
		t.Errorf("files are left of %q, not of %q", got, want)
	}
	if got := r.payload(info.ID, api.LifeSnapshotExpired)["snapshot_id"]; got != short.ID {
		t.Errorf("the event is of %v", got)
	}

	// A daemon that was away removes what went over its time meanwhile; a clock
	// that is set changes nothing.
	r.clock.setBy(time.Hour)
	if err := r.Sweep(ctx); err != nil || len(list()) != 3 {
		t.Errorf("the clock was set: %v, %v", list(), err)
	}
	r.stop()
	r.clock.advance(10 * time.Minute)
	r.start()
	r.sweepUntil("the longer one is gone", func() bool { return slices.Equal(list(), sorted(stays.ID, kept.ID)) })
	for _, ttl := range []int{-1, 10*365*86400 + 1} {
		var f *fault.Error
		if _, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{TTLSeconds: ttl}); !errors.As(err, &f) || f.Field != "ttl_seconds" {
			t.Errorf("a time of %d s: %v", ttl, err)
		}
		if _, err := r.PatchSnapshot(ctx, "ann", kept.ID, api.SnapshotPatch{TTLSeconds: &ttl}); !errors.As(err, &f) || f.Field != "ttl_seconds" {
			t.Errorf("another time of %d s: %v", ttl, err)
		}
	}
}

// A sandbox that is being made from a snapshot keeps it until it runs.
func TestSnapshotExpiresWhileASandboxIsMade(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(3600)})
	sn := r.snapshot(info.ID, api.SnapshotRequest{TTLSeconds: 60})
	entered, leave := make(chan struct{}), make(chan struct{})
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error { close(entered); <-leave; return nil }})
	created := make(chan error, 1)
	go func() {
		_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{FromSnapshot: sn.ID})
		created <- err
	}()
	<-entered
	r.clock.advance(61 * time.Second)
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(r.images(), sn.ID) {
		t.Error("its files are gone while they are read")
	}
	close(leave)
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	r.sweepUntil("then it goes", func() bool { return !slices.Contains(r.images(), sn.ID) })
}

// The time of a paused sandbox runs: then it ends, or sleeps if it is
// persistent.
func TestExpiryOfPausedOnes(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	short := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	persistent := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10), Persistent: true})
	r.begin(persistent.ID, "e", "go")
	for _, info := range []api.SandboxInfo{short, persistent} {
		if err := r.Pause(ctx, "ann", info.ID); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.advance(9 * time.Second)
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	for _, info := range []api.SandboxInfo{short, persistent} {
		if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusPaused {
			t.Errorf("before its time: %+v, %v", got, err)
		}
	}
	r.clock.advance(2 * time.Second)
	r.sweepUntil("the one is gone, the other sleeps", func() bool {
		_, gone := r.Get(ctx, "ann", short.ID)
		other, err := r.Get(ctx, "ann", persistent.ID)
		return errors.Is(gone, fault.NotFound) && err == nil && other.Status == api.StatusHibernated
	})
	if _, err := r.Get(ctx, "ann", short.ID); !strings.Contains(err.Error(), "time to live") {
		t.Errorf("it says %v", err)
	}
	if kinds := r.events(short.ID); !slices.Contains(kinds, api.LifeExpired) {
		t.Errorf("events: %q", kinds)
	}
	if err := r.Wake(ctx, "ann", persistent.ID); err != nil {
		t.Fatal(err)
	}
	r.host.Guest(persistent.ID).Signal("go")
	if got := r.cell(persistent.ID, "after", "print('awake')"); got != "awake\n" {
		t.Errorf("awake it says %q", got)
	}
}

// A guest that comes late is waited for as long as the setting says, in creates
// and in wakes.
func TestCreateTimeout(t *testing.T) {
	ctx := context.Background()
	hasty := newRig(t, func(c *sandbox.Config) { c.CreateTimeout = 50 * time.Millisecond })
	patient := newRig(t, func(c *sandbox.Config) { c.CreateTimeout = time.Hour })
	var asleep [2]api.SandboxInfo
	for i, r := range []*rig{hasty, patient} {
		eventually(t, "a sandbox sleeps", func() bool { // within 50 ms, on a machine that may be busy
			var err error
			if asleep[i], err = r.Create(ctx, "ann", api.CreateSandboxRequest{}); err != nil {
				return false
			}
			return r.Hibernate(ctx, "ann", asleep[i].ID, api.CarryRequest{}) == nil
		})
	}
	for name, call := range map[string]func(r *rig, id string) error{
		"create": func(r *rig, _ string) error { _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{}); return err },
		"wake":   func(r *rig, id string) error { return r.Wake(ctx, "ann", id) },
	} {
		dial := make(chan struct{})
		late := fake.Faults{Late: func(ctx context.Context) {
			select {
			case <-dial:
			case <-ctx.Done():
			}
		}}
		hasty.host.Break(late)
		patient.host.Break(late)
		waits := make(chan error, 1)
		go func() { waits <- call(patient, asleep[1].ID) }()
		// The hasty one is given up while the patient one waits.
		if err := call(hasty, asleep[0].ID); !errors.Is(err, fault.Timeout) || !strings.Contains(err.Error(), "within 50ms") {
			t.Errorf("%s with little time: %v", name, err)
		}
		select {
		case err := <-waits:
			t.Fatalf("%s with much time did not wait: %v", name, err)
		default:
		}
		close(dial)
		if err := <-waits; err != nil {
			t.Errorf("%s with much time: %v", name, err)
		}
	}
}
