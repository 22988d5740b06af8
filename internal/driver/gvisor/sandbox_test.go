package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/fault"
)

// start runs a sandbox with some limits.
func start(t *testing.T, f *fixture, id string, change func(*driver.Spec)) (driver.Instance, *drivertest.Guest, driver.Spec) {
	t.Helper()
	ctx := context.Background()
	s := f.Spec
	s.ID, s.Hostname = id, id
	s.LinkDir = filepath.Join(drivertest.Dir(t), "link")
	if change != nil {
		change(&s)
	}
	link := drivertest.Listen(t, s.LinkDir)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return inst, link.Accept(t), s
}

// status reads a line of /proc/PID/status.
func status(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestOutside looks at a sandbox's processes from the host.
func TestOutside(t *testing.T) {
	f := newFixture(t)
	start(t, f, "out1", nil)
	p := f.pids(t, "out1")
	for name, pid := range map[string]int{"sentry": p.Sentry.PID, "gofer": p.Gofer.PID} {
		for _, id := range []string{"Uid", "Gid"} {
			for _, n := range strings.Fields(status(t, pid, id)) {
				if n != strconv.Itoa(gvisor.IDBase) {
					t.Errorf("the %s has the %s %s on the host", name, id, n)
				}
			}
		}
		if groups := status(t, pid, "Groups"); groups != "" {
			t.Errorf("the %s belongs to the groups %s", name, groups)
		}
		if status(t, pid, "Seccomp") != "2" {
			t.Errorf("the %s runs without seccomp filters", name)
		}
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
			theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
			ours, err2 := os.Readlink("/proc/self/ns/" + ns)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if theirs == ours {
				t.Errorf("the %s shares our %s namespace", name, ns)
			}
		}
		// The sentry's network is a loopback and the link, the gofer's a loopback.
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", pid))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")[2:]
		if want := map[string]int{"sentry": 2, "gofer": 1}[name]; len(lines) != want {
			t.Errorf("the %s has these interfaces: %q", name, lines)
		}
	}
}

