package kernel_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

const owner = "ann"

// rig is a daemon without HTTP on a pretended host, and one sandbox.
type rig struct {
	t       *testing.T
	host    *fake.Host
	dir     string
	image   string
	cfg     kernel.Config
	sid     string
	manager *sandbox.Manager
	ahead   atomic.Int64 // of the manager's clock
	*kernel.Service
	stop func()
}

func newRig(t *testing.T, cfg kernel.Config) *rig {
	t.Helper()
	r := &rig{t: t, host: fake.NewHost(), dir: t.TempDir(), image: t.TempDir(), cfg: cfg}
	r.start()
	t.Cleanup(func() {
		r.stop()
		if _, err := fake.New(r.host).Sweep(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
	info, err := r.manager.Create(context.Background(), owner, api.CreateSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r.sid = info.ID
	return r
}

type oneTemplate struct{ image string }

func (o oneTemplate) ByDigest(ctx context.Context, _ string) (sandbox.Template, error) {
	list, err := o.Templates(ctx)
	return list[0], err
}

func (o oneTemplate) Templates(context.Context) ([]sandbox.Template, error) {
	return []sandbox.Template{{Info: api.TemplateInfo{Name: "base", Digest: "d", MemoryMB: 512, DiskMB: 512, CPU: 1}, Snapshot: o.image}}, nil
}

func (r *rig) start() {
	r.t.Helper()
	st, err := store.Open(context.Background(), r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := sandbox.New(sandbox.Config{
		Driver: fake.New(r.host), Store: st, Templates: oneTemplate{r.image}, RunDir: filepath.Join(r.dir, "run"),
		MemoryAvailable: func() (int64, error) { return 64 << 30, nil },
		Now:             func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	r.manager, r.Service = m, kernel.New(m, r.cfg)
	s := r.Service
	r.stop = sync.OnceFunc(func() {
		s.Close()
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

func (r *rig) guest() *fake.Guest { return r.host.Guest(r.sid) }

func (r *rig) run(req api.RunRequest) api.Execution {
	r.t.Helper()
	x, err := r.Run(context.Background(), owner, r.sid, "default", req)
	if err != nil {
		r.t.Fatalf("Run: %v", err)
	}
	return x
}

// running waits until an execution is what its context runs.
func (r *rig) running(eid string) {
	r.t.Helper()
	eventually(r.t, eid+" runs", func() bool {
		c, err := r.Context(context.Background(), owner, r.sid, "default")
		return err == nil && c.RunningID == eid
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
