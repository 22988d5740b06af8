package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// aging is the fake driver with snapshots of which some are from another time.
type aging struct {
	*fake.Driver
	stale map[string]bool
}

func (a aging) Restorable(_ context.Context, snapshot string) error {
	if a.stale[filepath.Base(snapshot)] {
		return fmt.Errorf("%s: %w", snapshot, driver.ErrStale)
	}
	return nil
}

func (a aging) Prepare(ctx context.Context, s driver.Spec) (driver.Prepared, error) {
	if err := a.Restorable(ctx, s.Snapshot); err != nil {
		return nil, err
	}
	return a.Driver.Prepare(ctx, s)
}

type someTemplates struct {
	dir   string
	names []string
}

func (s *someTemplates) Templates(context.Context) ([]sandbox.Template, error) {
	var out []sandbox.Template
	for _, n := range s.names {
		out = append(out, sandbox.Template{
			Info:   api.TemplateInfo{Name: n, Digest: n, CPU: 1, MemoryMB: 256, DiskMB: 256},
			Rootfs: s.dir, Programs: s.dir, Snapshot: filepath.Join(s.dir, n), PIDs: 64,
		})
	}
	return out, nil
}

func (s *someTemplates) ByDigest(ctx context.Context, digest string) (sandbox.Template, error) {
	list, err := s.Templates(ctx)
	if i := slices.IndexFunc(list, func(t sandbox.Template) bool { return t.Info.Digest == digest }); i >= 0 {
		return list[i], err
	}
	return sandbox.Template{}, fault.New(api.CodeNotFound, "there is no template %s", digest)
}

type brokenStore struct{ err error }

func (b *brokenStore) Probe(context.Context, time.Time) error { return b.err }

func TestReadinessSaysWhy(t *testing.T) {
	dir := shortDir(t)
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	drv := aging{fake.New(fake.NewHost()), map[string]bool{"old": true, "older": true}}
	tmpls := &someTemplates{dir: dir}
	ahead := time.Duration(0)
	m, err := sandbox.New(sandbox.Config{
		Driver: drv, Store: st, Templates: tmpls, RunDir: filepath.Join(dir, "run"), Now: func() time.Time { return time.Now().Add(ahead) },
	})
	if err != nil {
		t.Fatal(err)
	}
	free, probe := int64(1<<20), &brokenStore{}
	r := &readiness{dataDir: dir, manager: m, store: probe, log: slog.New(slog.DiscardHandler), diskMB: func(string) (int64, error) { return free, nil }}
	look := func(status string, reasons, warnings []string) {
		t.Helper()
		ahead += time.Minute // templates are looked up anew
		got := r.look(t.Context())
		ids := func(list []api.Reason) (out []string) {
			for _, x := range list {
				if x.Fix == "" || x.Detail == "" {
					t.Errorf("%+v is no help", x)
				}
				out = append(out, x.ID)
			}
			return out
		}
		if got.Status != status || fmt.Sprint(ids(got.Reasons)) != fmt.Sprint(reasons) || fmt.Sprint(ids(got.Warnings)) != fmt.Sprint(warnings) {
			t.Errorf("%+v, want %s %v %v", got, status, reasons, warnings)
		}
	}
	look("unready", []string{"starting", "no_template"}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()
	defer func() { cancel(); <-ran; _ = m.Close(context.Background()) }()
	if err := m.Adopted(ctx); err != nil {
		t.Fatal(err)
	}
	look("unready", []string{"no_template"}, nil)
	tmpls.names = []string{"old", "older"}
	look("unready", []string{"template_stale"}, nil)
	tmpls.names = []string{"new", "old"}
	look("ready", nil, []string{"template_stale"})
	tmpls.names = []string{"new"}
	look("ready", nil, nil) // though no pool is filled
	free = readyDiskMB - 1
	look("unready", []string{"disk_full"}, nil)
	free, probe.err = 1<<20, errors.New("the disk does not turn")
	look("unready", []string{"store_broken"}, nil)

	// The same in the words that a user gets.
	tmpls.names, probe.err = []string{"new", "old"}, nil
	ahead += time.Minute
	_, err = m.Create(t.Context(), "ann", api.CreateSandboxRequest{Template: "old"})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeConflict || f.Hint != "rebuild it: pandastack template build old" {
		t.Errorf("a create from it: %v", err)
	}
}
