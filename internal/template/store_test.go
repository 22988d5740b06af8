package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/internal/fault"
)

func TestUnknownTemplateNamesTheNearest(t *testing.T) {
	b := newBench(t)
	_, err := b.Store.Get(t.Context(), "code-interpreter")
	var f *fault.Error
	if !errors.As(err, &f) || !errors.Is(err, fault.NotFound) || !strings.Contains(f.Hint, "template build") {
		t.Errorf("with no template: %v", err)
	}
	for _, name := range []string{"tiny", "base", "code-interpreter", "node"} {
		recipe := strings.NewReplacer(`"tiny"`, `"`+name+`"`, `["small"]`, "[]").Replace(goodRecipe)
		if _, err := b.build(recipeFS(recipe)); err != nil {
			t.Fatal(err)
		}
	}
	_, err = b.Store.Get(t.Context(), "code-interpeter")
	if !errors.As(err, &f) || !errors.Is(err, fault.NotFound) {
		t.Fatalf("got %v", err)
	}
	if f.Field != "template" || !strings.HasPrefix(f.Hint, "the nearest names are code-interpreter, ") {
		t.Errorf("field %q, hint %q", f.Field, f.Hint)
	}
	for _, digest := range []string{"", "..", "../names", "0123"} {
		if _, err := b.Store.ByDigest(t.Context(), digest); !errors.Is(err, fault.NotFound) {
			t.Errorf("ByDigest(%q): %v", digest, err)
		}
	}
}

func TestSweepKeepsWhatIsUsed(t *testing.T) {
	b := newBench(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.Store.Now = func() time.Time { return now }
	used := map[string]bool{}
	b.Store.InUse = func(context.Context) (map[string]bool, error) { return used, nil }
	sweep := func() []string {
		t.Helper()
		removed, err := b.Store.Sweep(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return removed
	}

	first, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	used[first.Digest] = true
	b.Programs = fstest.MapFS{"guest": {Data: []byte("\x7fELF new agent")}}
	second, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	sweep()
	now = now.Add(time.Hour)
	if removed := sweep(); removed != nil {
		t.Errorf("removed %v while a sandbox uses it", removed)
	}

	delete(used, first.Digest)
	if removed := sweep(); removed != nil {
		t.Errorf("removed %v at once", removed)
	}
	now = now.Add(sweepGrace - time.Second)
	if removed := sweep(); removed != nil {
		t.Errorf("removed %v before its time", removed)
	}
	now = now.Add(time.Second)
	want := []string{first.Programs, filepath.Dir(first.Snapshot)}
	if diff := cmp.Diff(want[1:], sweep()); diff != "" {
		t.Errorf("first (-want +removed)\n%s", diff)
	}
	now = now.Add(time.Hour)
	if diff := cmp.Diff(want[:1], sweep()); diff != "" {
		t.Errorf("then (-want +removed)\n%s", diff)
	}
	if found, err := b.Store.Get(t.Context(), "tiny"); err != nil || found.Digest != second.Digest {
		t.Errorf("what is left: %v, %v", found, err)
	}
	b.leftovers()

	if err := b.Store.Remove(t.Context(), "small"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store.Get(t.Context(), "tiny"); !errors.Is(err, fault.NotFound) {
		t.Errorf("after Remove: %v", err)
	}
	cached := func() (n int) {
		for _, kind := range []string{"bootstrap", "wheels"} {
			entries, err := os.ReadDir(filepath.Join(b.Store.cache(), kind))
			if err != nil {
				t.Fatal(err)
			}
			n += len(entries)
		}
		return n
	}
	if n := cached(); n != 2 {
		t.Errorf("%d things are in the cache, want an archive and wheels", n)
	}
	now = time.Now() // files in the cache have the times of the real clock
	for range 4 {
		now = now.Add(cacheGrace)
		sweep()
	}
	if n := cached(); n != 0 {
		t.Errorf("%d things are still in the cache", n)
	}
	for _, dir := range []string{b.Store.snapshots(), b.Store.rootfs()} {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("%s still holds %d folders, %v", dir, len(left), err)
		}
	}
}

// Something that was unused and is used again starts anew.
func TestSweepForgetsWhenUsedAgain(t *testing.T) {
	b := newBench(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.Store.Now = func() time.Time { return now }
	used := map[string]bool{}
	b.Store.InUse = func(context.Context) (map[string]bool, error) { return used, nil }
	built, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Store.Remove(t.Context(), "tiny"); err != nil {
		t.Fatal(err)
	}
	for _, inUse := range []bool{false, true, false} {
		used[built.Digest] = inUse
		if removed, err := b.Store.Sweep(t.Context()); err != nil || removed != nil {
			t.Fatalf("removed %v, %v", removed, err)
		}
		now = now.Add(sweepGrace - time.Second)
	}
}

func TestSweepDoesNothingWithoutKnowing(t *testing.T) {
	b := newBench(t)
	b.Store.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
	built, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Store.Remove(t.Context(), "tiny"); err != nil {
		t.Fatal(err)
	}
	for _, inUse := range []func(context.Context) (map[string]bool, error){
		nil, func(context.Context) (map[string]bool, error) { return nil, errors.New("the store is shut") },
	} {
		b.Store.InUse = inUse
		for range 2 {
			if removed, _ := b.Store.Sweep(t.Context()); removed != nil {
				t.Errorf("removed %v", removed)
			}
		}
	}
	if _, err := os.Stat(built.Snapshot); err != nil {
		t.Error(err)
	}
}

// A reader never sees a half-written name.
func TestNamesAreReplacedWhole(t *testing.T) {
	b := newBench(t)
	built, err := b.build(recipeFS(goodRecipe))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := b.Store.point(built); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 500 {
		if _, err := b.Store.Get(t.Context(), "tiny"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	entries, err := os.ReadDir(b.Store.names())
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

func TestFullDiskIsSaidAtOnce(t *testing.T) {
	if err := checkSpace(t.TempDir(), 1<<62); !errors.Is(err, fault.NoSpace) || !strings.Contains(err.Error(), "MB free") {
		t.Errorf("got %v", err)
	}
	if err := checkSpace(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}
