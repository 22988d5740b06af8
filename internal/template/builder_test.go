package template

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// fakeDriver has sandboxes that do nothing. A test scripts how they end.
type fakeDriver struct {
	fingerprint string
	exit        func(spec driver.BootSpec) driver.Exit // of steps; nil: 0
	agentExit   *driver.Exit                           // the agent's sandbox has ended thus before it answers

	mu      sync.Mutex
	booted  []driver.BootSpec
	running int
}

var (
	_ Driver               = (*fakeDriver)(nil)
	_ driver.Fingerprinter = (*fakeDriver)(nil)
	_ driver.RootOwner     = (*fakeDriver)(nil)
)

func (*fakeDriver) Name() string                         { return "fake" }
func (*fakeDriver) RootOwner() int                       { return 100000 }
func (*fakeDriver) Check(context.Context) []driver.Check { return nil }
func (*fakeDriver) Adopt(context.Context, string) (driver.Instance, error) {
	return nil, fault.NotFound
}
func (d *fakeDriver) Sweep(_ context.Context, keep map[string]bool) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(keep) == 0 {
		d.running = 0
	}
	return nil, nil
}

func (d *fakeDriver) Fingerprint(context.Context) (string, error) { return d.fingerprint, nil }
func (d *fakeDriver) Prepare(_ context.Context, s driver.Spec) (driver.Prepared, error) {
	return fakePrepared{d, s}, nil
}

func (d *fakeDriver) Boot(_ context.Context, spec driver.BootSpec) (driver.Instance, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.booted = append(d.booted, spec)
	if !spec.Writable {
		return d.start(spec.ID, d.agentExit), nil
	}
	if err := os.WriteFile(spec.Log, []byte("first line\nlast words\n"), 0o600); err != nil {
		return nil, err
	}
	exit := driver.Exit{Reason: "exited"}
	if d.exit != nil {
		exit = d.exit(spec)
	}
	return d.start(spec.ID, &exit), nil
}

func (d *fakeDriver) start(id string, exit *driver.Exit) *fakeInstance {
	d.running++
	inst := &fakeInstance{d: d, id: id, ended: make(chan struct{})}
	if exit != nil {
		inst.exit = *exit
		close(inst.ended)
	}
	return inst
}

func (d *fakeDriver) Snapshot(ctx context.Context, inst driver.Instance, dir string, how driver.Save) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if !how.Stop {
		return errors.New("a template's sandbox goes on")
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "pages"), []byte("memory"), 0o600), inst.Stop(ctx))
}

func (d *fakeDriver) Inspect(context.Context, string) (driver.Image, error) {
	return driver.Image{}, nil
}

type fakePrepared struct {
	d    *fakeDriver
	spec driver.Spec
}

func (p fakePrepared) Restore(context.Context, driver.Limits) (driver.Instance, error) {
	if _, err := os.Stat(filepath.Join(p.spec.Snapshot, "pages")); err != nil {
		return nil, err
	}
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	return p.d.start(p.spec.ID, nil), nil
}
func (fakePrepared) Discard(context.Context) error { return nil }

type fakeInstance struct {
	d     *fakeDriver
	id    string
	exit  driver.Exit
	ended chan struct{}
	once  sync.Once
}

