package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// plenty is memory of the host that never runs short.
func plenty() (int64, error) { return 64 << 30, nil }

// rig is a host with a daemon on it that can be killed and started again.
type rig struct {
	t      *testing.T
	host   *fake.Host
	dir    string
	clock  *clock
	tmpls  *templates
	change func(*sandbox.Config)

	store *store.Store
	*manager
	stop func()

	mu    sync.Mutex
	noted []store.Event
}

// manager lets the rig have a Note of its own.
type manager struct{ *sandbox.Manager }

// clock is a clock that a test winds: time passes, or somebody sets it.
type clock struct{ ahead, set atomic.Int64 }

var testsBegan = time.Now()

func (c *clock) Now() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load() + c.set.Load()))
}
func (c *clock) Elapsed() time.Duration {
	return time.Since(testsBegan) + time.Duration(c.ahead.Load())
}
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }
func (c *clock) setBy(d time.Duration)   { c.set.Add(int64(d)) }

type templates struct {
	mu   sync.Mutex
	list []sandbox.Template
	old  []sandbox.Template // replaced, and there still
}

func (x *templates) Templates(context.Context) ([]sandbox.Template, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.list), nil
}

func (x *templates) ByDigest(_ context.Context, digest string) (sandbox.Template, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range append(slices.Clone(x.list), x.old...) {
		if t.Info.Digest == digest {
			return t, nil
		}
	}
	return sandbox.Template{}, fault.New(api.CodeNotFound, "no template %s", digest)
}

// lose takes a folder of the first template away; "" brings it back.
func (x *templates) lose(folder string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list[0].Missing = folder
}

func (x *templates) replace(digest string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.old = append(x.old, x.list[0])
	x.list[0].Info.Digest = digest
}

