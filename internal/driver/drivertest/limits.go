package drivertest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

func limiter(t *testing.T, f *Fixture) driver.Limiter {
	t.Helper()
	l, ok := f.Driver.(driver.Limiter)
	if !ok {
		f.lacks(t, "Limiter")
	}
	return l
}

// stats are those of an instance that runs.
func stats(t *testing.T, inst driver.Instance) driver.Stats {
	t.Helper()
	s, err := inst.Stats(context.Background())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	return s
}

// shows reads what a guest believes its memory to be, in MB, and the size of
// its disk.
func shows(t *testing.T, g *Guest) (memoryMB, diskMB int) {
	t.Helper()
	for line := range strings.Lines(g.Do(t, Call{Do: "read", Path: "/proc/meminfo"})) {
		var kb int
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kb); n == 1 {
			memoryMB = kb >> 10
		}
	}
	var blocks, size int
	if _, err := fmt.Sscan(g.Do(t, Call{Do: "statfs", Path: "/"}), &blocks, &size); err != nil {
		t.Fatal(err)
	}
	return memoryMB, blocks * size >> 20
}

// testOutOfProcesses meets the limit that a guest puts on its own processes.
func testOutOfProcesses(t *testing.T, f *Fixture) {
	f.talks(t)
	s, link := f.spec(t)
	s.Limits.PIDs = 40
	sb := f.start(t, s, link)
	sb.guest.Do(t, Call{Do: "nproc", N: 40})
	if _, err := sb.guest.Try(Call{Do: "spawn", N: 200}); err == nil || !strings.Contains(err.Error(), "temporarily unavailable") {
		t.Errorf("200 processes where 40 are allowed: %v", err)
	}
	if s := stats(t, sb); s.TasksRefused == 0 || s.Tasks < 20 || s.Tasks > 60 {
		t.Errorf("with 40 processes and more refused it uses %+v", s)
	}
	stop(t, sb)
}

// testOutOfCPU meets the limit of cores, which slows down and nothing else.
func testOutOfCPU(t *testing.T, f *Fixture) {
	f.talks(t)
	s, link := f.spec(t)
	s.Limits.CPU = 0.2
	sb := f.start(t, s, link)
	before := stats(t, sb)
	sb.guest.Do(t, Call{Do: "spin", N: 1000})
	after := stats(t, sb)
	if after.Throttled <= before.Throttled || after.ThrottledSeconds <= before.ThrottledSeconds {
		t.Errorf("a second of spinning with a fifth of a core: %+v, before %+v", after, before)
	}
	stop(t, sb)
}

// testOtherLimits restores under others than the snapshot and the preparation had.
func testOtherLimits(t *testing.T, f *Fixture) {
	ctx := context.Background()
	for _, diskMB := range []int{f.Spec.DiskMB / 2, f.Spec.DiskMB * 2} {
		s, link := f.spec(t)
		p, err := f.Driver.Prepare(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		l := s.Limits
		l.MemoryMB, l.DiskMB = l.MemoryMB+64, diskMB
		inst, err := p.Restore(ctx, l)
		if err != nil {
			t.Fatal(err)
		}
		sb := f.hold(t, inst, link)
		if f.Talks {
			if memory, disk := shows(t, sb.guest); memory != l.MemoryMB || disk != diskMB {
				t.Errorf("restored with %+v it shows %d MB of memory and %d MB of disk", l, memory, disk)
			}
			fills(t, sb, diskMB)
		}
		stop(t, sb)
	}
}

// fills sees that so much fits on the disk and no more, and that what did not
// is counted.
func fills(t *testing.T, sb *sandbox, diskMB int) {
	t.Helper()
	before := stats(t, sb)
	sb.guest.Do(t, Call{Do: "fill", Path: "/most", N: diskMB - 4})
	if now := stats(t, sb); now.DiskBytes < int64(diskMB-4)<<20 || now.DiskRefused != before.DiskRefused {
		t.Errorf("with %d MB on the disk it uses %+v", diskMB-4, now)
	}
	if _, err := sb.guest.Try(Call{Do: "fill", Path: "/more", N: 8}); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%d MB on a disk of %d MB: %v", diskMB+4, diskMB, err)
	}
	if now := stats(t, sb); now.DiskRefused <= before.DiskRefused {
		t.Errorf("a full disk counts no refusal: %+v", now)
	}
}