func (i *fakeInstance) ID() string                                { return i.id }
func (*fakeInstance) Stats(context.Context) (driver.Stats, error) { return driver.Stats{}, nil }
func (i *fakeInstance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-i.ended:
		return i.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (i *fakeInstance) Stop(context.Context) error {
	i.once.Do(func() {
		i.d.mu.Lock()
		defer i.d.mu.Unlock()
		i.d.running--
		select {
		case <-i.ended:
		default:
			i.exit.Reason = "stopped"
			close(i.ended)
		}
	})
	return nil
}

// fakeGuest answers as an agent does. Its errors are scripted.
type fakeGuest struct {
	ready  bool
	failed map[string]string
	warmed []guestapi.WarmRequest
	silent bool // never dials
}

func (g *fakeGuest) Health(context.Context) (guestapi.Health, error) {
	return guestapi.Health{Ready: g.ready}, nil
}

func (g *fakeGuest) Warm(_ context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error) {
	g.warmed = append(g.warmed, req)
	return guestapi.WarmResponse{Version: "3.13.5", Imports: map[string]float64{"json": 0.01}, Failed: g.failed}, nil
}
func (g *fakeGuest) Guest(ctx context.Context) (Guest, error) {
	if g.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return g, nil
}
func (*fakeGuest) Close() error { return nil }

// bench is a builder over fakes: a data directory, programs of the host that
// only pretend, a driver and a guest.
type bench struct {
	*Builder
	t      *testing.T
	driver *fakeDriver
	guest  *fakeGuest
	bin    string // the host's programs; each call appends a line to calls
	events []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	needRoot(t)
	b := &bench{t: t, driver: &fakeDriver{fingerprint: "fake 1"}, guest: &fakeGuest{ready: true}, bin: t.TempDir()}
	b.Builder = &Builder{
		Store:    NewStore(t.TempDir()),
		Driver:   b.driver,
		Programs: fstest.MapFS{"guest": {Data: []byte("\x7fELF agent")}, "kernel/zygote.py": {Data: []byte("pass")}},
		Mirror:   "deb http://mirror.test/debian x main",
		Link:     func(string, string) (Link, error) { return b.guest, nil },
	}
	b.program("mmdebstrap", `mkdir -p tree/usr tree/tmp && echo data > tree/usr/file && tar -C tree -cf - .`)
	b.program("apt-config", `echo 'Acquire::http::Proxy "http://proxy.test";'`)
	b.program("python3", `for a in "$@"; do case "$a" in --dest=*) touch "${a#--dest=}/six.whl";; esac; done`)
	t.Setenv("PATH", b.bin+":/usr/bin:/bin")
	return b
}

func (b *bench) program(name, script string) {
	b.t.Helper()
	text := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >> %s/calls\n%s\n", name, b.bin, script)
	if err := os.WriteFile(filepath.Join(b.bin, name), []byte(text), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// calls gives what the host's programs were called with since the last time.
func (b *bench) calls() string {
	b.t.Helper()
	file := filepath.Join(b.bin, "calls")
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.t.Fatal(err)
	}
	_ = os.Remove(file)
	return string(raw)
}

// build builds and keeps the events, without the times and the progress.
func (b *bench) build(recipe fs.FS) (Template, error) {
	b.t.Helper()
	r, err := Load(recipe)
	if err != nil {
		b.t.Fatal(err)
	}
	b.events, b.driver.booted = nil, nil
	return b.Build(b.t.Context(), r, func(e Event) {
		if e.Kind != EventProgress {
			b.events = append(b.events, fmt.Sprintf("%d/%d %s %s", e.N, e.Of, e.Step, e.Kind))
		}
	})
}

// leftovers sees that nothing half-made is there.
func (b *bench) leftovers() {
	b.t.Helper()
	staged, err := os.ReadDir(b.Store.staging())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, entry := range staged {
		b.t.Errorf("%s was left in staging", entry.Name())
	}
	if b.driver.running != 0 {
		b.t.Errorf("%d sandboxes still run", b.driver.running)
	}
}

func TestBuild(t *testing.T) {
	b := newBench(t)
	got, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.events[:4]) // bootstrap and wheels run beside each other
	want := []string{
		"1/9 bootstrap done", "1/9 bootstrap start", "2/9 wheels done", "2/9 wheels start",
		"3/9 system start", "3/9 system done", "4/9 install start", "4/9 install done", "5/9 compile start", "5/9 compile done",
		"6/9 fonts start", "6/9 fonts done", "7/9 warm start", "7/9 warm done", "8/9 snapshot start", "8/9 snapshot done",
		"9/9 check start", "9/9 check done",
	}
	if diff := cmp.Diff(want, b.events); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	b.leftovers()

	if got.Name != "tiny" || got.MemoryMB != 512 || got.Python != "/opt/venv/bin/python" || got.Version != "3.13.5" || got.SnapshotBytes != 6 {
		t.Errorf("built %+v", got)
	}
	for _, name := range []string{"tiny", "small"} {
		found, err := b.Store.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, found); diff != "" {
			t.Errorf("Get(%s) (-built +got)\n%s", name, diff)
		}
	}
	for _, file := range []string{
		filepath.Join(got.Rootfs, "usr/file"), filepath.Join(got.Rootfs, guestapi.ProgramDir), filepath.Join(got.Rootfs, guestapi.Workspace),
		filepath.Join(got.Snapshot, "pages"), filepath.Join(got.Programs, "guest"), filepath.Join(got.Programs, "kernel/zygote.py"),
	} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	wantWarm := []guestapi.WarmRequest{{Python: "/opt/venv/bin/python", Imports: []string{"json"}, Warmup: "x = 1\n", Spares: 1}}
	if diff := cmp.Diff(wantWarm, b.guest.warmed); diff != "" {
		t.Errorf("warmed with (-want +got)\n%s", diff)
	}
}

