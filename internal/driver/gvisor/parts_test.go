package gvisor

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

func testDriver(t *testing.T) *Driver {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // sandboxes must get through
		t.Fatal(err)
	}
	d, err := New(Config{Runsc: "/no/such/runsc", Dir: dir})
	if err != nil && os.Geteuid() != 0 {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// testBox is a sandbox's place without a sandbox.
func testBox(t *testing.T, d *Driver) *box {
	t.Helper()
	b := d.box("part")
	if err := b.make(); err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLastWords(t *testing.T) {
	d := testDriver(t)
	b := testBox(t, d)
	put(t, b.log("boot.log"), strings.Repeat("chatter\n", 1000)+"the end\n")
	if got := d.lastWords(b); !strings.HasSuffix(got, "the end") || !strings.HasPrefix(got, "chatter") || len(got) > logTail {
		t.Errorf("of a long log: %d bytes, %.20q", len(got), got)
	}
	put(t, b.log("panic.log"), "panic: the cause\n"+strings.Repeat("goroutine\n", 1000))
	if got := d.lastWords(b); !strings.HasPrefix(got, "panic: the cause") || len(got) > logTail {
		t.Errorf("of a panic: %d bytes, %.20q", len(got), got)
	}
}

func TestFinished(t *testing.T) {
	d := testDriver(t)
	b := testBox(t, d)
	for text, want := range map[string]int{
		"application exiting with exit status 9": 9, "application exiting with killed by signal 9": 137,
		"application exiting with killed by signal 6 (core dumped)": 134, "nothing of the kind": -1,
	} {
		put(t, b.log("boot.log"), "I1129 15:45:51.739 1 boot.go:779] "+text+"\nmore\n")
		if code, ok := d.finished(b); code != want || ok != (want >= 0) {
			t.Errorf("%q: %d, %v", text, code, ok)
		}
	}
}

func TestLogsAreTrimmed(t *testing.T) {
	d := testDriver(t)
	b := testBox(t, d)
	put(t, b.log("boot.log"), strings.Repeat("x", maxLog+1))
	put(t, b.log("gofer.log"), "short")
	d.trimLogs()
	for name, want := range map[string]int64{"boot.log": 0, "gofer.log": 5} {
		if info, err := os.Stat(b.log(name)); err != nil || info.Size() != want {
			t.Errorf("%s has %v bytes, not %d; %v", name, info.Size(), want, err)
		}
	}
}

// TestStrangersAreReaped has a shell leave a child to us, which ends.
func TestStrangersAreReaped(t *testing.T) {
	d := testDriver(t)
	cmd := exec.Command("sh", "-c", "sleep 0.01 & echo $!")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := bufio.NewScanner(out)
	line.Scan()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	stat := filepath.Join("/proc", line.Text(), "stat")
	ended := map[process]bool{}
	for len(ended) == 0 { // until it has ended, and was seen once
		ended = d.reapStrangers(nil)
		if _, err := os.Stat(stat); err != nil {
			t.Fatal("it was reaped at first sight, as a child of os/exec must not be")
		}
	}
	d.reapStrangers(ended)
	if _, err := os.Stat(stat); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestOwnCommandsAreNotReaped leaves what os/exec waits for to os/exec, whatever
// its name.
func TestOwnCommandsAreNotReaped(t *testing.T) {
	d := testDriver(t)
	program := filepath.Join(t.TempDir(), "runsc")
	put(t, program, "#!/bin/sh\n")
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		cmd := exec.Command(program)
		if err := d.start(cmd); err != nil {
			t.Fatal(err)
		}
		for {
			st, err := readStat(cmd.Process.Pid)
			if err != nil {
				t.Fatal("it was reaped")
			}
			d.reapOrphans()
			if st.state == 'Z' {
				break
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		d.ended(cmd)
	}
}

func TestProcessesAreToldApart(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := findProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := process{PID: p.PID, Start: p.Start - 1} // had the number before
	if _, err := other.open(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process that is gone was found again: %v", err)
	}
	if was, err := other.end(context.Background()); was || err != nil {
		t.Errorf("a process that is gone was ended: %v, %v", was, err)
	}
	w, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if w.over() {
		t.Error("it has not ended")
	}
	if was, err := p.end(context.Background()); !was || err != nil {
		t.Errorf("end: %v, %v", was, err)
	}
	if !w.over() {
		t.Error("it has ended")
	}
}

func TestIDOfState(t *testing.T) {
	for name, want := range map[string]string{
		"runsc-sb-1.sock": "sb-1", "sb-1_sandbox:sb-1.state": "sb-1", "sb-1_sandbox:sb-1.lock": "sb-1",
		"null-netns": "", "sb-1_sandbox:sb-2.state": "",
	} {
		got, ok := idOfState(name)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

func TestOlder(t *testing.T) {
	for have, want := range map[string]bool{"5.9.16": true, "5.10.0-8-amd64": false, "6.1": false, "4.19": true, "5.15.0": false} {
		if got := older(have, minKernel); got != want {
			t.Errorf("%s is older than %s: %v", have, minKernel, got)
		}
	}
}

// TestCgroups goes through both versions on files that stand for the kernel's.
func TestCgroups(t *testing.T) {
	limits := driver.Limits{CPU: 1.5, MemoryMB: 64, PIDs: 10}
	for name, c := range map[string]struct {
		before map[string]string // of the mount; ID is the sandbox's group
		after  map[string]string
	}{
		"version 1": {
			before: map[string]string{
				"memory/cgroup.procs": "", "cpu/cgroup.procs": "", "cpuacct/cgroup.procs": "", "pids/cgroup.procs": "", "cpuset/cgroup.procs": "",
				"memory/ID/memory.limit_in_bytes": "", "memory/ID/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
				"memory/ID/memory.usage_in_bytes": "5000\n", "memory/ID/memory.stat": "inactive_file 1\ntotal_inactive_file 1000\n",
				"cpu/ID/cpu.stat":         "nr_periods 9\nnr_throttled 4\nthrottled_time 1500000000\n",
				"cpu/ID/cpu.cfs_quota_us": "", "cpu/ID/cpu.cfs_period_us": "", "cpuacct/ID/cpuacct.usage": "2500000000\n",
				"pids/ID/pids.max": "", "pids/ID/pids.current": "7\n",
				"cpuset/cpuset.cpus": "0-3\n", "cpuset/cpuset.mems": "0\n",
				"cpuset/TOP/cpuset.cpus": "", "cpuset/TOP/cpuset.mems": "", "cpuset/UP/cpuset.cpus": "", "cpuset/UP/cpuset.mems": "",
				"cpuset/ID/cpuset.cpus": "", "cpuset/ID/cpuset.mems": "",
			},
			after: map[string]string{
				"memory/ID/memory.limit_in_bytes": "67108864", "cpu/ID/cpu.cfs_quota_us": "150000", "cpu/ID/cpu.cfs_period_us": "100000",
				"pids/ID/pids.max": "170", "cpuset/ID/cpuset.cpus": "0-3", "cpuset/ID/cpuset.mems": "0",
			},
		},
		"version 2": {
			before: map[string]string{
				"cgroup.controllers": "cpuset cpu io memory pids\n", "cgroup.subtree_control": "",
				"TOP/cgroup.controllers": "cpuset cpu memory pids\n", "TOP/cgroup.subtree_control": "",
				"UP/cgroup.controllers": "cpuset cpu memory pids\n", "UP/cgroup.subtree_control": "",
				"ID/memory.max": "", "ID/memory.swap.max": "", "ID/memory.oom.group": "", "ID/cpu.max": "", "ID/pids.max": "",
				"ID/memory.events": "low 0\noom 4\noom_kill 3\noom_group_kill 1\n", "ID/memory.current": "5000\n",
				"ID/memory.stat": "anon 1\ninactive_file 1000\n", "ID/cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_throttled 4\nthrottled_usec 1500000\n", "ID/pids.current": "7\n",
			},
			after: map[string]string{
				"ID/memory.max": "67108864", "ID/memory.swap.max": "0", "ID/memory.oom.group": "1", "ID/cpu.max": "150000 100000", "ID/pids.max": "170",
				"UP/cgroup.subtree_control": "+pids",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			group := groupOf("/data")
			where := strings.NewReplacer("TOP", cgroupTop, "UP", group, "ID", group+"/one")
			for file, text := range c.before {
				put(t, filepath.Join(mount, where.Replace(file)), text)
			}
			h, err := findHierarchy(mount, group)
			if err != nil {
				t.Fatal(err)
			}
			if missing := h.missing(); len(missing) > 0 {
				t.Errorf("%q are missing", missing)
			}
			if err := h.make("one"); err != nil {
				t.Fatal(err)
			}
			if err := h.set("one", limits); err != nil {
				t.Fatal(err)
			}
			for file, want := range c.after {
				data, err := os.ReadFile(filepath.Join(mount, where.Replace(file)))
				if got := string(data); err != nil || !strings.HasSuffix(got, want) {
					t.Errorf("%s is %q, not %q; %v", file, got, want, err)
				}
			}
			if n := h.oomKills("one"); n != 3 {
				t.Errorf("%d kills, not 3", n)
			}
			if s, err := h.stats("one"); err != nil || s != (driver.Stats{MemoryBytes: 4000, CPUSeconds: 2.5, PIDs: 7, Throttled: 4, ThrottledSeconds: 1.5}) {
				t.Errorf("it uses %+v, %v", s, err)
			}
			if ids := h.list(); len(ids) != 1 || ids[0] != "one" {
				t.Errorf("the groups are %q", ids)
			}
		})
	}
}

func TestWithoutCgroupsTheRemedyIsSaid(t *testing.T) {
	empty := t.TempDir()
	for _, mount := range []string{empty, filepath.Join(empty, "none")} {
		_, err := findHierarchy(mount, "x")
		var e *fault.Error
		if !errors.As(err, &e) || !strings.HasPrefix(e.Hint, "mount -t cgroup2") {
			t.Errorf("%v", err)
		}
	}
	h := hierarchy{roots: map[string]string{"": filepath.Join(empty, "none")}}
	if root, why := h.closed(); root != h.roots[""] || why == nil {
		t.Errorf("%q, %v", root, why)
	}
}

// Who is killed while it waits for its turn to start is told that, not that time ran out.
func TestATurnThatDoesNotComeSaysWhy(t *testing.T) {
	taken := make(chan struct{}, 1)
	taken <- struct{}{}
	killed := fault.New("conflict", "killed")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(killed)
	if err := acquire(ctx, taken); !errors.Is(err, killed) || errors.Is(err, fault.Timeout) {
		t.Errorf("killed: %v", err)
	}
	late, end := context.WithTimeout(context.Background(), 0)
	defer end()
	if err := acquire(late, taken); !errors.Is(err, fault.Timeout) {
		t.Errorf("late: %v", err)
	}
}

// A snapshot from elsewhere names files in its own folder and no others.
func TestMarksStayInTheirFolder(t *testing.T) {
	above := t.TempDir()
	if err := os.WriteFile(filepath.Join(above, "x"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := sum(filepath.Join(above, "x"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(above, "snapshot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "snapshot/../../x", "."} {
		if err := new(intact).check(dir, mark{Files: map[string]file{name: f}}); !errors.Is(err, fault.Conflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
