package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
)

// refused is the error of a create for which there is no room.
func (r *rig) refused(req api.CreateSandboxRequest) *fault.Error {
	r.t.Helper()
	_, err := r.Create(context.Background(), "ann", req)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNoCapacity {
		r.t.Fatalf("%+v: %v, not of the kind no_capacity", req, err)
	}
	if f.RetryAfter <= 0 || f.Hint == "" {
		r.t.Errorf("%+v: no word on when to try again: %+v", req, f)
	}
	return f
}

// What is promised to sandboxes is bounded by what the host has and by how much
// of it may be promised, and the refusal has the numbers.
func TestPromisesAreBoundedByTheHost(t *testing.T) {
	for _, tc := range []struct {
		name  string
		over  sandbox.Overcommit
		one   api.CreateSandboxRequest
		fit   int
		words []string
	}{
		// 32768 MB, of which 2768 are kept back, twice: 60000.
		{"memory", sandbox.Overcommit{Memory: 2}, api.CreateSandboxRequest{MemoryMB: ptr(20000)}, 3, []string{"memory", "60000 of 60000 MB", "30000 × memory_overcommit 2", "3 sandboxes", "20000"}},
		{"cpu", sandbox.Overcommit{CPU: 1.5}, api.CreateSandboxRequest{CPU: ptr(5.0)}, 2, []string{"processors", "10 of 12 cores", "8 × cpu_overcommit 1.5", "2 sandboxes"}},
		{"disk", sandbox.Overcommit{Disk: 1}, api.CreateSandboxRequest{DiskMB: ptr(100000)}, 2, []string{"disk", "200000 of 200000 MB", "disk_overcommit 1"}},
		{"nothing is added up", sandbox.Overcommit{}, api.CreateSandboxRequest{MemoryMB: ptr(20000), CPU: ptr(8.0), DiskMB: ptr(100000)}, 9, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(c *sandbox.Config) {
				c.Overcommit, c.MinFreeMB, c.MinFreeDiskMB = tc.over, 2768, 200<<10-200000
				c.DiskAvailable = func() (int64, error) { return 200 << 30, nil }
			})
			var made []api.SandboxInfo
			for range tc.fit {
				made = append(made, r.create(tc.one))
			}
			if tc.words == nil {
				return
			}
			f := r.refused(tc.one)
			for _, w := range tc.words {
				if !strings.Contains(f.Message, w) {
					t.Errorf("%q does not say %q", f.Message, w)
				}
			}
			// What a restart finds again is counted again, and what is killed no more.
			r.restart()
			r.refused(tc.one)
			if err := r.Kill(context.Background(), "ann", made[0].ID); err != nil {
				t.Fatal(err)
			}
			r.create(tc.one)
			r.refused(tc.one)
		})
	}
}

// The number of sandboxes that counts is the true one at each moment: what a
// kill has ended makes room before the kill returns.
func TestCountDoesNotLagBehindKills(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxSandboxes = 1 })
	for range 20 {
		sb := r.create(api.CreateSandboxRequest{})
		if f := r.refused(api.CreateSandboxRequest{}); !strings.Contains(f.Message, "its maximum of 1 sandboxes") || !strings.Contains(f.Message, "max_sandboxes") {
			t.Errorf("%q does not name the number and the setting", f.Message)
		}
		if err := r.Kill(context.Background(), "ann", sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	r.host.Break(fake.Faults{Restore: func(context.Context, string) error { return errors.New("on purpose") }})
	if _, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{}); err == nil {
		t.Fatal("a create that fails gives a sandbox")
	}
	r.host.Break(fake.Faults{})
	r.create(api.CreateSandboxRequest{}) // what failed does not count
}

// Without max_sandboxes the host alone decides, far beyond 20.
func TestNoLimitOfNumberMeansNone(t *testing.T) {
	r := newRig(t, nil)
	for range 40 {
		r.create(api.CreateSandboxRequest{})
	}
}