// TestInside has root in the sandbox try what it must not do.
func TestInside(t *testing.T) {
	f := newFixture(t)
	_, guest, s := start(t, f, "in01", nil)
	for _, c := range []drivertest.Call{
		{Do: "write", Path: "/run/pandastack/link/x"},
		{Do: "write", Path: "/run/pandastack/program/guest"},
		{Do: "chown", Path: "/run/pandastack/link/link.sock", N: 0},
		{Do: "hostname=", Text: "other"},
		{Do: "mount", Path: "/proc"},
	} {
		if got, err := guest.Try(c); err == nil {
			t.Errorf("%+v works in the sandbox, and says %q", c, got)
		}
	}
	// What root in a container expects to be able to do.
	for _, c := range []drivertest.Call{
		{Do: "write", Path: "/mine", Text: "x"},
		{Do: "chown", Path: "/mine", N: 65535},
		{Do: "mkdir", Path: "/root/deep/er"},
		{Do: "write", Path: "/dev/shm/x", Text: "x"},
		{Do: "listen", Text: "127.0.0.1:80"},
	} {
		if _, err := guest.Try(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if got := guest.Do(t, drivertest.Call{Do: "stat", Path: "/mine"}); got != "-rw-r--r-- 65535:65535" {
		t.Errorf("a file that was given away is %s", got)
	}
	if got := guest.Do(t, drivertest.Call{Do: "stat", Path: "/root"}); !strings.HasSuffix(got, "0:0") {
		t.Errorf("the template's files are those of %s", got)
	}
	mounts := guest.Do(t, drivertest.Call{Do: "mounts"})
	for line := range strings.Lines(mounts) {
		if strings.Contains(line, " /tmp ") {
			t.Errorf("/tmp is not on the layer: %s", line)
		}
	}
	for _, path := range []string{"mine", "root/deep"} {
		if _, err := os.Lstat(filepath.Join(s.Rootfs, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was written to the template's root filesystem: %v", path, err)
		}
	}
}

func TestLimitsInside(t *testing.T) {
	f := newFixture(t)
	_, guest, _ := start(t, f, "lim1", func(s *driver.Spec) { s.Limits = driver.Limits{CPU: 0.5, MemoryMB: 200, PIDs: 50} })
	info := guest.Do(t, drivertest.Call{Do: "read", Path: "/proc/meminfo"})
	if !strings.Contains(info, fmt.Sprintf("MemTotal: %14d kB", 200<<10)) {
		t.Errorf("the sandbox sees another memory than 200 MB: %.60q", info)
	}
	group := gvisor.GroupOf(f.dir) + "/lim1/"
	for name, want := range map[string]string{
		"cpu/" + group + "cpu.cfs_quota_us":         "50000",
		"memory/" + group + "memory.limit_in_bytes": strconv.Itoa(200 << 20),
		"pids/" + group + "pids.max":                "250",
		group + "cpu.max":                           "50000 100000",
		group + "memory.max":                        strconv.Itoa(200 << 20),
		group + "pids.max":                          "250",
	} {
		data, err := os.ReadFile("/sys/fs/cgroup/" + name)
		if errors.Is(err, os.ErrNotExist) {
			continue // of the other version
		}
		if got := strings.TrimSpace(string(data)); err != nil || got != want {
			t.Errorf("%s is %s, not %s; %v", name, got, want, err)
		}
	}
	if inst, err := f.Driver.Adopt(context.Background(), "lim1"); err != nil {
		t.Error(err)
	} else if s, err := inst.Stats(context.Background()); err != nil || s.PIDs > 250 {
		t.Errorf("it uses %+v, %v", s, err)
	}
}

// TestForkBomb fills the sandbox with processes as the guest agent lets it, and
// expects the host's limit not to be reached.
func TestForkBomb(t *testing.T) {
	f := newFixture(t)
	inst, guest, _ := start(t, f, "bomb", func(s *driver.Spec) { s.Limits.PIDs = 40; s.Limits.MemoryMB = 1024 })
	guest.Do(t, drivertest.Call{Do: "nproc", N: 40})
	if _, err := guest.Try(drivertest.Call{Do: "nproc", N: 400}); err == nil {
		t.Error("root lifts the limit of its processes")
	}
	if _, err := guest.Try(drivertest.Call{Do: "spawn", N: 200}); err == nil || !strings.Contains(err.Error(), "temporarily unavailable") {
		t.Errorf("200 processes where 40 are allowed: %v", err)
	}
	guest.Do(t, drivertest.Call{Do: "echo"})
	if s, err := inst.Stats(context.Background()); err != nil || s.PIDs > 230 {
		t.Errorf("it uses %+v, %v", s, err)
	}
}

// TestSnapshotOnFullDisk fails to save sandboxes, which must go on.
func TestSnapshotOnFullDisk(t *testing.T) {
	f := newFixture(t)
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=200k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	ctx := context.Background()
	for id, stop := range map[string]bool{"ful1": false, "ful2": true} {
		s := f.Spec
		s.ID, s.LinkDir = id, filepath.Join(drivertest.Dir(t), "link")
		link := drivertest.Listen(t, s.LinkDir)
		p, err := f.Driver.Prepare(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		inst, err := p.Restore(ctx, s.Limits)
		if err != nil {
			t.Fatal(err)
		}
		link.Accept(t).Do(t, drivertest.Call{Do: "keep", Path: "a", Text: "b"})
		err = f.Driver.(driver.Snapshotter).Snapshot(ctx, inst, filepath.Join(small, "snapshot"), driver.Save{Stop: stop})
		if !errors.Is(err, fault.NoSpace) {
			t.Errorf("stop %v: a snapshot on a full disk: %v", stop, err)
		}
		if got := link.Accept(t).Do(t, drivertest.Call{Do: "kept", Path: "a"}); got != "b" {
			t.Errorf("stop %v: its memory holds %q", stop, got)
		}
		if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
			t.Errorf("stop %v: left behind: %v, %v", stop, left, err)
		}
		if err := inst.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
}

// TestTooLittleMemory says so, when the snapshot does not fit the limit.
func TestTooLittleMemory(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	s := f.Spec
	s.ID, s.LinkDir = "tiny", drivertest.Dir(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	s.Limits.MemoryMB = 20
	inst, err := p.Restore(ctx, s.Limits)
	if err == nil {
		exit, _ := inst.Wait(ctx)
		if exit.Reason != "oom" {
			t.Errorf("a sandbox in 20 MB ended as %+v", exit)
		}
		if err := inst.Stop(ctx); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, fault.Invalid) {
		t.Errorf("a sandbox in 20 MB: %v", err)
	}
	if left := f.leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
}

func TestGoferKilled(t *testing.T) {
	f := newFixture(t)
	inst, _, _ := start(t, f, "gofr", nil)
	kill(t, f.pids(t, "gofr").Gofer.PID)
	exit, err := inst.Wait(context.Background())
	if err != nil || exit.Reason != "crashed" || !strings.Contains(exit.Detail, "file server") {
		t.Errorf("the end of the gofer: %+v, %v", exit, err)
	}
}

// A sentry that was killed still has its socket for a moment: what is asked of it then is told that the sandbox has ended.
func TestPauseOfOneThatEnds(t *testing.T) {
	f := newFixture(t)
	inst, _, _ := start(t, f, "ends", nil)
	pid := f.pids(t, "ends").Sentry.PID
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- f.Driver.(driver.Pauser).Pause(context.Background(), inst) }()
	kill(t, pid)
	if err := <-asked; !errors.Is(err, fault.NotFound) {
		t.Errorf("it says %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	f := newFixture(t)
	s := f.Spec
	s.ID, s.LinkDir = "hide", filepath.Join(t.TempDir(), "link")
	if err := os.Mkdir(s.LinkDir, 0o755); err != nil {
		t.Fatal(err)
	}
	var e *fault.Error
	if _, err := f.Driver.Prepare(context.Background(), s); !errors.As(err, &e) || e.Code != "invalid" || e.Hint == "" {
		t.Errorf("a link in a folder that nobody may search: %v", err)
	}
}

// TestOtherBuild refuses a snapshot of another runsc before it starts anything.
func TestOtherBuild(t *testing.T) {
	f := newFixture(t)
	s := f.Spec
	s.ID, s.LinkDir, s.Snapshot = "othr", drivertest.Dir(t), drivertest.Dir(t)
	if err := os.WriteFile(filepath.Join(s.Snapshot, "complete.json"), []byte(`{"made":"runsc of last year"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Driver.Prepare(context.Background(), s); !errors.Is(err, fault.Conflict) {
		t.Errorf("a snapshot of another build: %v", err)
	}
}

func TestCheck(t *testing.T) {
	f := newFixture(t)
	checks := f.Driver.Check(context.Background())
	for _, c := range checks {
		if !c.OK {
			t.Errorf("%+v", c)
		}
	}
	if last := checks[len(checks)-1]; last.Name != "sandbox" {
		t.Errorf("no sandbox was tried: %+v", last)
	}
	if left := f.leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	d, err := gvisor.New(gvisor.Config{Runsc: "/no/such/runsc", Dir: f.dir})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, c := range d.Check(context.Background()) {
		if c.Name == "runsc" && (c.OK || !strings.Contains(c.Detail, "/no/such/runsc") || c.Fix == "") {
			t.Errorf("a missing runsc gives %+v", c)
		}
	}
}