// testLimitsInBetween changes the limits of what runs.
func testLimitsInBetween(t *testing.T, f *Fixture) {
	limits := limiter(t, f)
	ctx := context.Background()
	sb := f.run(t)
	was := f.Spec.Limits
	for _, l := range []driver.Limits{
		{CPU: was.CPU, MemoryMB: was.MemoryMB * 2, DiskMB: f.Spec.DiskMB * 2, PIDs: was.PIDs * 2},
		{CPU: was.CPU / 2, MemoryMB: was.MemoryMB, DiskMB: f.Spec.DiskMB, PIDs: was.PIDs},
	} {
		if !limits.CanLimit(was, l) {
			t.Fatalf("the driver cannot turn %+v into %+v", was, l)
		}
		if err := limits.SetLimits(ctx, sb.Instance, l); err != nil {
			t.Fatal(err)
		}
		if !f.Talks {
			continue
		}
		if memory, disk := shows(t, sb.guest); memory != l.MemoryMB || disk != l.DiskMB {
			t.Errorf("with %+v it shows %d MB of memory and %d MB of disk", l, memory, disk)
		}
	}
	if f.Talks {
		fills(t, sb, f.Spec.DiskMB)
		sb.guest.Tell(t, Call{Do: "alloc", N: was.MemoryMB + 64}) // fits the first, not the second
		if exit := ended(t, sb); exit.Reason != "oom" {
			t.Errorf("it ended as %+v, not oom", exit)
		}
	}
	stop(t, sb)
	if err := limits.SetLimits(ctx, sb.Instance, was); !errors.Is(err, fault.NotFound) {
		t.Errorf("SetLimits of what has ended: %v, not of the kind not_found", err)
	}
}

// testLimitsTooLow asks for less than what is in use, which changes nothing.
func testLimitsTooLow(t *testing.T, f *Fixture) {
	limits := limiter(t, f)
	f.talks(t)
	ctx := context.Background()
	sb := f.run(t)
	sb.guest.Do(t, Call{Do: "alloc", N: 40})
	sb.guest.Do(t, Call{Do: "fill", Path: "/a", N: f.Spec.DiskMB / 2})
	was := f.Spec.Limits
	was.DiskMB = f.Spec.DiskMB
	for field, l := range map[string]driver.Limits{
		"memory_mb": {CPU: was.CPU, MemoryMB: 40, DiskMB: was.DiskMB, PIDs: was.PIDs},
		"disk_mb":   {CPU: was.CPU, MemoryMB: was.MemoryMB, DiskMB: f.Spec.DiskMB / 4, PIDs: was.PIDs},
	} {
		var e *fault.Error
		if err := limits.SetLimits(ctx, sb.Instance, l); !errors.As(err, &e) || e.Code != "invalid" || e.Field != field {
			t.Errorf("too little of %s: %v", field, err)
		}
	}
	if memory, disk := shows(t, sb.guest); memory != was.MemoryMB || disk != f.Spec.DiskMB {
		t.Errorf("after refusals it shows %d MB of memory and %d MB of disk", memory, disk)
	}
	stop(t, sb)
}

// testLimitsOfCopies gives copies of one that has other limits their own.
func testLimitsOfCopies(t *testing.T, f *Fixture) {
	limits, snaps := limiter(t, f), snapshotter(t, f)
	f.talks(t)
	ctx := context.Background()
	sb := f.run(t)
	l := f.Spec.Limits
	l.DiskMB = f.Spec.DiskMB * 2
	if err := limits.SetLimits(ctx, sb.Instance, l); err != nil {
		t.Fatal(err)
	}
	sb.guest.Do(t, Call{Do: "fill", Path: "/a", N: f.Spec.DiskMB})
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{Stop: true}); err != nil {
		t.Fatal(err)
	}
	stop(t, sb)
	s, link := f.spec(t)
	s.Snapshot, s.DiskMB = dir, 0
	same := f.start(t, s, link)
	if _, disk := shows(t, same.guest); disk != l.DiskMB {
		t.Errorf("the copy of one with a disk of %d MB has %d MB", l.DiskMB, disk)
	}
	stop(t, same)

	s, _ = f.spec(t)
	s.Snapshot, s.DiskMB = dir, f.Spec.DiskMB/2 // less than what is on it
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	var e *fault.Error
	if _, err := p.Restore(ctx, s.Limits); !errors.As(err, &e) || e.Field != "disk_mb" {
		t.Errorf("a copy with less disk than what is on it: %v", err)
	}
}

// testDevices fills the file systems in memory that a guest has besides its disk.
func testDevices(t *testing.T, f *Fixture) {
	f.talks(t)
	sb := f.run(t)
	for path, most := range map[string]int{"/dev/file": 8, "/dev/shm/file": f.Spec.Limits.MemoryMB/2 + 8} {
		if _, err := sb.guest.Try(Call{Do: "fill", Path: path, N: most}); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("%d MB in %s: %v", most, path, err)
		}
		sb.guest.Do(t, Call{Do: "remove", Path: path})
	}
	stop(t, sb)
}