func newRig(t *testing.T, change func(*sandbox.Config)) *rig {
	t.Helper()
	snapshot := t.TempDir()
	r := &rig{t: t, host: fake.NewHost(), dir: t.TempDir(), clock: &clock{}, change: change, tmpls: &templates{list: []sandbox.Template{{
		Info:     api.TemplateInfo{Name: "base", Aliases: []string{"ubuntu-24.04"}, Digest: "d1", CPU: 1, MemoryMB: 512, DiskMB: 1024},
		Snapshot: snapshot, Rootfs: "/nowhere", Programs: "/nowhere", PIDs: 256, Spares: 1,
	}, {
		Info:     api.TemplateInfo{Name: "code-interpreter", Digest: "d2", CPU: 1, MemoryMB: 1024, DiskMB: 1024},
		Snapshot: snapshot, Rootfs: "/nowhere", Programs: "/nowhere", PIDs: 256,
	}}}}
	r.start()
	t.Cleanup(func() {
		r.stop()
		r.host.Break(fake.Faults{})
		if _, err := fake.New(r.host).Sweep(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	return r
}

// start starts a daemon on what is there.
func (r *rig) start() {
	r.t.Helper()
	st, err := store.Open(context.Background(), r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := sandbox.Config{
		Driver: fake.New(r.host), Store: st, Templates: r.tmpls, Now: r.clock.Now, Elapsed: r.clock.Elapsed, RunDir: filepath.Join(r.dir, "run"), Journal: r,
		MinFreeMB: 512, MinFreeDiskMB: 512, LookEvery: time.Hour,
		MemoryAvailable: plenty, DiskAvailable: plenty, PoolDelay: time.Millisecond, SweepEvery: time.Hour, Logger: logger(r.t),
		Capacity: func() (sandbox.Capacity, error) { return sandbox.Capacity{CPU: 8, MemoryMB: 32 << 10}, nil },
	}
	if r.change != nil {
		r.change(&cfg)
	}
	m, err := sandbox.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	r.store, r.manager = st, &manager{m}
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			r.t.Errorf("Run: %v", err)
		}
		if err := m.Close(context.Background()); err != nil {
			r.t.Errorf("Close: %v", err)
		}
		st.Close()
	})
}

// Note keeps what the daemon notes, over restarts.
func (r *rig) Note(e store.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted = append(r.noted, e)
}

// events gives the types of a sandbox's events so far.
func (r *rig) events(id string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.noted {
		if e.SandboxID == id {
			out = append(out, e.Type)
		}
	}
	return out
}

// restart is the end of a daemon and the start of the next. What the end of
// the process takes along, the links and the lock, goes; nothing is tidied.
func (r *rig) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

func logger(t *testing.T) *slog.Logger {
	if os.Getenv("TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (r *rig) create(req api.CreateSandboxRequest) api.SandboxInfo {
	r.t.Helper()
	info, err := r.Create(context.Background(), "ann", req)
	if err != nil {
		r.t.Fatalf("Create: %v", err)
	}
	return info
}

// eventually waits for a condition that something in the background brings.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// clean checks that nothing is left on the host.
func (r *rig) clean() {
	r.t.Helper()
	if ids := r.host.IDs(); len(ids) > 0 {
		r.t.Errorf("still on the host: %q", ids)
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, "run"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		r.t.Errorf("link folder %s is left", e.Name())
	}
	rows, err := r.store.SandboxesOf(context.Background(), "", store.Prepared, store.Pooled, store.Creating, store.Running, store.Paused, store.Hibernated, store.Stopping)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range rows {
		r.t.Errorf("row %s is left in state %s", row.ID, row.State)
	}
	if images := r.images(); len(images) > 0 {
		r.t.Errorf("images are left: %q", images)
	}
}

func ptr[T any](v T) *T { return &v }

func TestCreateUseKill(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Envs: map[string]string{"A": "b"}, Metadata: map[string]string{"run": "7"}})
	if info.Status != api.StatusRunning || info.BootMode != "cold" || info.Template != "base" || info.TTLSeconds != 300 || info.Generation != 1 || info.MemoryMB != 512 {
		t.Errorf("created %+v", info)
	}
	a := r.host.Guest(info.ID).Assigned()
	if len(a) != 1 || a[0].SandboxID != info.ID || a[0].Hostname != info.ID || len(a[0].Entropy) != 64 || len(a[0].MachineID) != 32 || a[0].Envs["A"] != "b" || !a[0].Reseed || a[0].Spares != 1 {
		t.Errorf("assigned %+v", a)
	}
	c, done, err := r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(ctx); err != nil {
		t.Error(err)
	}
	done()
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Guest(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("a call to a killed sandbox: %v", err)
	}
	if err := r.Kill(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("the second kill: %v", err)
	}
	r.clean()
}

func TestOthersSandboxesDoNotExist(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	_, wrong := r.Get(ctx, "bob", "sb-0000000000000000")
	for name, call := range map[string]func(owner string) error{
		"Get":       func(o string) error { _, err := r.Get(ctx, o, info.ID); return err },
		"Kill":      func(o string) error { return r.Kill(ctx, o, info.ID) },
		"Lifecycle": func(o string) error { _, err := r.Lifecycle(ctx, o, info.ID); return err },
		"Guest":     func(o string) error { _, _, err := r.Guest(ctx, o, info.ID); return err },
		"Pause":     func(o string) error { return r.Pause(ctx, o, info.ID) },
	} {
		err := call("bob")
		if !errors.Is(err, fault.NotFound) || strings.ReplaceAll(err.Error(), info.ID, "") != strings.ReplaceAll(wrong.Error(), "sb-0000000000000000", "") {
			t.Errorf("%s of another's sandbox: %v; of none: %v", name, err, wrong)
		}
	}
	if list, err := r.List(ctx, "bob", sandbox.ListFilter{}); err != nil || len(list) != 0 {
		t.Errorf("bob sees %v, %v", list, err)
	}
	if _, err := r.Get(ctx, "", info.ID); err != nil {
		t.Errorf("the administrator: %v", err)
	}
}

