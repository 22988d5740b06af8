package sandbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/process"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
	"github.com/pandastack/pandastack/internal/template"
)

const realTemplate = "code-interpreter"

type builtTemplates struct{ store *template.Store }

func (b builtTemplates) Templates(ctx context.Context) ([]sandbox.Template, error) {
	list, err := b.store.List(ctx)
	var out []sandbox.Template
	for _, t := range list {
		out = append(out, sandbox.Template{
			Info:   api.TemplateInfo{Name: t.Name, Digest: t.Digest, CPU: t.CPU, MemoryMB: t.MemoryMB, DiskMB: t.DiskMB},
			Rootfs: t.Rootfs, Snapshot: t.Snapshot, Programs: t.Programs, PIDs: t.PIDs, Spares: t.Spares,
		})
	}
	return out, err
}

func (b builtTemplates) ByDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	list, err := b.Templates(ctx)
	for _, t := range list {
		if t.Info.Digest == digest {
			return t, nil
		}
	}
	return sandbox.Template{}, err
}

// real is a daemon without HTTP on gVisor.
type real struct {
	t      *testing.T
	dir    string
	pool   int
	driver *gvisor.Driver
	*sandbox.Manager
	kernels  *kernel.Service
	commands *process.Service
	stop     func()
}

// newReal needs PANDASTACK_TEST_DATA, a data directory with the templates, and
// PANDASTACK_TEST_RUNSC.
func newReal(t *testing.T, pool int) *real {
	t.Helper()
	if os.Getenv("PANDASTACK_TEST_DATA") == "" || os.Getenv("PANDASTACK_TEST_RUNSC") == "" {
		t.Skip("PANDASTACK_TEST_DATA and PANDASTACK_TEST_RUNSC name no templates and no runsc")
	}
	dir, err := os.MkdirTemp("", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // sandboxes' processes are nobody on the host
		t.Fatal(err)
	}
	r := &real{t: t, dir: dir, pool: pool}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if _, err := r.driver.Sweep(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *real) start() {
	r.t.Helper()
	d, err := gvisor.New(gvisor.Config{Runsc: os.Getenv("PANDASTACK_TEST_RUNSC"), Dir: filepath.Join(r.dir, "gvisor"), Log: logger(r.t)})
	if err != nil {
		r.t.Fatal(err)
	}
	st, err := store.Open(context.Background(), r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := sandbox.New(sandbox.Config{
		Driver: d, Store: st, Templates: builtTemplates{template.NewStore(os.Getenv("PANDASTACK_TEST_DATA"))}, RunDir: filepath.Join(r.dir, "run"),
		Pool: map[string]sandbox.PoolSize{realTemplate: {Restored: r.pool}}, Logger: logger(r.t),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	r.driver, r.Manager, r.kernels, r.commands = d, m, kernel.New(m, kernel.Config{}), process.New(m, process.Config{})
	r.stop = sync.OnceFunc(func() {
		r.kernels.Close()
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

func (r *real) full() bool { return r.PoolSizes()[realTemplate].Restored == r.pool }

func (r *real) create() api.SandboxInfo {
	r.t.Helper()
	info, err := r.Create(context.Background(), "ann", api.CreateSandboxRequest{Template: realTemplate})
	if err != nil {
		r.t.Fatal(err)
	}
	return info
}

func (r *real) run(id, code string) api.Execution {
	r.t.Helper()
	x, err := r.kernels.Run(context.Background(), "ann", id, "default", api.RunRequest{Code: code, TimeoutMS: 120_000})
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func TestGVisor(t *testing.T) {
	r := newReal(t, 1)
	ctx := context.Background()
	eventually(t, "the pool is full", r.full)
	info := r.create()
	if info.BootMode != "pool" {
		t.Errorf("created %+v", info)
	}
	if x := r.run(info.ID, "import os, socket, pandas as pd\nx = 40\nprint(socket.gethostname())\npd.DataFrame({'a': [x + 2]})"); x.End != api.EndOK || x.Stdout != info.ID+"\n" || len(x.Results) != 1 || x.Results[0]["text/html"] == "" {
		t.Errorf("the first cell: %+v", x)
	}
	if x, err := r.commands.Exec(ctx, "ann", info.ID, api.ExecRequest{Cmd: api.Command{Shell: "echo out; echo err >&2; exit 3"}}); err != nil || x.Stdout != "out\n" || x.Stderr != "err\n" || x.ExitCode != 3 {
		t.Errorf("a command: %+v, %v", x, err)
	}

	// The daemon goes and comes in the middle of a cell.
	const code = "import time\nopen('/workspace/once', 'a').write('x')\nprint('before', flush=True)\ntime.sleep(3)\nprint('after', x)"
	waiting, cut := context.WithCancel(ctx)
	defer cut()
	for e, err := range r.kernels.Stream(waiting, "ann", info.ID, "default", api.RunRequest{Code: code, ExecutionID: "the-cell"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == api.EventStdout {
			r.kernels.Close()
			cut()
			break
		}
	}
	r.stop()
	r.start()
	x, err := r.kernels.Run(ctx, "ann", info.ID, "default", api.RunRequest{Code: code, ExecutionID: "the-cell"})
	if err != nil || x.Stdout != "before\nafter 40\n" || x.End != api.EndOK {
		t.Errorf("after the restart: %+v, %v", x, err)
	}
	if x := r.run(info.ID, "open('/workspace/once').read()"); x.Results[0]["text/plain"] != "'x'" {
		t.Errorf("it ran as often as %+v says", x.Results)
	}

	// Its first program ends, and everything is freed.
	go func() {
		_, _ = r.commands.Exec(ctx, "ann", info.ID, api.ExecRequest{Cmd: api.Command{Shell: "sleep 600"}})
	}()
	if err := r.Kill(ctx, "ann", info.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "run", info.ID)); !os.IsNotExist(err) {
		t.Errorf("its link folder: %v", err)
	}
}

// Cycles of create, run and kill, four at a time, leave nothing.
func TestGVisorCycles(t *testing.T) {
	r := newReal(t, 2)
	cycles := 20
	todo := make(chan int, cycles)
	for i := range cycles {
		todo <- i
	}
	close(todo)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range todo {
				info := r.create()
				if x := r.run(info.ID, fmt.Sprintf("%d + 1", i)); len(x.Results) != 1 || x.Results[0]["text/plain"] != fmt.Sprint(i+1) {
					t.Errorf("%+v", x)
				}
				if err := r.Kill(context.Background(), "ann", info.ID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r.stop()
	entries, err := os.ReadDir(filepath.Join(r.dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	removed, err := r.driver.Sweep(context.Background(), nil)
	if err != nil || len(removed) != len(entries) || len(removed) > r.pool {
		t.Errorf("left beside the pool: %q, %d link folders, %v", removed, len(entries), err)
	}
}

// TestGVisorTimes prints what a user waits for. It judges nothing.
func TestGVisorTimes(t *testing.T) {
	r := newReal(t, 1)
	const rounds = 10
	var creates, contexts, firsts, cells []time.Duration
	timed := func(list *[]time.Duration, f func()) {
		began := time.Now()
		f()
		*list = append(*list, time.Since(began))
	}
	for range rounds {
		eventually(t, "the pool is full", r.full)
		var info api.SandboxInfo
		timed(&creates, func() { info = r.create() })
		timed(&contexts, func() {
			if _, err := r.kernels.CreateContext(context.Background(), "ann", info.ID, api.CreateContextRequest{ID: "default"}); err != nil {
				t.Fatal(err)
			}
		})
		timed(&firsts, func() { r.run(info.ID, "1 + 1") })
		for range 20 {
			timed(&cells, func() { r.run(info.ID, "1 + 1") })
		}
		if err := r.Kill(context.Background(), "ann", info.ID); err != nil {
			t.Fatal(err)
		}
	}
	for name, list := range map[string][]time.Duration{"create from the pool": creates, "context": contexts, "first cell": firsts, "cell": cells} {
		slices.Sort(list)
		t.Logf("%-22s median %v, worst %v of %d", name, list[len(list)/2], list[len(list)-1], len(list))
	}
}
