package guestd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

const (
	// Of the limit this is kept back, one part in so many of it but at least
	// so much, for what is allocated between two looks.
	marginShare = 20
	marginLeast = 32 << 20

	// The limit also holds what gVisor itself needs, which it does not show in
	// here: 1.2 to 1.4 MB each, measured with 200 forks of an interpreter that sleep,
	// which is what a fork bomb in a cell makes. Small programs hide less than half.
	hiddenBase    = 64 << 20
	hiddenPerTask = 1350 << 10

	sampleFastest = 2 * time.Millisecond
	sampleBusy    = 100 * time.Millisecond
	sampleIdle    = 2 * time.Second
	fillRate      = 4 << 30 // bytes a second that a program may take at most, we suppose

	// contextRoom is what must be free for another context: a fork of the warm
	// interpreter soon has 50 MB of its own, and the spare in its place as much.
	contextRoom = 96 << 20

	freePatience = time.Second // without any of a victim's memory coming free: on a machine that stands still for a moment, none does
	growth       = 24 << 20    // by which use may rise while a victim's memory is being freed

	roomPatience = 15 * time.Second // however much comes free, or is promised to others
	roomLook     = 20 * time.Millisecond
)

// victim is something that can be ended to free memory.
type victim struct {
	name string
	pid  int // leader of its session
	kill func()
}

// watchdog ends the largest context or process when the sandbox is about to
// run out of memory, so that the others keep their state. Without it the
// sandbox's own limit would end them all.
type watchdog struct {
	log     *slog.Logger
	memory  func() (used, total int64, err error)
	victims func() []victim
	busy    func() bool
	tasks   func() int   // see Config.Tasks
	limit   atomic.Int64 // 0: none
	hits    atomic.Int64 // how often the largest was ended, or somebody refused
	left    int64        // at the last look
	freeing ebb          // of the last victim's memory
	ceiling int64        // of use until that is over
	woken   chan struct{}

	mu       sync.Mutex
	promised int64 // to what is being made, and may not be in use yet
}

// ebb watches memory come free: that of a victim does in a third of a second,
// on a busy machine in several. It is over when none has for a while.
type ebb struct {
	least int64
	end   time.Time
}

func newEbb() ebb { return ebb{least: math.MaxInt64} }

// goesOn takes what is in use now.
func (e *ebb) goesOn(used int64) bool {
	now := time.Now()
	if used < e.least-1<<20 {
		e.least, e.end = used, now.Add(freePatience)
	}
	return now.Before(e.end)
}

func newWatchdog(log *slog.Logger, memory func() (int64, int64, error), tasks func() int, victims func() []victim, busy func() bool) *watchdog {
	return &watchdog{log: log, memory: memory, victims: victims, busy: busy, tasks: tasks, woken: make(chan struct{}, 1)}
}

func (w *watchdog) setLimit(bytes int64) {
	w.limit.Store(bytes)
	w.wake()
}

// wake tells that something has started to run.
func (w *watchdog) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// run looks again and again. When something has started it does not look at
// once, which would cost every cell a look: what was left at the last one is
// not used up sooner than it can be filled.
func (w *watchdog) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.woken:
			if wait := w.pause(); due.IsZero() || time.Until(due) > wait {
				due = time.Now().Add(wait)
				timer.Reset(wait)
			}
		case <-timer.C:
			due = time.Time{}
			if wait := w.check(); wait > 0 {
				due = time.Now().Add(wait)
				timer.Reset(wait)
			}
		}
	}
}

// pause is how long it may take until what is left could be used up.
func (w *watchdog) pause() time.Duration {
	return min(max(time.Duration(w.left)*time.Second/fillRate, sampleFastest), sampleBusy)
}

// check looks once, acts if it must, and says when to look again: the less
// memory is left, the sooner. 0 means when woken.
func (w *watchdog) check() time.Duration {
	limit := w.limit.Load()
	if limit == 0 {
		return 0
	}
	victims := w.victims()
	switch {
	case len(victims) == 0 && w.busy():
		return w.pause() // what runs its cell is being started
	case len(victims) == 0:
		return 0
	}
	used, _, err := w.memory()
	if err != nil {
		w.log.Error("the memory watchdog is blind", "error", err)
		return sampleIdle
	}
	most := w.most(limit)
	w.left = most - used
	freeing := w.freeing.goesOn(used)
	switch {
	case w.left > growth:
		w.freeing = ebb{} // there is room again: who takes it now is another matter
	case w.left <= 0 && freeing && used <= w.ceiling:
		return sampleFastest
	case w.left <= 0:
		w.act(victims, used, most)
		return sampleFastest
	}
	if !w.busy() {
		return sampleIdle
	}
	return w.pause()
}

// most is what programs may use of a limit.
func (w *watchdog) most(limit int64) int64 {
	return limit - max(limit/marginShare, marginLeast) - hiddenBase - int64(w.tasks())*hiddenPerTask
}

