package gvisor_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
)

// TestHangingRunsc has a runsc that never ends: a restore ends at the caller's
// deadline, and what had been prepared is gone.
func TestHangingRunsc(t *testing.T) {
	f := newFixture(t)
	dir := drivertest.Dir(t)
	runsc := filepath.Join(dir, "runsc")
	replace(t, runsc, theWorld(t).runsc)
	f.dir = filepath.Join(dir, "run")
	d, err := gvisor.New(gvisor.Config{Runsc: runsc, Dir: f.dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := f.Spec
	s.ID, s.LinkDir = "hang", drivertest.Dir(t)
	p, err := d.Prepare(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	replace(t, runsc, script)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.Restore(ctx, s.Limits); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a restore by a program that hangs: %v", err)
	}
	if left := f.leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// replace puts a copy of a file in the place of another, in one step.
func replace(t *testing.T, path, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(path+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close(), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}