// A sandbox per run of a workflow that nobody ends is ended by its time to
// live, and makes room for the next.
func TestSandboxesOfEveryRunDoNotAccumulate(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxSandboxes, c.DefaultTTL = 3, time.Minute })
	for range 5 {
		for range 3 {
			r.create(api.CreateSandboxRequest{})
		}
		r.refused(api.CreateSandboxRequest{})
		r.clock.advance(time.Minute)
		if err := r.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	r.clean()
}

// Other limits than the template's are served from the pools where a sandbox
// can be given them so that nothing inside tells, and only there.
func TestPoolServesOtherLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		req  api.CreateSandboxRequest
		mode string
		want driver.Limits
	}{
		"the template's own": {api.CreateSandboxRequest{MemoryMB: ptr(512)}, "pool", driver.Limits{CPU: 1, MemoryMB: 512, DiskMB: 1024, PIDs: 256}},
		"memory":             {api.CreateSandboxRequest{MemoryMB: ptr(300)}, "pool", driver.Limits{CPU: 1, MemoryMB: 300, DiskMB: 1024, PIDs: 256}},
		"disk":               {api.CreateSandboxRequest{DiskMB: ptr(5000)}, "pool", driver.Limits{CPU: 1, MemoryMB: 512, DiskMB: 5000, PIDs: 256}},
		"processes":          {api.CreateSandboxRequest{PIDs: ptr(1000)}, "pool", driver.Limits{CPU: 1, MemoryMB: 512, DiskMB: 1024, PIDs: 1000}},
		"a part of a core":   {api.CreateSandboxRequest{CPU: ptr(0.5)}, "pool", driver.Limits{CPU: 0.5, MemoryMB: 512, DiskMB: 1024, PIDs: 256}},
		"more cores":         {api.CreateSandboxRequest{CPU: ptr(4.0)}, "cold", driver.Limits{CPU: 4, MemoryMB: 512, DiskMB: 1024, PIDs: 256}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}} })
			eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
			sb := r.create(tc.req)
			if sb.BootMode != tc.mode {
				t.Errorf("it came from %s, not %s", sb.BootMode, tc.mode)
			}
			if got := (driver.Limits{CPU: sb.CPU, MemoryMB: sb.MemoryMB, DiskMB: sb.DiskMB, PIDs: sb.PIDs}); got != tc.want {
				t.Errorf("it is said to have %+v", got)
			}
			if got := r.host.Limits(sb.ID); got != tc.want {
				t.Errorf("the driver was told %+v", got)
			}
			memory, pids := 0, 0
			for _, a := range r.host.Guest(sb.ID).Assigned() {
				memory = a.MemoryMB
				if a.PIDs > 0 { // 0 leaves them as they are
					pids = a.PIDs
				}
			}
			if memory != tc.want.MemoryMB || pids != tc.want.PIDs {
				t.Errorf("the guest was told %d MB and %d processes", memory, pids)
			}
		})
	}
}

// A limit below what a sandbox of the template needs is refused by its name, and
// costs the pool nothing.
func TestTooLittleIsRefusedAndThePoolStays(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}} })
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
	pooled := r.host.IDs()[0]
	r.host.Uses(pooled, driver.Stats{MemoryBytes: 200 << 20})
	for range 3 {
		_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{MemoryMB: ptr(130)})
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != "memory_mb" {
			t.Fatalf("too little memory: %v", err)
		}
	}
	if ids := r.host.IDs(); len(ids) != 1 || ids[0] != pooled {
		t.Errorf("the pool was %s and is %q", pooled, ids)
	}
	if sb := r.create(api.CreateSandboxRequest{}); sb.ID != pooled || sb.BootMode != "pool" || sb.MemoryMB != 512 {
		t.Errorf("the next create got %+v", sb)
	}
}