func TestBadRequestsNameTheField(t *testing.T) {
	r := newRig(t, nil)
	for _, tc := range []struct {
		req   api.CreateSandboxRequest
		code  api.Code
		field string
	}{
		{api.CreateSandboxRequest{TTLSeconds: ptr(0)}, api.CodeInvalid, "ttl_seconds"},
		{api.CreateSandboxRequest{TTLSeconds: ptr(-5)}, api.CodeInvalid, "ttl_seconds"},
		{api.CreateSandboxRequest{TTLSeconds: ptr(86401)}, api.CodeInvalid, "ttl_seconds"},
		{api.CreateSandboxRequest{IdleTimeoutSeconds: ptr(-1)}, api.CodeInvalid, "idle_timeout_seconds"},
		{api.CreateSandboxRequest{FromSnapshot: "x"}, api.CodeNotFound, "from_snapshot"},
		{api.CreateSandboxRequest{CPU: ptr(-1.0)}, api.CodeInvalid, "cpu"},
		{api.CreateSandboxRequest{CPU: ptr(1e9)}, api.CodeInvalid, "cpu"},
		{api.CreateSandboxRequest{MemoryMB: ptr(1)}, api.CodeInvalid, "memory_mb"},
		{api.CreateSandboxRequest{MemoryMB: ptr(33 << 10)}, api.CodeInvalid, "memory_mb"},
		{api.CreateSandboxRequest{DiskMB: ptr(-1)}, api.CodeInvalid, "disk_mb"},
		{api.CreateSandboxRequest{DiskMB: ptr(201 << 10)}, api.CodeInvalid, "disk_mb"},
		{api.CreateSandboxRequest{PIDs: ptr(15)}, api.CodeInvalid, "pids"},
		{api.CreateSandboxRequest{PIDs: ptr(32769)}, api.CodeInvalid, "pids"},
		{api.CreateSandboxRequest{Envs: map[string]string{"A=B": ""}}, api.CodeInvalid, "envs"},
		{api.CreateSandboxRequest{Envs: map[string]string{"A": "\x00"}}, api.CodeInvalid, "envs.A"},
		{api.CreateSandboxRequest{Metadata: map[string]string{"": "x"}}, api.CodeInvalid, "metadata"},
		{api.CreateSandboxRequest{Metadata: map[string]string{"k": strings.Repeat("x", 5000)}}, api.CodeInvalid, "metadata.k"},
		{api.CreateSandboxRequest{Metadata: map[string]string{"a\x00b": "x"}}, api.CodeInvalid, "metadata"},
		{api.CreateSandboxRequest{Metadata: map[string]string{"a\nb": "x"}}, api.CodeInvalid, "metadata"},
		{api.CreateSandboxRequest{Metadata: map[string]string{"k": "a\x00b"}}, api.CodeInvalid, "metadata.k"},
		{api.CreateSandboxRequest{Metadata: manyPairs(65)}, api.CodeInvalid, "metadata"},
		{api.CreateSandboxRequest{Template: "code-interpeter"}, api.CodeNotFound, "template"},
	} {
		_, err := r.Create(context.Background(), "ann", tc.req)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != tc.code || f.Field != tc.field {
			t.Errorf("%+v: %v (%+v), want %s of %s", tc.req, err, f, tc.code, tc.field)
		}
		if tc.field == "template" && !strings.Contains(f.Hint, "code-interpreter") {
			t.Errorf("the hint for %q is %q", tc.req.Template, f.Hint)
		}
	}
	r.clean()
}

func manyPairs(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprint(i)] = "x"
	}
	return out
}

