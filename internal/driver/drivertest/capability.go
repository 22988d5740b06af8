package drivertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

func snapshotter(t *testing.T, f *Fixture) driver.Snapshotter {
	t.Helper()
	s, ok := f.Driver.(driver.Snapshotter)
	if !ok {
		f.lacks(t, "Snapshotter")
	}
	return s
}

func testSnapshot(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	sb := f.run(t)
	if f.Talks {
		sb.guest.Do(t, Call{Do: "keep", Path: "a", Text: "then"})
		sb.guest.Do(t, Call{Do: "write", Path: "/kept", Text: "then"})
	}
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(context.Background(), sb.Instance, dir, driver.Save{}); err != nil {
		t.Fatal(err)
	}
	if f.Talks { // a snapshot breaks the connection, and the guest dials again
		sb.guest = sb.link.Accept(t)
		sb.guest.Do(t, Call{Do: "keep", Path: "a", Text: "later"})
		sb.guest.Do(t, Call{Do: "write", Path: "/kept", Text: "later"})
	}
	s, link := f.spec(t)
	s.Snapshot = dir
	copied := f.start(t, s, link)
	if f.Talks {
		for _, c := range []Call{{Do: "kept", Path: "a"}, {Do: "read", Path: "/kept"}} {
			if got := copied.guest.Do(t, c); got != "then" {
				t.Errorf("the copy, asked for %+v: %q", c, got)
			}
			if got := sb.guest.Do(t, c); got != "later" {
				t.Errorf("the original, asked for %+v: %q", c, got)
			}
		}
		if got := copied.guest.Do(t, Call{Do: "hostname"}); got != s.Hostname {
			t.Errorf("the copy's name is %q", got)
		}
	}
	stop(t, copied)
	if f.Talks {
		f.exit(t, sb, 3)
		if exit := ended(t, sb); exit.Code != 3 || exit.Reason != "exited" {
			t.Errorf("the original ended as %+v", exit)
		}
	}
	stop(t, sb)
}

func testSnapshotAndStop(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	sb := f.run(t)
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(context.Background(), sb.Instance, dir, driver.Save{Stop: true}); err != nil {
		t.Fatal(err)
	}
	if exit := ended(t, sb); exit.Reason != "stopped" {
		t.Errorf("it ended as %+v, not stopped", exit)
	}
	stop(t, sb)
	if left := f.Leftovers(t); len(left) > 0 {
		t.Errorf("left on the host: %q", left)
	}
	s, link := f.spec(t)
	s.Snapshot = dir
	stop(t, f.start(t, s, link))
}

func testSnapshotThatFails(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	ctx := context.Background()
	sb := f.run(t)
	taken := filepath.Join(f.dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "something"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, end := range []bool{false, true} {
		if err := snaps.Snapshot(ctx, sb.Instance, taken, driver.Save{Stop: end}); err == nil {
			t.Error("a snapshot replaced a folder with something in it")
		}
		if f.Talks { // it goes on, although it was to end
			sb.guest = sb.link.Accept(t)
			sb.guest.Do(t, Call{Do: "echo"})
		}
	}
	if err := snaps.Snapshot(ctx, sb.Instance, filepath.Join(f.dir, "no", "such", "folder"), driver.Save{}); err == nil {
		t.Error("a snapshot was written into a folder that is not there")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := snaps.Snapshot(cancelled, sb.Instance, filepath.Join(f.dir, "cancelled"), driver.Save{}); err == nil {
		t.Error("a snapshot does not heed its context")
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "cancelled") || strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s stayed behind", e.Name())
		}
	}
	stop(t, sb)
	if err := snaps.Snapshot(ctx, sb.Instance, filepath.Join(f.dir, "late"), driver.Save{}); !errors.Is(err, fault.NotFound) {
		t.Errorf("Snapshot of what has ended: %v, not of the kind not_found", err)
	}
}

