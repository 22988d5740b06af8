package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// watchedStore is a store of which a test sees some calls.
type watchedStore struct {
	sandbox.Store
	removing func()
	sync     func() error
}

func (s *watchedStore) RemoveSnapshot(ctx context.Context, id string) error {
	if s.removing != nil {
		s.removing()
	}
	return s.Store.RemoveSnapshot(ctx, id)
}

func (s *watchedStore) Sync(ctx context.Context) error {
	if s.sync != nil {
		return s.sync()
	}
	return s.Store.Sync(ctx)
}

func watched(t *testing.T) (*rig, *watchedStore) {
	t.Helper()
	st := &watchedStore{}
	r := newRig(t, func(c *sandbox.Config) { st.Store, c.Store = c.Store, st })
	return r, st
}

// Removing a snapshot takes as long as its files are large. Meanwhile nothing
// is made from it, and everything else goes on.
func TestNothingWaitsForASnapshotThatIsRemoved(t *testing.T) {
	r, st := watched(t)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	entered, leave := make(chan struct{}), make(chan struct{})
	st.removing = func() { close(entered); <-leave }
	removed := make(chan error, 1)
	go func() { removed <- r.DeleteSnapshot(ctx, "ann", sn.ID) }()
	<-entered
	r.create(api.CreateSandboxRequest{})
	if err := r.DeleteSnapshot(ctx, "ann", sn.ID); err != nil {
		t.Errorf("deleted twice at once: %v", err)
	}
	_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{FromSnapshot: sn.ID})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNotFound || f.Field != "from_snapshot" {
		t.Errorf("made from one that is being removed: %v", err)
	}
	close(leave)
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if _, err := r.GetSnapshot(ctx, "ann", sn.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("it is still there: %v", err)
	}
	if got := r.images(); len(got) != 0 {
		t.Errorf("images %q", got)
	}
}

// A pause that cannot be written down is none, in the store as in the box.
func TestPauseThatIsNotOnTheDiskIsUndone(t *testing.T) {
	r, st := watched(t)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	full := errors.New("the disk is full")
	st.sync = func() error { return full }
	if err := r.Pause(ctx, "ann", info.ID); !errors.Is(err, full) {
		t.Fatalf("paused: %v", err)
	}
	if row, err := r.store.Sandbox(ctx, info.ID); err != nil || row.State != store.Running {
		t.Errorf("in the store it is %s, %v", row.State, err)
	}
	st.sync = nil
	if got := r.cell(info.ID, "e1", "print(1)"); got != "1\n" {
		t.Errorf("it says %q", got)
	}
	if err := r.Pause(ctx, "ann", info.ID); err != nil {
		t.Errorf("the next pause: %v", err)
	}
	if err := r.Resume(ctx, "ann", info.ID); err != nil {
		t.Errorf("resumed: %v", err)
	}
}

// tired is a driver whose pauses hold the sandbox and fail all the same, and
// whose resumes take longer than they may.
type tired struct {
	*fake.Driver
	pause  error
	resume func(ctx context.Context) error
}

func (d *tired) Pause(ctx context.Context, inst driver.Instance) error {
	return errors.Join(d.Driver.Pause(ctx, inst), d.pause)
}

func (d *tired) Resume(ctx context.Context, inst driver.Instance) error {
	if d.resume != nil {
		return d.resume(ctx)
	}
	return d.Driver.Resume(ctx, inst)
}

// A sandbox that is said to run does run, whatever became of a pause of it.
func TestPauseThatFailsLetsGo(t *testing.T) {
	d := &tired{pause: errors.New("no answer")}
	r := newRig(t, func(c *sandbox.Config) { d.Driver = c.Driver.(*fake.Driver); c.Driver = d })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Pause(ctx, "ann", info.ID); !errors.Is(err, d.pause) {
		t.Fatalf("paused: %v", err)
	}
	if got, err := r.tryCell(info.ID, "e1", "print(1)"); err != nil || got != "1\n" {
		t.Errorf("it says %q, %v", got, err)
	}
}

// A sandbox that could not be resumed is paused, in the store too, and can be
// resumed later.
func TestResumeThatTakesTooLongIsUndone(t *testing.T) {
	d := &tired{}
	r := newRig(t, func(c *sandbox.Config) { d.Driver = c.Driver.(*fake.Driver); c.Driver = d })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Pause(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	d.resume = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	r.change = func(c *sandbox.Config) {
		d.Driver = c.Driver.(*fake.Driver)
		c.Driver, c.CreateTimeout = d, time.Second
	}
	r.restart()
	if err := r.Resume(ctx, "ann", info.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("resumed: %v", err)
	}
	if row, err := r.store.Sandbox(ctx, info.ID); err != nil || row.State != store.Paused {
		t.Errorf("in the store it is %s, %v", row.State, err)
	}
	d.resume = nil
	if err := r.Resume(ctx, "ann", info.ID); err != nil {
		t.Errorf("resumed later: %v", err)
	}
	if got := r.cell(info.ID, "e1", "print(1)"); got != "1\n" {
		t.Errorf("it says %q", got)
	}
}

// What a snapshot was taken of is what a sandbox made from it has.
func TestSnapshotsKeepTheLimitOfProcesses(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{PIDs: ptr(1000)})
	sn := r.snapshot(info.ID, api.SnapshotRequest{})
	made := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID})
	if made.PIDs != 1000 {
		t.Errorf("it has %d processes", made.PIDs)
	}
	if other := r.create(api.CreateSandboxRequest{FromSnapshot: sn.ID, PIDs: ptr(300)}); other.PIDs != 300 {
		t.Errorf("300 were asked for, and it has %d", other.PIDs)
	}
}

// late is a driver whose images are there when making them fails after all.
type late struct {
	*fake.Driver
	fails error
}

func (d *late) Snapshot(ctx context.Context, inst driver.Instance, dir string, how driver.Save) error {
	if d.fails == nil {
		return d.Driver.Snapshot(ctx, inst, dir, how)
	}
	return errors.Join(d.Driver.Snapshot(ctx, inst, dir, driver.Save{}), d.fails)
}

// What goes on has no image to wake up from: it would be that of an earlier
// moment, and in the way of the next.
func TestImagesThatFailLateAreRemoved(t *testing.T) {
	d := &late{fails: errors.New("it could not be ended")}
	r := newRig(t, func(c *sandbox.Config) { d.Driver = c.Driver.(*fake.Driver); c.Driver = d })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); !errors.Is(err, d.fails) {
		t.Fatalf("hibernated: %v", err)
	}
	if _, err := r.Snapshot(ctx, "ann", info.ID, api.SnapshotRequest{}); !errors.Is(err, d.fails) {
		t.Fatalf("taken: %v", err)
	}
	if got := r.images(); len(got) != 0 {
		t.Errorf("images %q", got)
	}
	d.fails = nil
	r.cell(info.ID, "e1", "a = 7")
	if err := r.Hibernate(ctx, "ann", info.ID, api.CarryRequest{}); err != nil {
		t.Fatalf("the next time: %v", err)
	}
	if got := r.cell(info.ID, "e2", "print(a)"); got != "7\n" {
		t.Errorf("it says %q", got)
	}
}