func TestNoImportsMeansNone(t *testing.T) {
	b := newBench(t)
	if _, err := b.build(recipeFS(strings.Replace(goodRecipe, `imports = ["json"]`, "", 1))); err != nil {
		t.Fatal(err)
	}
	if imports := b.guest.warmed[0].Imports; imports == nil || len(imports) != 0 {
		t.Errorf("the interpreter was asked to import %#v, want an empty list", imports)
	}
}

func TestStepsRunInsideAndNothingOfTheRecipeOutside(t *testing.T) {
	b := newBench(t)
	if _, err := b.build(recipeFS(goodRecipe)); err != nil {
		t.Fatal(err)
	}
	calls := b.calls()
	for _, want := range []string{
		"--include=python3-venv,python3 ", "--variant=minbase --format=tar", ` trixie - deb http://mirror.test/debian trixie main`,
		`--aptopt=Acquire::http::Proxy "http://proxy.test"`,
		"--only-binary=:all: --require-hashes --no-deps", "--python-version=3.13",
	} {
		if !strings.Contains(calls, want) {
			t.Errorf("the host's programs were not called with %q:\n%s", want, calls)
		}
	}
	if strings.Contains(calls, "pip install") || strings.Contains(calls, "fc-cache") {
		t.Errorf("the host ran a step:\n%s", calls)
	}
	var scripts []string
	for _, spec := range b.driver.booted {
		if spec.Writable {
			scripts = append(scripts, spec.Argv[3])
			if spec.Binds[wheelsMount] == "" {
				t.Error("a step does not see the wheels")
			}
		}
	}
	if diff := cmp.Diff([]string{systemScript, installScript, compileScript, "fc-cache"}, scripts); diff != "" {
		t.Errorf("steps inside (-want +got)\n%s", diff)
	}
}