func TestUseAndLimits(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	sb := r.create(api.CreateSandboxRequest{CPU: ptr(0.5)})
	r.host.Uses(sb.ID, driver.Stats{
		MemoryBytes: 200 << 20, CPUSeconds: 1, Tasks: 12, DiskBytes: 3 << 20, DiskRefused: 4, TasksRefused: 5, Throttled: 6, ThrottledSeconds: 0.7,
		Process: driver.Process{PID: 99, RSSBytes: 1, VSZBytes: 2, Threads: 3},
	})
	r.clock.advance(10 * time.Second)
	m, err := r.Metrics(ctx, "ann", sb.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := api.Metrics{
		PID: 99, UptimeSeconds: m.UptimeSeconds, HostCPUPercent: m.Usage.CPUPercent, HostRSSBytes: 1, HostVSZBytes: 2, Threads: 3,
		Limits: api.Limits{CPU: 0.5, MemoryMB: 512, DiskMB: 1024, PIDs: 256},
		Usage: api.Usage{
			At: m.Usage.At, CPUPercent: m.Usage.CPUPercent, CPUSeconds: 1, MemoryBytes: 200 << 20, DiskBytes: 3 << 20, Processes: 12,
			LimitHits: api.LimitHits{CPU: 6, CPUSeconds: 0.7, DiskMB: 4, PIDs: 5},
		},
	}
	if m != want {
		t.Errorf("%+v\nwant %+v", m, want)
	}
	r.host.Uses(sb.ID, driver.Stats{CPUSeconds: 2})
	r.clock.advance(2 * time.Second)
	if m, err = r.Metrics(ctx, "ann", sb.ID); err != nil || m.Usage.CPUPercent < 45 || m.Usage.CPUPercent > 55 {
		t.Errorf("a second of work in two: %.1f %%, %v", m.Usage.CPUPercent, err)
	}
	if info, err := r.Get(ctx, "ann", sb.ID); err != nil || info.Usage == nil || info.Usage.CPUSeconds != 2 || info.PIDs != 256 {
		t.Errorf("the description of a sandbox lacks its use: %+v, %v", info.Usage, err)
	}
	if _, err := r.Metrics(ctx, "bob", sb.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	if err := r.Pause(ctx, "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Metrics(ctx, "ann", sb.ID); err != nil {
		t.Errorf("of a paused one: %v", err)
	}
	if err := r.Kill(ctx, "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Metrics(ctx, "ann", sb.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("of one that was killed: %v", err)
	}
}

// hits are the events of a sandbox about limits.
func (r *rig) hits(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.noted {
		if e.SandboxID == id && e.Type == api.LifeLimitHit {
			out = append(out, fmt.Sprintf("%s %d: %s", e.Payload["limit"], e.Payload["hits"], e.Payload["detail"]))
		}
	}
	return out
}

// Each limit that is met makes an event, also when nobody asks, and not one for
// every time.
func TestLimitsThatAreMetMakeEvents(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.LookEvery = 5 * time.Millisecond })
	sb := r.create(api.CreateSandboxRequest{})
	eventually(t, "a first look", func() bool {
		info, err := r.Get(context.Background(), "ann", sb.ID)
		return err == nil && info.Usage != nil
	})
	for i, tc := range []struct {
		uses driver.Stats
		want string
	}{
		{driver.Stats{DiskRefused: 2}, "disk_mb 2: 2 writes refused by its limit of 1024 MB"},
		{driver.Stats{DiskRefused: 2, TasksRefused: 3}, "pids 3: 3 processes refused by its limit of 256"},
		{driver.Stats{DiskRefused: 2, TasksRefused: 3, Throttled: 20, ThrottledSeconds: 1.5}, "cpu 20: held back in 20 periods of 100 ms, 1.5 s in all, by its limit of 1 cores"},
	} {
		r.host.Uses(sb.ID, tc.uses)
		r.clock.advance(time.Minute)
		eventually(t, tc.want, func() bool {
			h := r.hits(sb.ID)
			return len(h) == i+1 && h[i] == tc.want
		})
	}
	r.host.Guest(sb.ID).ShortOfMemory(7)
	r.clock.advance(time.Minute)
	eventually(t, "memory", func() bool {
		h := r.hits(sb.ID)
		return len(h) == 4 && h[3] == "memory_mb 7: short of memory 7 times under its limit of 512 MB"
	})
	r.host.Uses(sb.ID, driver.Stats{DiskRefused: 9, TasksRefused: 3, Throttled: 20})
	if _, err := r.Metrics(context.Background(), "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	r.clock.advance(30 * time.Second) // less than a minute after the last of its kind? no: after that of disk more
	if _, err := r.Metrics(context.Background(), "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	r.host.Uses(sb.ID, driver.Stats{DiskRefused: 10, TasksRefused: 3, Throttled: 20})
	if _, err := r.Metrics(context.Background(), "ann", sb.ID); err != nil {
		t.Fatal(err)
	}
	if h := r.hits(sb.ID); len(h) != 5 || !strings.HasPrefix(h[4], "disk_mb 9: ") {
		t.Errorf("within a minute: %q", h)
	}
	// The next daemon finds the same counts, and no news in them.
	r.restart()
	for range 3 {
		r.clock.advance(time.Minute)
		if _, err := r.Metrics(context.Background(), "ann", sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if h := r.hits(sb.ID); len(h) != 5 {
		t.Errorf("after a restart: %q", h)
	}
}

// Being looked at is no use of a sandbox: it would never be idle.
func TestLooksAreNoSignOfLife(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.LookEvery = 5 * time.Millisecond })
	sb := r.create(api.CreateSandboxRequest{})
	r.clock.advance(time.Minute)
	for range 3 {
		if _, err := r.Metrics(context.Background(), "ann", sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := r.Lifecycle(context.Background(), "ann", sb.ID); err != nil || l.IdleSeconds < 60 {
		t.Errorf("idle for %v s after a minute; %v", l.IdleSeconds, err)
	}
}

// How a cell or command ended is explained by the limit that was behind it, by
// name and number.
func TestHints(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	sb := r.create(api.CreateSandboxRequest{})
	const memory, disk, pids = "512 MB (memory_mb)", "1024 MB (disk_mb)", "256 processes and threads (pids)"
	for _, tc := range []struct{ end, words, want string }{
		{"error", "Traceback\nMemoryError", memory},
		{"oom", "", memory},
		{"error", "OSError: [Errno 28] No space left on device", disk},
		{"exited", "dd: error writing '/x': No space left on device", disk},
		{"exited", "bash: fork: retry: Resource temporarily unavailable", pids},
		{"error", "BlockingIOError: [Errno 11] Resource temporarily unavailable", pids},
		{"error", "RuntimeError: can't start new thread", pids},
		{"error", "RuntimeError: can't start new thread", memory},
		{"exited", "sh: 1: Cannot fork", pids},
		{"error", "ZeroDivisionError: division by zero", ""},
		{"timeout", "", ""},
	} {
		if got := r.Hint(ctx, "ann", sb.ID, tc.end, tc.words); (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s, %q: %q", tc.end, tc.words, got)
		}
	}
	// A time that was up, for want of memory or CPU.
	r.host.Uses(sb.ID, driver.Stats{MemoryBytes: 500 << 20})
	if got := r.Hint(ctx, "ann", sb.ID, "timeout", ""); !strings.Contains(got, "500 of its 512 MB of memory") {
		t.Errorf("short of memory: %q", got)
	}
	r.host.Uses(sb.ID, driver.Stats{MemoryBytes: 100 << 20, Throttled: 10})
	r.clock.advance(time.Second)
	if got := r.Hint(ctx, "ann", sb.ID, "timeout", ""); !strings.Contains(got, "limit of 1 cores") {
		t.Errorf("held back: %q", got)
	}
	if got := r.Hint(ctx, "bob", sb.ID, "oom", ""); got != "" {
		t.Errorf("somebody else is told %q", got)
	}
	r.host.End(sb.ID, driver.Exit{Reason: "oom"})
	eventually(t, "a sandbox that ended for its memory explains its cells", func() bool {
		return strings.Contains(r.Hint(ctx, "ann", sb.ID, "kernel_died", ""), memory)
	})
}

// A limit of 0 as a setting means what it says, not a default.
func TestSettingsOfZero(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) {
		c.MaxSandboxes, c.MinFreeMB, c.MinFreeDiskMB = 0, 0, 0
		c.MemoryAvailable = func() (int64, error) { return 200 << 20, nil } // less than any default reserve
	})
	for i := range 3 {
		if _, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{}); err != nil {
			t.Fatal(fmt.Errorf("%d sandboxes: %w", i, err))
		}
	}
}
