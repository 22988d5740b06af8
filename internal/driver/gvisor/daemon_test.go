package gvisor_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
)

// daemonArg makes the test program a daemon that makes, saves and ends
// sandboxes until it is killed.
const daemonArg = "act-as-daemon"

type daemonConfig struct {
	Runsc, Dir, Snapshots string
	Specs                 []driver.Spec
}

func daemon(args []string) {
	var cfg daemonConfig
	if err := json.Unmarshal([]byte(args[0]), &cfg); err != nil {
		panic(err)
	}
	d, err := gvisor.New(gvisor.Config{Runsc: cfg.Runsc, Dir: cfg.Dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	fmt.Println("up")
	for i, spec := range cfg.Specs {
		p, err := d.Prepare(ctx, spec)
		if err != nil {
			panic(err)
		}
		inst, err := p.Restore(ctx, spec.Limits)
		if err != nil {
			panic(err)
		}
		fmt.Println("running", spec.ID)
		if i%2 == 1 {
			if err := d.Snapshot(ctx, inst, filepath.Join(cfg.Snapshots, spec.ID), false); err != nil {
				panic(err)
			}
		}
		if i%3 != 0 {
			if err := inst.Stop(ctx); err != nil {
				panic(err)
			}
		}
	}
	select {}
}

// TestDaemonKilledAnywhere kills a daemon at many points of its work, and has
// the next one sweep up.
func TestDaemonKilledAnywhere(t *testing.T) {
	w := theWorld(t)
	points := 30
	if testing.Short() {
		points = 8
	}
	for i := range points {
		f := newFixture(t)
		dir := drivertest.Dir(t)
		cfg := daemonConfig{Runsc: w.runsc, Dir: f.dir, Snapshots: dir}
		for n := range 4 {
			s := f.Spec
			s.ID = fmt.Sprintf("t%04d", n)
			s.Hostname = s.ID
			s.LinkDir = filepath.Join(dir, "link-"+s.ID)
			drivertest.Listen(t, s.LinkDir)
			cfg.Specs = append(cfg.Specs, s)
		}
		arg, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], daemonArg, string(arg))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		bufio.NewScanner(out).Scan() // up
		time.Sleep(time.Duration(i) * 1100 * time.Millisecond / time.Duration(points))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// The commands of runsc that the daemon had started go on. A sweep must
		// cope with what they are just about to make.
		removed, err := f.Reopen(t).Sweep(context.Background(), nil)
		if err != nil {
			t.Errorf("killed at %d/%d: %v", i, points, err)
		}
		if left := f.leftovers(t); len(left) > 0 {
			t.Errorf("killed at %d/%d, after removing %q, this is left: %q", i, points, removed, left)
		}
	}
}
