package gvisor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Fixture { return newFixture(t).Fixture })
}

const diskMB = 24

// fixture is a driver in a folder of its own.
type fixture struct {
	*drivertest.Fixture
	dir string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := theWorld(t)
	f := &fixture{dir: filepath.Join(drivertest.Dir(t), "run")}
	f.Fixture = &drivertest.Fixture{
		Driver: f.open(t),
		Spec: driver.Spec{
			Rootfs: w.rootfs, Snapshot: w.snapshot, Programs: w.programs, DiskMB: diskMB,
			Limits: driver.Limits{CPU: 2, MemoryMB: 256, PIDs: 100},
		},
		Boot: func(t *testing.T) driver.BootSpec {
			return driver.BootSpec{Spec: driver.Spec{Rootfs: makeRootfs(t, drivertest.Dir(t)), Programs: w.programs, DiskMB: diskMB}}
		},
		Can:   []string{"Builder", "Limiter", "Networker", "Pauser", "Retargeter", "Snapshotter"},
		Talks: true,
		Kill:  f.kill,
		Reopen: func(t *testing.T) driver.Driver {
			_ = f.Driver.(*gvisor.Driver).Close() // as the end of its process would
			return f.open(t)
		},
		Leftovers: f.leftovers,
	}
	t.Cleanup(func() { // of tests that failed
		if left, err := f.open(t).Sweep(context.Background(), nil); err != nil {
			t.Errorf("cannot clean up %q: %v", left, err)
		}
	})
	return f
}

func (f *fixture) open(t *testing.T) *gvisor.Driver {
	t.Helper()
	d, err := gvisor.New(gvisor.Config{Runsc: theWorld(t).runsc, Dir: f.dir, Network: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// kill ends the sentry of a sandbox.
func (f *fixture) kill(t *testing.T, id string) {
	t.Helper()
	kill(t, f.pids(t, id).Sentry.PID)
}

type pids struct{ Sentry, Gofer struct{ PID int } }

func (f *fixture) pids(t *testing.T, id string) (p pids) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir, "sandboxes", id, "box.json"))
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kill ends a process and waits until it has ended.
func kill(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// leftovers looks at the host for what names the driver's folder, or the
// group that belongs to it.
func (f *fixture) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	err := filepath.WalkDir(f.dir, func(path string, _ fs.DirEntry, err error) error {
		switch rel, _ := filepath.Rel(f.dir, path); rel {
		case ".", "runsc", "sandboxes":
		default:
			left = append(left, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, f.dir) {
			left = append(left, line)
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range procs {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if bytes.Contains(cmdline, []byte(f.dir)) {
			left = append(left, proc+" "+string(cmdline))
		}
		stat, _ := os.ReadFile(filepath.Join(proc, "stat"))
		if fields := strings.Fields(string(stat)); len(fields) > 3 && fields[2] == "Z" && fields[3] == strconv.Itoa(os.Getpid()) && (fields[1] == "(exe)" || strings.HasPrefix(fields[1], "(runsc")) {
			left = append(left, "zombie "+string(stat))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		groups, _ := filepath.Glob(pattern + gvisor.GroupOf(f.dir) + "*")
		left = append(left, groups...)
	}
	for _, dir := range []string{"/run", "/var/run", "/tmp"} {
		sockets, _ := filepath.Glob(dir + "/runsc-t*.sock")
		left = append(left, sockets...)
	}
	return left
}

// world is what all tests share: the program, a guest, and a snapshot of it.
type world struct {
	dir, runsc, programs, rootfs, snapshot string
}

var shared struct {
	sync.Mutex
	world
	err error
}

// theWorld makes it at first use.
func theWorld(t testing.TB) world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("gVisor sandboxes need root")
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.dir == "" && shared.err == nil {
		shared.err = makeWorld(t, &shared.world)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.world
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == daemonArg {
		daemon(os.Args[2:])
		return
	}
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func makeWorld(t testing.TB, w *world) (err error) {
	if w.runsc, err = findRunsc(); err != nil {
		return err
	}
	if w.dir, err = os.MkdirTemp("", "gvisor-test-"); err != nil {
		return err
	}
	if err = os.Chmod(w.dir, 0o755); err != nil {
		return err
	}
	w.programs = filepath.Join(w.dir, "programs")
	if err = os.Mkdir(w.programs, 0o755); err != nil {
		return err
	}
	if err = build(filepath.Join(w.programs, "guest"), "../drivertest/guest"); err != nil {
		return err
	}
	w.rootfs = makeRootfs(t, w.dir)
	w.snapshot = filepath.Join(w.dir, "snapshot")

	d, err := gvisor.New(gvisor.Config{Runsc: w.runsc, Dir: filepath.Join(w.dir, "run")})
	if err != nil {
		return err
	}
	defer d.Close()
	ctx := context.Background()
	spec := driver.BootSpec{Spec: driver.Spec{ID: "template", Hostname: "template", Rootfs: w.rootfs, Programs: w.programs, LinkDir: filepath.Join(w.dir, "link"), DiskMB: diskMB}}
	for _, spec.Writable = range []bool{true, false} { // the first makes the mount points
		link := drivertest.Listen(t, spec.LinkDir)
		inst, err := d.Boot(ctx, spec)
		if err != nil {
			return err
		}
		link.Accept(t).Do(t, drivertest.Call{Do: "echo"})
		link.Close()
		if !spec.Writable {
			err = d.Snapshot(ctx, inst, w.snapshot, driver.Save{Stop: true})
		}
		if err = errors.Join(err, inst.Stop(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// makeRootfs makes the smallest root filesystem there is, owned as sandboxes
// need it.
func makeRootfs(t testing.TB, dir string) string {
	t.Helper()
	rootfs := filepath.Join(dir, "rootfs")
	for _, d := range []string{"", "tmp", "root", "workspace"} {
		path := filepath.Join(rootfs, d)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chown(path, gvisor.IDBase, gvisor.IDBase)); err != nil {
			t.Fatal(err)
		}
	}
	return rootfs
}

// findRunsc takes the program that the environment names, or that `make build`
// has built, or builds it there.
func findRunsc() (string, error) {
	if path := os.Getenv("PANDASTACK_TEST_RUNSC"); path != "" {
		return path, nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("where the project is: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "bin", "runsc")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("go", "run", "-trimpath", "mkrunsc.go", "-o", path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build runsc: %w: %s", err, said)
	}
	return path, nil
}

func build(out, pkg string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, pkg)
	cmd.Env = slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"})
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, said)
	}
	return nil
}