// Only what a change touches is made again.
func TestBuildAgain(t *testing.T) {
	b := newBench(t)
	first, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	kinds := func() map[string]string {
		last := map[string]string{}
		for _, event := range b.events {
			fields := strings.Fields(event)
			last[fields[1]] = fields[2]
		}
		return last
	}
	b.calls()

	log := filepath.Join(b.Store.logs(), "tiny.log")
	before, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(before), "=== warm") {
		t.Errorf("the log is %q, %v", before, err)
	}
	again, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the same recipe gave another template (-first +second)\n%s", diff)
	}
	if after, err := os.ReadFile(log); err != nil || string(after) != string(before) {
		t.Errorf("the log of the build became %q, %v", after, err)
	}
	for step, kind := range kinds() {
		if kind != "skip" {
			t.Errorf("nothing changed: %s %s", step, kind)
		}
	}
	if calls := b.calls(); calls != "" || len(b.driver.booted) != 0 {
		t.Errorf("nothing changed, but there were calls %s and %d sandboxes", calls, len(b.driver.booted))
	}

	b.Programs = fstest.MapFS{"guest": {Data: []byte("\x7fELF new agent")}}
	newer, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if newer.RootfsDigest != first.RootfsDigest || newer.Digest == first.Digest {
		t.Errorf("a new agent: from %s/%s to %s/%s", first.RootfsDigest, first.Digest, newer.RootfsDigest, newer.Digest)
	}
	if k := kinds(); k["install"] != "skip" || k["fonts"] != "skip" || k["warm"] != "done" {
		t.Errorf("a new agent: %v", k)
	}
	if _, err := b.Store.ByDigest(t.Context(), first.Digest); err != nil {
		t.Errorf("the first template, which may be in use: %v", err)
	}

	b.calls()
	if _, err := b.build(recipeFS(goodRecipe, "requirements.lock", "six==1.18.0 --hash=sha256:cc\n")); err != nil {
		t.Fatal(err)
	}
	if calls := b.calls(); strings.Contains(calls, "mmdebstrap") || !strings.Contains(calls, "pip download") {
		t.Errorf("new requirements: the host's programs were called: %s", calls)
	}
	if k := kinds(); k["bootstrap"] != "done" || k["install"] != "done" {
		t.Errorf("new requirements: %v", k)
	}

	b.calls()
	renamed, err := b.build(recipeFS(strings.Replace(goodRecipe, `["small"]`, `["little"]`, 1), "requirements.lock", "six==1.18.0 --hash=sha256:cc\n"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := b.Store.Get(t.Context(), "little"); err != nil || found.Digest != renamed.Digest {
		t.Errorf("a new alias: %v, %v", found, err)
	}
	if calls := b.calls(); calls != "" {
		t.Errorf("a new alias: the host's programs were called: %s", calls)
	}
	b.leftovers()
}

func TestFailuresLeaveNothing(t *testing.T) {
	for name, test := range map[string]struct {
		breaks func(*bench)
		step   string
		words  []string
	}{
		"bootstrap": {
			func(b *bench) { b.program("mmdebstrap", "echo E: no such package >&2; exit 3") },
			StepBootstrap, []string{"E: no such package", "exit status 3"},
		},
		"bootstrap ends late": {
			func(b *bench) { b.program("mmdebstrap", "mkdir t; tar -C t -cf - .; echo late trouble >&2; exit 4") },
			StepBootstrap, []string{"late trouble", "exit status 4"},
		},
		"bootstrap is cut off": {
			func(b *bench) { b.program("mmdebstrap", "echo half; exit 0") },
			StepBootstrap, []string{"archive"},
		},
		"wheels": {
			func(b *bench) { b.program("python3", `case "$*" in *download*) echo no matching wheel; exit 1;; esac`) },
			StepWheels, []string{"no matching wheel"},
		},
		"no pip": {
			func(b *bench) { b.program("python3", "exit 1") },
			StepWheels, []string{"has no pip"},
		},
		"step": {
			func(b *bench) {
				b.driver.exit = func(spec driver.BootSpec) driver.Exit {
					if spec.Argv[3] == "fc-cache" {
						return driver.Exit{Code: 7, Reason: "exited"}
					}
					return driver.Exit{Reason: "exited"}
				}
			},
			"fonts", []string{"exit status 7", "last words"},
		},
		"memory": {
			func(b *bench) {
				b.driver.exit = func(driver.BootSpec) driver.Exit { return driver.Exit{Code: 137, Reason: "oom"} }
			},
			StepSystem, []string{"memory"},
		},
		"agent ends": {
			func(b *bench) {
				b.guest.silent = true
				b.driver.agentExit = &driver.Exit{Code: 1, Reason: "exited", Detail: "no such program"}
			},
			StepWarm, []string{"guest agent", "no such program"},
		},
		"import": {
			func(b *bench) { b.guest.failed = map[string]string{"json": "ImportError: gone"} },
			StepWarm, []string{"json: ImportError: gone"},
		},
		"not ready": {
			func(b *bench) { b.guest.ready = false },
			StepCheck, []string{"not ready"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			old, err := b.build(recipeFS(goodRecipe, "requirements.lock", "old==1 --hash=sha256:aa\n"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(b.Store.cache()); err != nil {
				t.Fatal(err)
			}
			test.breaks(b)
			_, err = b.build(recipeFS(goodRecipe))
			var failed *StepError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, want the failure of a step", err)
			}
			if failed.Step != test.step {
				t.Errorf("the step %s failed, want %s", failed.Step, test.step)
			}
			for _, words := range test.words {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("the error does not say %q:\n%v", words, err)
				}
			}
			if !slices.ContainsFunc(b.events, func(e string) bool { return strings.HasSuffix(e, test.step+" fail") }) {
				t.Errorf("no event tells of it: %v", b.events)
			}
			if _, err := os.Stat(failed.Log); err != nil {
				t.Errorf("the log: %v", err)
			}
			b.leftovers()
			for _, dir := range []string{b.Store.snapshots(), b.Store.rootfs()} {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if test.step != StepWarm && test.step != StepCheck && len(entries) != 1 {
					t.Errorf("%s holds %d folders, want the old one", dir, len(entries))
				}
			}
			if now, err := b.Store.Get(t.Context(), "tiny"); err != nil || now.Digest != old.Digest {
				t.Errorf("the name leads to %s, %v; want the old template", now.Digest, err)
			}
		})
	}
}

func TestCancelledBuildEndsItsPrograms(t *testing.T) {
	b := newBench(t)
	// The child would outlive a bootstrapper that is merely killed.
	b.program("mmdebstrap", `trap 'echo cleaned > `+b.bin+`/cleaned; exit 1' TERM
(exec 1>&- 2>&-; exec sleep 600) & echo; touch `+b.bin+`/started; while :; do wait; done`)
	r, err := Load(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := b.Build(ctx, r, nil)
		done <- err
	}()
	for {
		if _, err := os.Stat(filepath.Join(b.bin, "started")); err == nil {
			break
		}
		time.Sleep(time.Millisecond) // there is nothing to be told by
	}
	children := descendants(t, os.Getpid())
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	if _, err := os.Stat(filepath.Join(b.bin, "cleaned")); err != nil {
		t.Errorf("the bootstrapper was not asked to clean up: %v", err)
	}
	for pid, name := range children {
		if now, ok := descendants(t, 0)[pid]; ok && now == name {
			t.Errorf("%s (%d) still runs", name, pid)
		}
	}
	b.leftovers()
}

// descendants gives the running processes below one, all for 0, with their names.
func descendants(t *testing.T, root int) map[int]string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents, names := map[int]int{}, map[int]string{}
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			continue // it has just ended
		}
		var pid, parent int
		var name, state string
		if _, err := fmt.Sscanf(string(raw), "%d %s %s %d", &pid, &name, &state, &parent); err != nil || state == "Z" {
			continue
		}
		parents[pid], names[pid] = parent, name
	}
	below := map[int]string{}
	for pid := range parents {
		for p := parents[pid]; p != 0; p = parents[p] {
			if p == root {
				below[pid] = names[pid]
			}
		}
		if root == 0 {
			below[pid] = names[pid]
		}
	}
	return below
}

func TestUnfinishedBuildIsRemoved(t *testing.T) {
	b := newBench(t)
	left, err := b.Store.stage("tiny-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(left, "rootfs/root/etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.driver.running = 1 // it was killed while a step ran
	if _, err := b.build(recipeFS(goodRecipe)); err != nil {
		t.Fatal(err)
	}
	b.leftovers()
}

func TestBuildsTakeTurns(t *testing.T) {
	b := newBench(t)
	unlock, err := b.Store.tryLock()
	if err != nil || unlock == nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	r, err := Load(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := b.Build(t.Context(), r, func(e Event) {
			if e.Step == "" && strings.Contains(e.Text, "another build") {
				close(waiting)
			}
		})
		done <- err
	}()
	select {
	case <-waiting:
	case err := <-done:
		t.Fatalf("the build did not wait: %v", err)
	}
	if calls := b.calls(); calls != "" {
		t.Errorf("a build began beside another: %s", calls)
	}
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBuiltWithoutAgent(t *testing.T) {
	b := newBench(t)
	b.Programs = fstest.MapFS{"README": {Data: []byte("no guest")}}
	_, err := b.build(recipeFS(goodRecipe))
	if !errors.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "without the guest agent") {
		t.Errorf("got %v", err)
	}
}