// room promises so much memory to what is about to be made, until done is
// called: then it is in use and can be seen. Who comes while others have such a
// promise waits for what they leave. Idle contexts are all alike, so that the
// watchdog would only end one for the next. What is the first of its kind gets
// the promise in any case.
func (w *watchdog) room(ctx context.Context, bytes int64, first func() bool) (done func(), ok bool) {
	limit := w.limit.Load()
	if limit == 0 {
		return func() {}, true
	}
	free, end := newEbb(), time.Now().Add(roomPatience)
	for {
		ok, wait := w.promise(bytes, limit, &free, first)
		if ok {
			return sync.OnceFunc(func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.promised -= bytes
			}), true
		}
		if !wait || !time.Now().Before(end) {
			w.hits.Add(1)
			return nil, false
		}
		select {
		case <-time.After(roomLook):
		case <-ctx.Done():
			return nil, false
		}
	}
}

// promise gives room if there is any now, and says whether there may be soon.
func (w *watchdog) promise(bytes, limit int64, free *ebb, first func() bool) (ok, wait bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	used, _, err := w.memory()
	most := w.most(limit)
	if err != nil || used+w.promised+bytes <= most || w.promised == 0 && first() {
		w.promised += bytes
		return true, false
	}
	ebbs := free.goesOn(used)
	return false, bytes <= most && (ebbs || w.promised > 0)
}

// await looks until what is in use is as it should be, for as long as memory
// comes free, and says whether it is.
func (w *watchdog) await(free *ebb, done func(used int64) bool) bool {
	for {
		used, _, err := w.memory()
		if err != nil || done(used) {
			return true
		}
		if !free.goesOn(used) {
			return false
		}
		time.Sleep(sampleFastest)
	}
}

// act ends the largest. All others are held still until its memory is free:
// finding out who is the largest takes a moment when there are many, and so
// does freeing memory, and meanwhile nobody must take what is left.
func (w *watchdog) act(victims []victim, used, most int64) {
	hold := func(v victim, sig syscall.Signal) {
		if v.pid > 1 {
			_ = unix.Kill(-v.pid, sig)
		}
	}
	for _, v := range victims {
		hold(v, unix.SIGSTOP)
	}
	sizes := sessionSizes()
	largest := victims[0]
	for _, v := range victims[1:] {
		if sizes[v.pid] > sizes[largest.pid] {
			largest = v
		}
	}
	w.log.Warn("out of memory: ending the largest", "victim", largest.name, "bytes", sizes[largest.pid])
	largest.kill()
	w.hits.Add(1)
	w.freeing, w.ceiling = newEbb(), used+growth
	w.await(&w.freeing, func(now int64) bool {
		return now < most || now > w.ceiling // there is room, or somebody else is taking it
	})
	for _, v := range victims {
		if v.pid != largest.pid {
			hold(v, unix.SIGCONT)
		}
	}
}

// sessionSizes sums up the memory in use by session, where a process that has
// left for a session of its own counts for that of its parents, too.
func sessionSizes() map[int]int64 {
	all, err := child.List()
	if err != nil {
		return nil
	}
	byPID := map[int]child.Info{}
	for _, p := range all {
		byPID[p.PID] = p
	}
	sizes := map[int]int64{}
	for _, p := range all {
		counted := map[int]bool{}
		for q, depth := p, 0; q.PID > 1 && depth < 64; q, depth = byPID[q.Parent], depth+1 {
			if !counted[q.Session] {
				counted[q.Session] = true
				sizes[q.Session] += p.Memory
			}
		}
	}
	return sizes
}

// tasks counts the processes and threads of the sandbox.
func tasks() int {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int(info.Procs)
}

// victims are the contexts and the processes started through the API.
func (a *Agent) victims() []victim {
	var list []victim
	for _, v := range a.kernels.Victims() {
		list = append(list, victim{v.Name, v.PID, v.Kill})
	}
	return append(list, a.processes.victims()...)
}

func (ps *processes) victims() []victim {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var list []victim
	for _, p := range ps.all {
		if p.snapshot().Running {
			list = append(list, victim{fmt.Sprintf("process %d", p.child.PID), p.child.PID, func() { p.kill(api.ReasonOOM) }})
		}
	}
	return list
}

var meminfoFile = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/meminfo") })

// meminfo reads what the sandbox's kernel says of its memory.
func meminfo() (used, total int64, err error) {
	f, err := meminfoFile()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 4<<10)
	n, err := f.ReadAt(buf, 0)
	if n == 0 {
		return 0, 0, fmt.Errorf("read meminfo: %w", err)
	}
	return parseMeminfo(buf[:n])
}

func parseMeminfo(b []byte) (used, total int64, err error) {
	var free int64 = -1
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, err := strconv.ParseInt(string(f[1]), 10, 64)
		if err != nil {
			continue
		}
		switch string(f[0]) {
		case "MemTotal:":
			total = kb << 10
		case "MemAvailable:":
			free = kb << 10
		}
	}
	if total == 0 || free < 0 {
		return 0, 0, errors.New("meminfo lacks MemTotal or MemAvailable")
	}
	return total - free, total, nil
}
