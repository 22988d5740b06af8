package sandbox_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

type pretended struct{ dir string }

func (p pretended) ByDigest(ctx context.Context, _ string) (sandbox.Template, error) {
	list, err := p.Templates(ctx)
	return list[0], err
}

func (p pretended) Templates(context.Context) ([]sandbox.Template, error) {
	return []sandbox.Template{{Info: api.TemplateInfo{Name: "base", Digest: "d", CPU: 1, MemoryMB: 512, DiskMB: 512}, Snapshot: p.dir}}, nil
}

// benchManager is a daemon whose sandboxes cost nothing, so that what is
// measured is its own.
func benchManager(b *testing.B, pool int) (*sandbox.Manager, *kernel.Service) {
	b.Helper()
	dir := b.TempDir()
	st, err := store.Open(context.Background(), dir)
	if err != nil {
		b.Fatal(err)
	}
	host := fake.NewHost()
	m, err := sandbox.New(sandbox.Config{
		Driver: fake.New(host), Store: st, Templates: pretended{b.TempDir()}, RunDir: filepath.Join(dir, "run"), MaxSandboxes: 1 << 20,
		MemoryAvailable: plenty, Pool: map[string]sandbox.PoolSize{"base": {Restored: pool}}, PoolDelay: time.Nanosecond,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = m.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
		_ = m.Close(context.Background())
		_, _ = fake.New(host).Sweep(context.Background(), nil)
		st.Close()
	})
	return m, kernel.New(m, kernel.Config{})
}

// BenchmarkCreateFromPool is a claim: two writes of the row, one of an event,
// and one call over the link.
func BenchmarkCreateFromPool(b *testing.B) {
	m, _ := benchManager(b, 8)
	ctx := context.Background()
	for b.Loop() {
		b.StopTimer()
		for m.PoolSizes()["base"].Restored == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		b.StartTimer()
		info, err := m.Create(ctx, "ann", api.CreateSandboxRequest{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if info.BootMode != "pool" {
			b.Fatal("not from the pool")
		}
		if err := m.Kill(ctx, "ann", info.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkRun is a cell from the call to the Execution, both ends of the link
// included.
func BenchmarkRun(b *testing.B) {
	m, k := benchManager(b, 1)
	ctx := context.Background()
	info, err := m.Create(ctx, "ann", api.CreateSandboxRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if x, err := k.Run(ctx, "ann", info.ID, "default", api.RunRequest{Code: "1 + 1"}); err != nil || len(x.Results) != 1 {
			b.Fatal(x, err)
		}
	}
}
