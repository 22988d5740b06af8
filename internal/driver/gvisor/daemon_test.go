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
	"slices"
	"strings"
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
	d, err := gvisor.New(gvisor.Config{Runsc: cfg.Runsc, Dir: cfg.Dir, Network: true, Log: slog.New(slog.DiscardHandler)})
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
		if err := d.Connect(spec.ID, drivertest.Gate("first", place)); err != nil {
			panic(err)
		}
		inst, err := p.Restore(ctx, spec.Limits)
		if err != nil {
			panic(err)
		}
		fmt.Println("running", spec.ID)
		if i%2 == 1 {
			if err := d.Snapshot(ctx, inst, filepath.Join(cfg.Snapshots, spec.ID), driver.Save{}); err != nil {
				panic(err)
			}
		}
		if i%3 != 0 {
			if err := inst.Stop(ctx); err != nil {
				panic(err)
			}
		}
	}
	fmt.Println("done")
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
		f, d, _ := startDaemon(t, w)
		time.Sleep(time.Duration(i) * 1100 * time.Millisecond / time.Duration(points))
		d.kill()
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

// place is an address of documentation.
const place = "192.0.2.7:80"

// TestDaemonKilledAndReplaced has the next daemon take over what runs. What was
// connected through the last one hears that it is not, though it only waits.
func TestDaemonKilledAndReplaced(t *testing.T) {
	ctx := context.Background()
	f, d, links := startDaemon(t, theWorld(t))
	for {
		line := d.line(t)
		if line == "done" {
			break
		}
	}
	guests := map[string]*drivertest.Guest{}
	dial := drivertest.Call{Do: "dial", Path: "a", Text: place}
	for _, id := range []string{"t0000", "t0003"} {
		g := links[id].Accept(t)
		if _, err := g.Try(dial); err != nil {
			g = links[id].Accept(t) // it had called before it was saved
			g.Do(t, dial)
		}
		guests[id] = g
		if got := g.Do(t, drivertest.Call{Do: "receive", Path: "a", N: 5}); got != "first" {
			t.Errorf("connected, it hears %q", got)
		}
		g.Tell(t, drivertest.Call{Do: "receive", Path: "a", N: 1})
	}
	d.kill()
	next := f.Reopen(t)
	for _, id := range []string{"t0000", "t0003"} {
		inst, err := next.Adopt(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := inst.Stats(ctx); err != nil || s.PIDs == 0 {
			t.Errorf("%s uses %+v, %v", id, s, err)
		}
		g := guests[id]
		if err := g.Failed(t); err == nil || !strings.Contains(err.Error(), "reset by peer") {
			t.Errorf("%s: a connection through the last daemon: %v", id, err)
		}
		if _, err := g.Try(drivertest.Call{Do: "dial", Path: "b", Text: place}); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: before there is a gate: %v", id, err)
		}
		if err := next.(driver.Networker).Connect(id, drivertest.Gate("second", place)); err != nil {
			t.Fatal(err)
		}
		g.Do(t, drivertest.Call{Do: "dial", Path: "b", Text: place})
		if got := g.Do(t, drivertest.Call{Do: "receive", Path: "b", N: 6}); got != "second" {
			t.Errorf("connected again, it hears %q", got)
		}
		if err := inst.Stop(ctx); err != nil {
			t.Error(err)
		}
		if exit, err := inst.Wait(ctx); err != nil || exit.Reason != "stopped" {
			t.Errorf("%s ended as %+v, %v", id, exit, err)
		}
	}
	if left := f.leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

// daemonProcess is a daemon that runs apart from the tests.
type daemonProcess struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

// startDaemon starts one, in the folder of a fixture that will look after it.
func startDaemon(t *testing.T, w world) (*fixture, *daemonProcess, map[string]*drivertest.Link) {
	t.Helper()
	f := newFixture(t)
	dir := drivertest.Dir(t)
	cfg, links := daemonConfig{Runsc: w.runsc, Dir: f.dir, Snapshots: dir}, map[string]*drivertest.Link{}
	for n := range 4 {
		s := f.Spec
		s.ID = fmt.Sprintf("t%04d", n)
		s.Hostname = s.ID
		s.LinkDir = filepath.Join(dir, "link-"+s.ID)
		links[s.ID] = drivertest.Listen(t, s.LinkDir)
		cfg.Specs = append(cfg.Specs, s)
	}
	arg, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemonProcess{cmd: exec.Command(os.Args[0], daemonArg, string(arg))}
	d.cmd.Stderr = os.Stderr
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewScanner(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	if line := d.line(t); line != "up" {
		t.Fatalf("the daemon says %q", line)
	}
	return f, d, links
}

func (d *daemonProcess) line(t *testing.T) string {
	t.Helper()
	if !d.out.Scan() {
		t.Fatal("the daemon ended")
	}
	return d.out.Text()
}

// kill ends it, and waits until what it was just starting is a program of its
// own, which a sweep can tell from the daemon. The lock on its folder, which is
// let go of then, holds the next one back as long.
func (d *daemonProcess) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
	for end := time.Now().Add(10 * time.Second); d.starting() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (d *daemonProcess) starting() bool {
	argv := strings.Join(d.cmd.Args, "\x00") + "\x00"
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(files, func(file string) bool {
		data, _ := os.ReadFile(file)
		return string(data) == argv
	})
}
