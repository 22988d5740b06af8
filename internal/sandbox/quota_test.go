package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
)

// One workspace cannot take the places of all. A place is free as soon as a
// kill has returned, or a sandbox has died, and after a restart all are known.
func TestAWorkspaceHasItsShare(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxPerOwner, c.MaxSandboxes = 2, 3 })
	ctx := context.Background()
	full := func(when string) {
		t.Helper()
		_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeRateLimited || f.Hint == "" || f.RetryAfter < 5*time.Second {
			t.Errorf("one too many %s: %v", when, err)
		}
	}
	a, b := r.create(api.CreateSandboxRequest{}), r.create(api.CreateSandboxRequest{})
	full("at first")
	if _, err := r.Create(ctx, "bob", api.CreateSandboxRequest{}); err != nil {
		t.Errorf("another workspace: %v", err)
	}
	if _, err := r.Create(ctx, "carol", api.CreateSandboxRequest{}); !errors.Is(err, fault.NoCapacity) {
		t.Errorf("one more than the server holds: %v", err)
	}
	r.restart()
	if _, err := r.List(ctx, "", sandbox.ListFilter{}); err != nil { // adoption is done
		t.Fatal(err)
	}
	full("after a restart")
	for range 50 {
		if err := r.Kill(ctx, "ann", a.ID); err != nil {
			t.Fatal(err)
		}
		a = r.create(api.CreateSandboxRequest{}) // at once
	}
	full("after many")
	r.host.End(b.ID, driver.Exit{Code: 137, Reason: "crashed"})
	eventually(t, "the dead one gives its place free", func() bool {
		_, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
		return err == nil
	})
	full("after a death")
}

// However many creates and kills go on at once, the share is kept and no place
// is lost.
func TestASharesCountIsExact(t *testing.T) {
	const share = 3
	r := newRig(t, func(c *sandbox.Config) { c.MaxPerOwner, c.Concurrency = share, 8 })
	ctx := context.Background()
	var live, most, refused atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				info, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
				if errors.Is(err, fault.RateLimited) {
					refused.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				n := live.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				live.Add(-1)
				if err := r.Kill(ctx, "ann", info.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > share || refused.Load() == 0 {
		t.Errorf("at most %d at once, %d refused", most.Load(), refused.Load())
	}
	for i := range share {
		if _, err := r.Create(ctx, "ann", api.CreateSandboxRequest{Metadata: map[string]string{"n": fmt.Sprint(i)}}); err != nil {
			t.Errorf("place %d: %v", i, err)
		}
	}
}