func TestPoolIsClaimedAndRefilled(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 2, Prepared: 1}} })
	full := func() bool { return r.PoolSizes()["base"] == sandbox.PoolSize{Restored: 2, Prepared: 1} }
	eventually(t, "the pools are full", full)
	if list, err := r.List(context.Background(), "", sandbox.ListFilter{}); err != nil || len(list) != 0 {
		t.Errorf("the pool is shown: %v, %v", list, err)
	}
	before := r.host.Restores()
	info := r.create(api.CreateSandboxRequest{Template: "ubuntu-24.04", Envs: map[string]string{"A": "b"}})
	if info.BootMode != "pool" || info.Template != "base" {
		t.Errorf("created %+v", info)
	}
	// The guest learns its name in the pool and the rest when it is claimed.
	a := r.host.Guest(info.ID).Assigned()
	if len(a) != 2 || a[0].Hostname != info.ID || len(a[0].MachineID) != 32 || a[0].Reseed || a[1].SandboxID != info.ID || !a[1].Reseed || a[1].Envs["A"] != "b" {
		t.Errorf("assigned %+v", a)
	}
	if bytes.Equal(a[0].Entropy, a[1].Entropy) {
		t.Error("the same entropy twice")
	}
	eventually(t, "the pools are full again", full)
	if r.host.Restores() != before+1 {
		t.Errorf("%d restores for one claim", r.host.Restores()-before)
	}
	if other := r.create(api.CreateSandboxRequest{MemoryMB: ptr(1024)}); other.BootMode != "pool" || other.MemoryMB != 1024 {
		t.Errorf("with other limits: %+v", other)
	}
	if cpu := r.create(api.CreateSandboxRequest{CPU: ptr(2.0)}); cpu.BootMode != "cold" || cpu.CPU != 2 {
		t.Errorf("with more cores: %+v", cpu)
	}
}

// yieldCounter counts how often the pools were left alone, and nothing else.
type yieldCounter struct {
	sandbox.NoMetrics
	n atomic.Int64
}

func (c *yieldCounter) PoolYielded() { c.n.Add(1) }

// While a user's sandbox is being made, the pool is left alone.
func TestPoolYieldsToUsers(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	var prepares atomic.Int32
	var yields yieldCounter
	r := newRig(t, func(c *sandbox.Config) {
		c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}}
		c.Metrics = &yields
	})
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error {
		if prepares.Add(1) == 1 {
			close(entered)
			<-leave
		}
		return nil
	}})
	created := make(chan struct{})
	go func() {
		defer close(created)
		r.create(api.CreateSandboxRequest{CPU: ptr(2.0)}) // not from the pool
	}()
	<-entered
	before := yields.n.Load()
	r.create(api.CreateSandboxRequest{}) // empties the pool and wakes who fills it
	eventually(t, "whoever fills the pool has looked and left it", func() bool { return yields.n.Load() > before })
	if n := prepares.Load(); n != 1 {
		t.Errorf("%d sandboxes were prepared while a user waited", n)
	}
	close(leave)
	<-created
	eventually(t, "the pool is full again", func() bool { return r.PoolSizes()["base"].Restored == 1 })
}

func TestPoolFollowsTheTemplate(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}} })
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
	old := r.host.IDs()
	running := r.create(api.CreateSandboxRequest{})
	r.tmpls.replace("d9")
	r.clock.advance(time.Minute)             // the cache of templates is stale
	_ = r.create(api.CreateSandboxRequest{}) // wakes the pool
	eventually(t, "the pool is of the new template", func() bool {
		use, err := r.TemplatesInUse(context.Background())
		return err == nil && use["d1"] && use["d9"] && r.PoolSizes()["base"].Restored == 1
	})
	if _, _, err := r.Guest(context.Background(), "ann", running.ID); err != nil {
		t.Errorf("the old sandbox %s of %v was disturbed: %v", running.ID, old, err)
	}
}

func TestDeadPoolMembersAreReplaced(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1}} })
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["base"].Restored == 1 })
	dead := r.host.IDs()[0]
	r.host.End(dead, driver.Exit{Code: 137, Reason: "oom"})
	eventually(t, "another one is there", func() bool {
		ids := r.host.IDs()
		return r.PoolSizes()["base"].Restored == 1 && len(ids) == 1 && ids[0] != dead
	})
	if info := r.create(api.CreateSandboxRequest{}); info.ID == dead {
		t.Error("the dead one was given away")
	}
}

