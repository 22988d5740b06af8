package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/sandbox"
)

// payload gives what the newest event of a type says.
func (r *rig) payload(id, kind string) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range slices.Backward(r.noted) {
		if e.SandboxID == id && e.Type == kind {
			if e.Owner != "ann" {
				r.t.Errorf("the event %s belongs to %q", kind, e.Owner)
			}
			return e.Payload
		}
	}
	r.t.Errorf("there is no event %s of %s", kind, id)
	return nil
}

// The life of a sandbox can be read afterwards, with who did what.
func TestLifeIsNoted(t *testing.T) {
	r := newRig(t, nil)
	ctx := caller.With(context.Background(), caller.Caller{RequestID: "req-1", Key: "pds_12345678"})
	info, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.PatchLifecycle(ctx, "ann", info.ID, api.LifecyclePatch{TTLSeconds: ptr(77)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	if err := r.Resume(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	r.cell(info.ID, "e1", "a = 7") // the pause broke the link, too; now there is one to break
	r.host.Guest(info.ID).BreakLink()
	eventually(t, "the link is back", func() bool { return slices.Contains(r.events(info.ID), api.LifeLinkRestored) })
	r.restart()
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	want := []string{
		api.LifeCreated, api.LifeReady, api.LifeLifecycleChanged, api.LifePaused, api.LifeResumed, api.LifeLinkLost, api.LifeLinkRestored,
		api.LifeAdopted, api.LifeKilled, api.LifeEnded,
	}
	if got := r.events(info.ID); !slices.Equal(got, want) {
		t.Errorf("events %q\nwant   %q", got, want)
	}
	for _, kind := range []string{api.LifeCreated, api.LifeKilled, api.LifePaused, api.LifeLifecycleChanged} {
		if p := r.payload(info.ID, kind); p["by"] != "pds_12345678" || p["request_id"] != "req-1" {
			t.Errorf("%s: %v", kind, p)
		}
	}
	if p := r.payload(info.ID, api.LifeReady); p["path"] != "cold" || p["boot_ms"].(float64) <= 0 {
		t.Errorf("ready: %v", p)
	}
	if p := r.payload(info.ID, api.LifeEnded); p["reason"] != "killed" {
		t.Errorf("ended: %v", p)
	}
	// After the end it is still known whose they are.
	if of, err := r.EventsOf(ctx, "ann", info.ID); err != nil || of.SandboxID != info.ID || of.Owner != "ann" {
		t.Errorf("%+v, %v", of, err)
	}
	if _, err := r.EventsOf(ctx, "bob", info.ID); err == nil {
		t.Error("somebody else may read them")
	}
}

func TestEndsAreNotedWithTheirReason(t *testing.T) {
	r := newRig(t, nil)
	expires, full := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(5)}), r.create(api.CreateSandboxRequest{})
	r.clock.advance(6 * time.Second)
	if err := r.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := r.events(expires.ID); !slices.Equal(got[2:], []string{api.LifeExpired, api.LifeEnded}) {
		t.Errorf("one that expired: %q", got)
	}
	r.host.End(full.ID, driver.Exit{Code: 137, Reason: "oom"})
	eventually(t, "its end is noted", func() bool { return slices.Contains(r.events(full.ID), api.LifeEnded) })
	got := slices.DeleteFunc(r.events(full.ID)[2:], func(kind string) bool { return kind == api.LifeLinkLost }) // it may be seen first
	if !slices.Equal(got, []string{api.LifeOOM, api.LifeEnded}) {
		t.Errorf("one without memory: %q", got)
	}
}

// Whoever makes events fast loses his own, and is told how many.
func TestFloodOfEventsIsHeld(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{})
	for range 500 {
		r.manager.Manager.Note("ann", info.ID, api.LifeCellEnded, nil)
	}
	if n := len(r.events(info.ID)); n < 10 || n > 60 {
		t.Errorf("%d of 500 events were kept", n)
	}
	kept := len(r.events(info.ID))
	r.clock.advance(time.Minute)
	r.manager.Manager.Note("ann", info.ID, api.LifeCellEnded, nil)
	got := r.events(info.ID)
	if !slices.Equal(got[kept:], []string{api.LifeSuppressed, api.LifeCellEnded}) {
		t.Errorf("the next ones are %q", got[kept:])
	}
	if p := r.payload(info.ID, api.LifeSuppressed); p["count"] != 502-kept {
		t.Errorf("%v are said to be missing of %d", p["count"], 502-kept)
	}
}

func TestOverview(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1, Prepared: 1}} })
	eventually(t, "the pools are full", func() bool { return r.PoolSizes()["base"] == sandbox.PoolSize{Restored: 1, Prepared: 1} })
	info := r.create(api.CreateSandboxRequest{Template: "code-interpreter"})
	if err := r.Pause(context.Background(), "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	o := r.Overview(context.Background())
	if o.States["pooled"] != 1 || o.States["prepared"] != 1 || o.States["paused"] != 1 || o.Wanted["base"].Restored != 1 || o.MemoryBytes != 2<<20 {
		t.Errorf("%+v", o)
	}
}

// An agent of a time that is too long ago, or to come, says itself that its
// template has to be built again; nobody waits for it in vain.
func TestAgentOfAnotherTimeMeansRebuild(t *testing.T) {
	r := newRig(t, nil)
	r.host.Break(fake.Faults{Guest: func(ctx context.Context, spec driver.Spec) {
		for ctx.Err() == nil {
			conn, _, err := fake.Dial(ctx, spec.LinkDir, guestapi.Hello{Protocol: guestapi.Protocol + 1})
			if err == nil {
				t.Error("it was let in")
				conn.Close()
				return
			}
		}
	}})
	_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeConflict || f.Hint != "rebuild it: pandastack template build base" {
		t.Errorf("%v", err)
	}
	r.host.Break(fake.Faults{})
	r.clean()
}