// testDamagedSnapshot spoils each file of a snapshot in turn. Nothing may be
// started from it.
func testDamagedSnapshot(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	ctx := context.Background()
	sb := f.run(t)
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{}); err != nil {
		t.Fatal(err)
	}
	stop(t, sb)
	if img, err := snaps.Inspect(ctx, dir); err != nil || img.Bytes <= 0 {
		t.Fatalf("Inspect of a whole one: %+v, %v", img, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		flipped := slices.Clone(data)
		flipped[len(flipped)/2] ^= 4
		for how, spoiled := range map[string][]byte{"cut in half": data[:len(data)/2], "flipped by a bit": flipped, "gone": nil} {
			if err := os.WriteFile(path, spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
			if spoiled == nil {
				_ = os.Remove(path)
			}
			if _, err := snaps.Inspect(ctx, dir); err == nil {
				t.Errorf("%s %s: Inspect finds nothing wrong", e.Name(), how)
			}
			s, _ := f.spec(t)
			s.Snapshot = dir
			if p, err := f.Driver.Prepare(ctx, s); err == nil {
				_ = p.Discard(ctx)
				if spoiled == nil {
					continue // an empty folder may mean a sandbox that has just started
				}
				t.Errorf("%s %s: it was prepared", e.Name(), how)
			}
			if left := f.Leftovers(t); len(left) > 0 {
				t.Fatalf("%s %s: left on the host: %q", e.Name(), how, left)
			}
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if carrier, ok := f.Driver.(driver.Carrier); ok {
		testNeeds(t, carrier, dir)
	}
	s, link := f.spec(t)
	s.Snapshot = dir
	stop(t, f.start(t, s, link))
}

// testNeeds asks what a snapshot needs that was made here.
func testNeeds(t *testing.T, carrier driver.Carrier, dir string) {
	ctx := context.Background()
	needs, err := carrier.Needs(ctx, dir)
	if err != nil || needs.Made == "" || needs.Arch == "" {
		t.Fatalf("Needs of a whole one: %+v, %v", needs, err)
	}
	if err := carrier.Fits(ctx, needs); err != nil {
		t.Errorf("what was made here does not fit: %v", err)
	}
	for what, change := range map[string]func(*driver.Needs){
		"made":     func(n *driver.Needs) { n.Made = "another " + n.Made },
		"arch":     func(n *driver.Needs) { n.Arch = "pdp11" },
		"features": func(n *driver.Needs) { n.Features = append(slices.Clone(n.Features), "zz_of_tomorrow") },
	} {
		other := needs
		change(&other)
		if err := carrier.Fits(ctx, other); !errors.Is(err, fault.Conflict) || !errors.Is(err, driver.ErrStale) {
			t.Errorf("it fits with another %s: %v", what, err)
		}
	}
	if _, err := carrier.Needs(ctx, filepath.Join(dir, "none")); err == nil {
		t.Error("Needs of nothing")
	}
}

// testRetarget restores one that was prepared for another snapshot.
func testRetarget(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	ctx := context.Background()
	sb := f.run(t)
	if f.Talks {
		sb.guest.Do(t, Call{Do: "keep", Path: "a", Text: "then"})
		sb.guest.Do(t, Call{Do: "write", Path: "/kept", Text: "then"})
	}
	dir := filepath.Join(f.dir, "snapshot")
	if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{Volatile: true}); err != nil {
		t.Fatal(err)
	}
	stop(t, sb)
	s, link := f.spec(t)
	p, err := f.Driver.Prepare(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	re, ok := p.(driver.Retargeter)
	if !ok {
		_ = p.Discard(ctx)
		f.lacks(t, "Retargeter")
	}
	inst, err := re.RestoreFrom(ctx, dir, "another-name", s.Limits)
	if err != nil {
		t.Fatal(err)
	}
	copied := f.hold(t, inst, link)
	if f.Talks {
		for _, c := range []Call{{Do: "kept", Path: "a"}, {Do: "read", Path: "/kept"}} {
			if got := copied.guest.Do(t, c); got != "then" {
				t.Errorf("asked for %+v: %q", c, got)
			}
		}
		if got := copied.guest.Do(t, Call{Do: "hostname"}); got != "another-name" {
			t.Errorf("its name is %q", got)
		}
	}
	stop(t, copied)
}

// testLoadedOnDemand restores from a snapshot that stays, of which a driver may
// load what is asked for only then. Nothing is other than it was: not when the
// snapshot goes nevertheless, not what was thrown away before it was loaded, and
// not in a snapshot of the copy.
func testLoadedOnDemand(t *testing.T, f *Fixture) {
	if !f.Talks {
		t.Skip("its memory cannot be looked at")
	}
	const mb = 24
	snaps := snapshotter(t, f)
	ctx := context.Background()
	sb := f.run(t)
	sb.guest.Do(t, Call{Do: "map", N: mb})
	whole := sb.guest.Do(t, Call{Do: "mapped"})
	sb.guest.Do(t, Call{Do: "discard", N: mb / 2})
	half := sb.guest.Do(t, Call{Do: "mapped"})
	sb.guest.Do(t, Call{Do: "map", N: mb})
	if whole == half || sb.guest.Do(t, Call{Do: "mapped"}) != whole {
		t.Fatal("the guest does not do what it is told")
	}
	dir := filepath.Join(f.dir, "stays")
	if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{Stop: true, Stays: true}); err != nil {
		t.Fatal(err)
	}
	start := func(dir string) *sandbox {
		s, link := f.spec(t)
		s.Snapshot = dir
		return f.start(t, s, link)
	}
	reader, thrower, saver := start(dir), start(dir), start(dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	thrower.guest.Do(t, Call{Do: "discard", N: mb / 2})
	if got := thrower.guest.Do(t, Call{Do: "mapped"}); got != half {
		t.Errorf("after it threw away half of its memory, that is %s and not %s", got, half)
	}
	again := filepath.Join(f.dir, "again")
	if err := snaps.Snapshot(ctx, saver.Instance, again, driver.Save{}); err != nil {
		t.Fatal(err)
	}
	saver.guest = saver.link.Accept(t)
	for what, sb := range map[string]*sandbox{"copy": reader, "original of a snapshot": saver, "copy of a copy": start(again)} {
		if got := sb.guest.Do(t, Call{Do: "mapped"}); got != whole {
			t.Errorf("the memory of the %s is %s and not %s", what, got, whole)
		}
		stop(t, sb)
	}
	stop(t, thrower)
}

// testSleepAndWake uses one id again and again, as a sandbox does that is
// hibernated. What is in its files and its memory stays.
func testSleepAndWake(t *testing.T, f *Fixture) {
	snaps := snapshotter(t, f)
	ctx := context.Background()
	s, link := f.spec(t)
	sb := f.start(t, s, link)
	for round := range 4 {
		if f.Talks {
			sb.guest.Do(t, Call{Do: "write", Path: fmt.Sprintf("/round-%d", round), Text: "yes"})
			sb.guest.Do(t, Call{Do: "keep", Path: fmt.Sprint(round), Text: "yes"})
		}
		dir := filepath.Join(f.dir, fmt.Sprintf("image-%d", round))
		if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{Stop: true}); err != nil {
			t.Fatal(err)
		}
		old := sb.Instance
		s.Snapshot = dir
		sb = f.start(t, s, link)
		stop(t, old) // the end of an earlier life is not that of this one
		if f.Talks {
			for n := range round + 1 {
				if got := sb.guest.Do(t, Call{Do: "read", Path: fmt.Sprintf("/round-%d", n)}); got != "yes" {
					t.Errorf("after round %d the file of round %d holds %q", round, n, got)
				}
				if got := sb.guest.Do(t, Call{Do: "kept", Path: fmt.Sprint(n)}); got != "yes" {
					t.Errorf("after round %d the memory of round %d holds %q", round, n, got)
				}
			}
		}
	}
	stop(t, sb)
}

func testPause(t *testing.T, f *Fixture) {
	pauser, ok := f.Driver.(driver.Pauser)
	if !ok {
		f.lacks(t, "Pauser")
	}
	ctx := context.Background()
	sb := f.run(t)
	for range 2 { // it is idempotent
		if err := pauser.Pause(ctx, sb.Instance); err != nil {
			t.Fatal(err)
		}
	}
	if f.Talks && !sb.guest.Silent(t, Call{Do: "echo", Text: "awake"}, 100*time.Millisecond) {
		t.Error("a paused guest answers")
	}
	for range 2 {
		if err := pauser.Resume(ctx, sb.Instance); err != nil {
			t.Fatal(err)
		}
	}
	if f.Talks {
		if got := sb.guest.Answer(t); got != "awake" {
			t.Errorf("the guest says %q", got)
		}
	}
	if err := pauser.Pause(ctx, sb.Instance); err != nil {
		t.Fatal(err)
	}
	if snaps, ok := f.Driver.(driver.Snapshotter); ok { // of a paused one
		dir := filepath.Join(f.dir, "snapshot")
		if err := snaps.Snapshot(ctx, sb.Instance, dir, driver.Save{}); err != nil {
			t.Fatal(err)
		}
		s, link := f.spec(t)
		s.Snapshot = dir
		stop(t, f.start(t, s, link))
	}
	stop(t, sb)
	if err := pauser.Pause(ctx, sb.Instance); !errors.Is(err, fault.NotFound) {
		t.Errorf("Pause of what has ended: %v, not of the kind not_found", err)
	}
}

// boot starts a sandbox without a snapshot.
func boot(t *testing.T, f *Fixture, change func(*driver.BootSpec)) (*sandbox, driver.BootSpec) {
	t.Helper()
	builder, ok := f.Driver.(driver.Builder)
	if !ok || f.Boot == nil {
		f.lacks(t, "Builder")
	}
	s := f.Boot(t)
	spec, link := f.spec(t)
	s.ID, s.Hostname, s.LinkDir = spec.ID, spec.Hostname, spec.LinkDir
	if change != nil {
		change(&s)
	}
	inst, err := builder.Boot(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inst.Stop(context.Background()) })
	sb := &sandbox{Instance: inst, link: link}
	if f.Talks && len(s.Argv) == 0 {
		sb.guest = link.Accept(t)
	}
	return sb, s
}

func testBoot(t *testing.T, f *Fixture) {
	sb, s := boot(t, f, func(s *driver.BootSpec) { s.Writable = true })
	if !f.Talks {
		stop(t, sb)
		return
	}
	sb.guest.Do(t, Call{Do: "write", Path: "/built", Text: "yes"})
	stop(t, sb)
	if data, err := os.ReadFile(filepath.Join(s.Rootfs, "built")); err != nil || string(data) != "yes" {
		t.Errorf("the root filesystem holds %q, %v", data, err)
	}
	kept, _ := boot(t, f, func(b *driver.BootSpec) { b.Rootfs = s.Rootfs })
	if got := kept.guest.Do(t, Call{Do: "read", Path: "/built"}); got != "yes" {
		t.Errorf("the next sandbox reads %q", got)
	}
	kept.guest.Do(t, Call{Do: "write", Path: "/built", Text: "no"})
	kept.guest.Do(t, Call{Do: "write", Path: "/tmp/file", Text: "no"})
	stop(t, kept)
	if data, err := os.ReadFile(filepath.Join(s.Rootfs, "built")); err != nil || string(data) != "yes" {
		t.Errorf("a sandbox wrote %q to a root filesystem that was not its own, %v", data, err)
	}
}

func testBootLog(t *testing.T, f *Fixture) {
	log := filepath.Join(f.dir, "log")
	bound := filepath.Join(f.dir, "bound")
	if err := os.Mkdir(bound, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bound, "file"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 5 { // a program so short that it may end before anybody looks
		_ = os.Remove(log)
		sb, _ := boot(t, f, func(s *driver.BootSpec) {
			s.Argv = []string{"/run/pandastack/program/guest", "say"}
			s.Env = []string{"SAY=/bound/file"}
			s.Binds = map[string]string{"/bound": bound}
			s.Log = log
			s.Writable = true
		})
		if !f.Talks {
			stop(t, sb)
			continue
		}
		if exit := ended(t, sb); exit.Code != 5 || exit.Reason != "exited" {
			t.Errorf("it ended as %+v, not exited with 5", exit)
		}
		stop(t, sb)
		data, err := os.ReadFile(log)
		if err != nil || !strings.Contains(string(data), "of the host") {
			t.Errorf("the log holds %q, %v", data, err)
		}
	}
}

func testLinkIsDialledAgain(t *testing.T, f *Fixture) {
	f.talks(t)
	sb := f.run(t)
	sb.guest.Do(t, Call{Do: "keep", Path: "a", Text: "b"})
	sb.link.Close()
	_ = sb.guest.conn.Close()
	sb.link = Listen(t, sb.link.dir)
	sb.guest = sb.link.Accept(t)
	if got := sb.guest.Do(t, Call{Do: "kept", Path: "a"}); got != "b" {
		t.Errorf("its memory holds %q", got)
	}
	stop(t, sb)
}

func testOutOfMemory(t *testing.T, f *Fixture) {
	f.talks(t)
	s, link := f.spec(t)
	s.Limits.MemoryMB = 128
	sb, other := f.start(t, s, link), f.run(t)
	sb.guest.Tell(t, Call{Do: "alloc", N: 512})
	if exit := ended(t, sb); exit.Reason != "oom" || exit.Code != 137 {
		t.Errorf("it ended as %+v, not oom with 137", exit)
	}
	other.guest.Do(t, Call{Do: "alloc", N: 10})
	stop(t, sb)
	stop(t, other)
}

func testOutOfDisk(t *testing.T, f *Fixture) {
	f.talks(t)
	sb := f.run(t)
	sb.guest.Do(t, Call{Do: "fill", Path: "/a", N: f.Spec.DiskMB / 2})
	for _, path := range []string{"/b", "/tmp/c"} {
		if _, err := sb.guest.Try(Call{Do: "fill", Path: path, N: f.Spec.DiskMB}); err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("too much for the disk, the last of it in %s: %v", path, err)
		}
	}
	if got := sb.guest.Do(t, Call{Do: "echo", Text: "alive"}); got != "alive" {
		t.Errorf("the guest says %q", got)
	}
	stop(t, sb)
}

func testCopies(t *testing.T, f *Fixture) {
	f.talks(t)
	a, b := f.run(t), f.run(t)
	a.guest.Do(t, Call{Do: "keep", Path: "x", Text: "a"})
	a.guest.Do(t, Call{Do: "write", Path: "/x", Text: "a"})
	if got := b.guest.Do(t, Call{Do: "kept", Path: "x"}); got != "" {
		t.Errorf("one copy sees %q in the other's memory", got)
	}
	if got, err := b.guest.Try(Call{Do: "read", Path: "/x"}); err == nil {
		t.Errorf("one copy sees %q in the other's file", got)
	}
	stop(t, a)
	stop(t, b)
}