// A hundred creates at once, some of them from the pool, all answer.
func TestBurst(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 5, Prepared: 5}} })
	var wg sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range 100 {
		wg.Go(func() {
			info, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			c, done, err := r.Guest(context.Background(), "ann", info.ID)
			if err != nil {
				t.Error(err)
				return
			}
			defer done()
			if _, err := c.Health(context.Background()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			ids[info.ID] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(ids) != 100 {
		t.Errorf("%d different ids", len(ids))
	}
	for id := range ids {
		wg.Go(func() {
			if err := r.Kill(context.Background(), "ann", id); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list, _ := r.List(context.Background(), "", sandbox.ListFilter{}); len(list) != 0 {
		t.Errorf("%d are still listed", len(list))
	}
}

func TestTooManyAreRefusedAtOnce(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.MaxSandboxes = 2 })
	a := r.create(api.CreateSandboxRequest{})
	r.create(api.CreateSandboxRequest{})
	_, err := r.Create(context.Background(), "bob", api.CreateSandboxRequest{})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeNoCapacity || f.Hint == "" {
		t.Fatalf("the third: %v", err)
	}
	if err := r.Kill(context.Background(), "ann", a.ID); err != nil {
		t.Fatal(err)
	}
	r.create(api.CreateSandboxRequest{})
}

func TestQueueIsBoundedInNumberAndTime(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Concurrency, c.MaxQueue, c.QueueTimeout = 1, 1, 50*time.Millisecond })
	entered, leave := make(chan struct{}), make(chan struct{})
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error { close(entered); <-leave; return nil }})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	if _, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{}); !errors.Is(err, fault.NoCapacity) { // waits its time
		t.Errorf("the one that waits: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() { _, _ = r.Create(ctx, "ann", api.CreateSandboxRequest{}) })
	var last error
	eventually(t, "one too many is refused", func() bool {
		_, last = r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
		return errors.Is(last, fault.NoCapacity)
	})
	cancel()
	close(leave)
	wg.Wait()
}

func TestShortOfMemoryThePoolGoesFirst(t *testing.T) {
	var free atomic.Int64
	free.Store(64 << 30)
	r := newRig(t, func(c *sandbox.Config) {
		c.Pool = map[string]sandbox.PoolSize{"code-interpreter": {Restored: 1}}
		c.MemoryAvailable = func() (int64, error) { return free.Load(), nil }
	})
	eventually(t, "the pool is full", func() bool { return r.PoolSizes()["code-interpreter"].Restored == 1 })
	pooled := r.host.IDs()[0]
	free.Store(100 << 20)
	_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
	if !errors.Is(err, fault.NoCapacity) {
		t.Errorf("without memory: %v", err)
	}
	if slices.Contains(r.host.IDs(), pooled) {
		t.Error("the pool was kept while a user was refused")
	}
	r.clean()
}

func TestExpiry(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	short := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	long := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	r.clock.advance(9 * time.Second)
	if _, err := r.PatchLifecycle(ctx, "ann", long.ID, api.LifecyclePatch{TTLSeconds: ptr(20)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, "ann", short.ID); err != nil {
		t.Errorf("before its time: %v", err)
	}
	r.clock.advance(2 * time.Second)
	for range 2 { // idempotent
		if err := r.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Get(ctx, "ann", short.ID); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "time to live") {
		t.Errorf("after its time: %v", err)
	}
	var ended *guest.EndedError
	if _, _, err := r.Guest(ctx, "ann", short.ID); !errors.As(err, &ended) || ended.Reason != "ttl" {
		t.Errorf("a call after its time: %v", err)
	}
	life, err := r.Lifecycle(ctx, "ann", long.ID)
	if err != nil || life.TTLSeconds != 20 {
		t.Errorf("the renewed one: %+v, %v", life, err)
	}
	if ids := r.host.IDs(); !slices.Equal(ids, []string{long.ID}) {
		t.Errorf("on the host: %q", ids)
	}
}

// What is over cannot be renewed, also when the sweeper has not come yet.
func TestExpiredCannotBeRenewed(t *testing.T) {
	r := newRig(t, nil)
	info := r.create(api.CreateSandboxRequest{TTLSeconds: ptr(10)})
	r.clock.advance(11 * time.Second)
	if _, err := r.PatchLifecycle(context.Background(), "ann", info.ID, api.LifecyclePatch{TTLSeconds: ptr(20)}); !errors.Is(err, fault.Conflict) {
		t.Errorf("renewed after its time: %v", err)
	}
	for _, bad := range []int{0, -1, 86401} {
		if _, err := r.PatchLifecycle(context.Background(), "ann", info.ID, api.LifecyclePatch{TTLSeconds: &bad}); !errors.Is(err, fault.Invalid) {
			t.Errorf("ttl %d: %v", bad, err)
		}
	}
}

func TestIdleTime(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	_, done, err := r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	r.clock.advance(time.Minute)
	if life, _ := r.Lifecycle(ctx, "ann", info.ID); life.IdleSeconds != 0 {
		t.Errorf("idle for %v s during a call", life.IdleSeconds)
	}
	done()
	done()
	r.clock.advance(time.Minute)
	if life, _ := r.Lifecycle(ctx, "ann", info.ID); life.IdleSeconds < 60 || life.IdleSeconds > 90 {
		t.Errorf("idle for %v s a minute after a call", life.IdleSeconds)
	}
}

func TestDeathIsNoticedAndExplained(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	for reason, want := range map[string]string{"oom": "oom", "crashed": "crashed", "exited": "exited"} {
		info := r.create(api.CreateSandboxRequest{})
		r.host.End(info.ID, driver.Exit{Code: 137, Reason: reason, Detail: "sentry says so"})
		eventually(t, "it has failed", func() bool {
			got, err := r.Get(ctx, "ann", info.ID)
			return err == nil && got.Status == api.StatusFailed && got.EndReason == want
		})
		var ended *guest.EndedError
		if _, _, err := r.Guest(ctx, "ann", info.ID); !errors.As(err, &ended) || !errors.Is(err, fault.Conflict) {
			t.Errorf("a call to it: %v", err)
		}
		if err := r.Kill(ctx, "ann", info.ID); err != nil {
			t.Errorf("Kill of a failed one: %v", err)
		}
		if _, err := r.Get(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) {
			t.Errorf("after that: %v", err)
		}
	}
	r.clean()
}

func TestPauseAndResume(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	for range 2 {
		if err := r.Pause(ctx, "ann", info.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Guest(ctx, "ann", info.ID); !errors.Is(err, fault.Conflict) {
		t.Errorf("a call to a paused one: %v", err)
	}
	r.restart()
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusPaused {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if err := r.Resume(ctx, "ann", info.ID); err != nil {
		t.Fatal(err)
	}
	c, done, err := r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := c.Health(ctx); err != nil {
		t.Error(err)
	}
}

// A daemon that is killed and started again has everything still.
func TestRestartAdopts(t *testing.T) {
	r := newRig(t, func(c *sandbox.Config) { c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 1, Prepared: 1}} })
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{Metadata: map[string]string{"k": "v"}})
	lost := r.create(api.CreateSandboxRequest{})
	eventually(t, "the pools are full", func() bool { return r.PoolSizes()["base"] == sandbox.PoolSize{Restored: 1, Prepared: 1} })
	c, done, err := r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateContext(ctx, api.CreateContextRequest{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	events, err := c.Run(ctx, "x", guestapi.RunRequest{ExecutionID: "e", Code: "append('/once', 'x')\nwait('go')\nprint('after')", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Next(); err != nil {
		t.Fatal(err)
	}
	done()
	restores := r.host.Restores()
	r.change = nil // no pool any more: what was pooled is still adopted
	r.stop()
	r.host.End(lost.ID, driver.Exit{Code: 1, Reason: "crashed"}) // while no daemon looks
	r.start()

	got, err := r.Get(ctx, "ann", info.ID)
	if err != nil || got.Status != api.StatusRunning || got.Generation != info.Generation || got.Metadata["k"] != "v" || !got.ExpiresAt.Equal(info.ExpiresAt.Truncate(time.Millisecond)) {
		t.Fatalf("after the restart: %+v, %v; before: %+v", got, err, info)
	}
	c, done, err = r.Guest(ctx, "ann", info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if c.Generation() != info.Generation {
		t.Errorf("generation %d", c.Generation())
	}
	r.host.Guest(info.ID).Signal("go")
	events, err = c.Attach(ctx, "x", "e", 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := events.Next(); err != nil || e.Text != "after\n" {
		t.Errorf("the running cell says %+v, %v", e, err)
	}
	if got := r.host.Guest(info.ID).File("/once"); got != "x" {
		t.Errorf("the cell's side effect is there as %q", got)
	}
	if got, err := r.Get(ctx, "ann", lost.ID); err != nil || got.Status != api.StatusFailed || got.EndReason != "lost" {
		t.Errorf("the one that died meanwhile: %+v, %v", got, err)
	}
	if types := r.events(info.ID); !slices.Contains(types, api.LifeAdopted) {
		t.Errorf("events: %q", types)
	}
	if n := r.host.Restores(); n != restores {
		t.Errorf("%d new restores", n-restores)
	}
}

// What no daemon shall ever look after again goes without one.
func TestEndAll(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	running, paused, gone := r.create(api.CreateSandboxRequest{}), r.create(api.CreateSandboxRequest{}), r.create(api.CreateSandboxRequest{})
	asleep := r.create(api.CreateSandboxRequest{Persistent: true})
	if err := r.Hibernate(ctx, "ann", asleep.ID, api.CarryRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := r.Pause(ctx, "ann", paused.ID); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.host.End(gone.ID, driver.Exit{Code: 1, Reason: "crashed"})
	if err := os.Mkdir(filepath.Join(r.dir, "run", "nobodys"), 0o711); err != nil {
		t.Fatal(err)
	}

	st, err := store.Open(ctx, r.dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := sandbox.New(sandbox.Config{Driver: fake.New(r.host), Store: st, Templates: r.tmpls, RunDir: filepath.Join(r.dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := m.EndAll(ctx)
	slices.Sort(ended)
	want := []string{running.ID, paused.ID, gone.ID}
	slices.Sort(want)
	if err != nil || !slices.Equal(ended, want) {
		t.Errorf("ended %q, %v; want %q", ended, err, want)
	}
	if ids := r.host.IDs(); len(ids) > 0 {
		t.Errorf("still on the host: %q", ids)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}

	// The next daemon starts with what slept, and knows why there is no more.
	r.start()
	if _, _, err := r.Guest(ctx, "ann", asleep.ID); err != nil {
		t.Errorf("what slept does not wake up: %v", err)
	}
	if err := r.Kill(ctx, "ann", asleep.ID); err != nil {
		t.Error(err)
	}
	r.clean()
	if _, err := r.Get(ctx, "ann", running.ID); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

// A daemon that dies in the middle of a create leaves nothing that the next one
// does not find.
func TestRestartCleansUpAfterCreates(t *testing.T) {
	for _, at := range []string{"prepare", "restore"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, nil)
			died := make(chan struct{})
			never := func(ctx context.Context, id string) error {
				close(died)
				<-make(chan struct{}) // this daemon does nothing any more
				return nil
			}
			if at == "prepare" {
				r.host.Break(fake.Faults{Prepare: never})
			} else {
				r.host.Break(fake.Faults{Restore: never})
			}
			go func() { _, _ = r.Create(context.Background(), "ann", api.CreateSandboxRequest{}) }()
			<-died
			r.host.Break(fake.Faults{})
			r.store.Close() // and so does its lock
			r.stop = func() {}
			r.start()
			if _, err := r.List(context.Background(), "", sandbox.ListFilter{}); err != nil {
				t.Fatal(err)
			}
			r.clean()
		})
	}
}

// A limit that the driver cannot give is the user's to change.
func TestLimitThatTheDriverRefuses(t *testing.T) {
	r := newRig(t, nil)
	r.host.Break(fake.Faults{Prepare: func(context.Context, string) error {
		return fault.InvalidField("disk_mb", "the disk has another size").WithHint("leave it out")
	}})
	_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{DiskMB: ptr(64)})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != "disk_mb" || f.Hint == "" {
		t.Errorf("%v", err)
	}
	r.clean()
}

func TestFailedCreatesLeaveNothing(t *testing.T) {
	boom := errors.New("boom")
	for name, f := range map[string]fake.Faults{
		"prepare":      {Prepare: func(context.Context, string) error { return boom }},
		"restore":      {Restore: func(context.Context, string) error { return boom }},
		"no snapshot":  {Prepare: func(context.Context, string) error { return fault.New(api.CodeNotFound, "gone") }},
		"assign":       {Assign: func(string) error { return boom }},
		"silent guest": {Guest: func(ctx context.Context, _ driver.Spec) { <-ctx.Done() }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *sandbox.Config) { c.CreateTimeout = 300 * time.Millisecond })
			r.host.Break(f)
			_, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{})
			if err == nil {
				t.Fatal("it was created")
			}
			if errors.Is(err, fault.NotFound) && fault.CodeOf(err) == api.CodeNotFound {
				t.Errorf("an error inside becomes the user's: %v", err)
			}
			r.clean()
		})
	}
}

// Whenever a kill comes, nothing is left and nobody hangs.
func TestKillRacesCreate(t *testing.T) {
	for _, pool := range []int{0, 2} {
		t.Run(fmt.Sprintf("pool of %d", pool), func(t *testing.T) {
			r := newRig(t, func(c *sandbox.Config) {
				if pool > 0 {
					c.Pool = map[string]sandbox.PoolSize{"base": {Restored: pool}}
				}
			})
			ctx := context.Background()
			for i := range 60 {
				created := make(chan error, 1)
				var id string
				go func() {
					info, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
					id = info.ID
					created <- err
				}()
				time.Sleep(time.Duration(i) * 50 * time.Microsecond) // spreads the kill over the create
				list, err := r.List(ctx, "ann", sandbox.ListFilter{})
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range list {
					if err := r.Kill(ctx, "ann", s.ID); err != nil && !errors.Is(err, fault.NotFound) {
						t.Errorf("Kill: %v", err)
					}
				}
				if err := <-created; err == nil {
					if err := r.Kill(ctx, "ann", id); err != nil && !errors.Is(err, fault.NotFound) {
						t.Errorf("Kill: %v", err)
					}
				}
			}
			r.stop()
			r.change = nil
			r.start()
			eventually(t, "the pool of the last daemon is all there is", func() bool { return len(r.host.IDs()) == r.PoolSizes()["base"].Restored })
		})
	}
}

func TestCancelledCreatesLeaveNothing(t *testing.T) {
	r := newRig(t, nil)
	for i := range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*100*time.Microsecond)
		info, err := r.Create(ctx, "ann", api.CreateSandboxRequest{})
		cancel()
		if err == nil {
			err = r.Kill(context.Background(), "ann", info.ID)
			if err != nil {
				t.Error(err)
			}
		}
	}
	r.clean()
}

// What cannot be ended now is ended later, and is not forgotten meanwhile.
func TestStopIsTriedAgain(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	info := r.create(api.CreateSandboxRequest{})
	r.host.Break(fake.Faults{Stop: func(string) error { return errors.New("busy") }})
	if err := r.Kill(ctx, "ann", info.ID); err == nil {
		t.Fatal("Kill says that it worked")
	}
	if got, err := r.Get(ctx, "ann", info.ID); err != nil || got.Status != api.StatusStopping {
		t.Errorf("then it is %+v, %v", got, err)
	}
	r.host.Break(fake.Faults{})
	if err := r.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	r.clean()
	if _, err := r.Get(ctx, "ann", info.ID); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("afterwards: %v", err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	r := newRig(t, nil)
	_, err := store.Open(context.Background(), r.dir)
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeConflict || !strings.Contains(f.Message, fmt.Sprint(os.Getpid())) || f.Hint == "" {
		t.Errorf("a second daemon: %v", err)
	}
}
