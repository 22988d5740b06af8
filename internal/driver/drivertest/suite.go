// Package drivertest is the suite that every driver passes. A driver's own
// test calls Run with a factory; what the suite cannot see through package
// driver, the Fixture shows it. Nothing but tests imports it.
package drivertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
)

// Fixture is one driver under test, in a place of its own.
type Fixture struct {
	Driver driver.Driver

	// Spec is that of a sandbox that can be prepared: everything but ID,
	// Hostname and LinkDir, which the suite fills in.
	Spec driver.Spec

	// Boot gives the root filesystem and program of a sandbox without a
	// snapshot. A factory leaves it nil when the driver is no driver.Builder.
	Boot func(t *testing.T) driver.BootSpec

	// Can names what its driver can besides, as package driver names it, so that
	// nothing is left out because a driver has lost it.
	Can []string

	// Talks says that the program in the sandboxes is that in the folder guest,
	// which dials the socket in LinkDir and does what it is told. Without it the
	// suite leaves out what only a guest can show.
	Talks bool

	// Exit makes the first program of a running instance end with a code. It
	// may be nil when the guest talks.
	Exit func(t *testing.T, id string, code int)

	// Kill ends an instance from outside, as the host's kernel may do. When it
	// returns, the instance has ended.
	Kill func(t *testing.T, id string)

	// Reopen makes the driver again, as a daemon does whose predecessor was
	// killed. The former is not used after that.
	Reopen func(t *testing.T) driver.Driver

	// Leftovers lists what there is of this driver's sandboxes on the host:
	// processes, mounts, cgroups, sockets, files.
	Leftovers func(t *testing.T) []string

	dir  string
	last atomic.Int32
}

// Factory makes a Fixture for one test of the suite.
type Factory func(t *testing.T) *Fixture

// patience is how long the suite waits for what must come.
const patience = 30 * time.Second

// Run runs the suite.
func Run(t *testing.T, factory Factory) {
	for name, test := range map[string]func(*testing.T, *Fixture){
		"Lifecycle":           testLifecycle,
		"RestoreOnce":         testRestoreOnce,
		"Discard":             testDiscard,
		"Exited":              testExited,
		"WaitIsCancelled":     testWaitIsCancelled,
		"StopIsIdempotent":    testStopIsIdempotent,
		"StopWhileWaiting":    testStopWhileWaiting,
		"KilledFromOutside":   testKilledFromOutside,
		"Adopt":               testAdopt,
		"AdoptOfTheGone":      testAdoptOfTheGone,
		"Sweep":               testSweep,
		"SweepOfAll":          testSweepOfAll,
		"BadSpecs":            testBadSpecs,
		"IDsAreUsedOnce":      testIDsAreUsedOnce,
		"CancelledFromStart":  testCancelledFromStart,
		"CancelledInBetween":  testCancelledInBetween,
		"CancelledAtTheEnd":   testCancelledAtTheEnd,
		"SeveralAtOnce":       testSeveralAtOnce,
		"Cycles":              testCycles,
		"Check":               testCheck,
		"Stats":               testStats,
		"Snapshot":            testSnapshot,
		"SnapshotAndStop":     testSnapshotAndStop,
		"SnapshotThatFails":   testSnapshotThatFails,
		"DamagedSnapshot":     testDamagedSnapshot,
		"Retarget":            testRetarget,
		"LoadedOnDemand":      testLoadedOnDemand,
		"SleepAndWake":        testSleepAndWake,
		"Pause":               testPause,
		"Boot":                testBoot,
		"BootLog":             testBootLog,
		"LinkIsDialledAgain":  testLinkIsDialledAgain,
		"OutOfMemory":         testOutOfMemory,
		"OutOfDisk":           testOutOfDisk,
		"OutOfProcesses":      testOutOfProcesses,
		"OutOfCPU":            testOutOfCPU,
		"OtherLimits":         testOtherLimits,
		"LimitsInBetween":     testLimitsInBetween,
		"LimitsTooLow":        testLimitsTooLow,
		"LimitsOfCopies":      testLimitsOfCopies,
		"Devices":             testDevices,
		"CopiesAreOfOneImage": testCopies,
		"Gates":               testGates,
		"Network":             testNetwork,
		"NetworkOfPrepared":   testNetworkOfPrepared,
		"NetworkOfCopies":     testNetworkOfCopies,
		"NetworkIsReset":      testNetworkIsReset,
		"NetworksApart":       testNetworksApart,
	} {
		t.Run(name, func(t *testing.T) {
			f := factory(t)
			f.dir = Dir(t)
			test(t, f)
			if left := f.Leftovers(t); len(left) > 0 && !t.Failed() {
				t.Errorf("left on the host: %q", left)
			}
		})
	}
}

// Dir is a folder that sandboxes whose processes own nothing can reach, unlike
// that of t.TempDir.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "drivertest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// spec is that of one more sandbox, and its link.
func (f *Fixture) spec(t *testing.T) (driver.Spec, *Link) {
	t.Helper()
	s := f.Spec
	s.ID = fmt.Sprintf("t%04d", f.last.Add(1))
	s.Hostname = "host-" + s.ID
	s.LinkDir = filepath.Join(f.dir, s.ID)
	return s, Listen(t, s.LinkDir)
}

// sandbox is a running instance and its guest, nil when it does not talk.
type sandbox struct {
	driver.Instance
	link  *Link
	guest *Guest
}

// run prepares and restores a sandbox.
func (f *Fixture) run(t *testing.T) *sandbox {
	t.Helper()
	s, link := f.spec(t)
	return f.start(t, s, link)
}

func (f *Fixture) start(t *testing.T, s driver.Spec, link *Link) *sandbox {
	t.Helper()
	ctx := context.Background()
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		t.Fatalf("Restore: %v", err)
	}
	return f.hold(t, inst, link)
}

// hold sees to it that an instance ends with the test, and takes its call.
func (f *Fixture) hold(t *testing.T, inst driver.Instance, link *Link) *sandbox {
	t.Helper()
	t.Cleanup(func() { _ = inst.Stop(context.Background()) })
	sb := &sandbox{Instance: inst, link: link}
	if f.Talks {
		sb.guest = link.Accept(t)
	}
	return sb
}

// exit makes the first program end.
func (f *Fixture) exit(t *testing.T, sb *sandbox, code int) {
	t.Helper()
	if f.Exit != nil {
		f.Exit(t, sb.ID(), code)
		return
	}
	sb.guest.Tell(t, Call{Do: "exit", N: code})
}

// lacks leaves a test out of what its driver has no need to do.
func (f *Fixture) lacks(t *testing.T, what string) {
	t.Helper()
	if slices.Contains(f.Can, what) {
		t.Fatalf("this driver is to be a %s, and is none", what)
	}
	t.Skipf("no %s", what)
}

func (f *Fixture) talks(t *testing.T) {
	t.Helper()
	if !f.Talks {
		t.Skip("nobody talks in this driver's sandboxes")
	}
}

// ended waits for the end of an instance.
func ended(t *testing.T, inst driver.Instance) driver.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exit, err := inst.Wait(ctx)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return exit
}

// stop stops an instance.
func stop(t *testing.T, inst driver.Instance) {
	t.Helper()
	if err := inst.Stop(context.Background()); err != nil {
		t.Fatalf("Stop: %v", err)
	}
}

// fds counts the open files of this process, once none has come or gone for a
// second: drivers may make things ready for the next sandbox in the background.
func fds(t *testing.T) int {
	t.Helper()
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	n, since := count(), time.Now()
	for end := since.Add(time.Minute); time.Since(since) < time.Second; time.Sleep(10 * time.Millisecond) {
		if now := count(); now != n {
			n, since = now, time.Now()
		}
		if time.Now().After(end) {
			t.Fatal("files have been opened and closed for a minute")
		}
	}
	return n
}
