package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
)

// The ends of a sandbox, for driver.Exit.
const (
	exited  = "exited"
	stopped = "stopped"
	oom     = "oom"
	crashed = "crashed"
)

// aLongTimeAgo as a deadline ends reads that wait.
var aLongTimeAgo = time.Unix(1, 0)

// Instance is a running sandbox.
type Instance struct {
	d     *Driver
	box   *box
	state sync.Mutex // held while it is paused, resumed or saved

	stopping atomic.Bool
	done     chan struct{} // closed when exit is set
	exit     driver.Exit
}

var _ driver.Instance = (*Instance)(nil)

// pair are handles on the processes of one sandbox.
type pair struct {
	d             *Driver
	sentry, gofer *watch
}

// open takes handles on a sandbox's processes.
func (d *Driver) open(b *box) (*pair, error) {
	sentry, err := b.Sentry.open()
	if err != nil {
		return nil, d.gone(b, "sentry", err)
	}
	gofer, err := b.Gofer.open()
	if err != nil {
		sentry.close()
		return nil, d.gone(b, "gofer", err)
	}
	d.claim(sentry.PID)
	d.claim(gofer.PID)
	return &pair{d, sentry, gofer}, nil
}

func (p *pair) close() {
	for _, w := range []*watch{p.sentry, p.gofer} {
		p.d.disown(w.PID)
		w.close()
	}
}

// watch makes the handle of a sandbox that was started and watches over it,
// even if it has ended by now. The caller holds the lock of the id.
func (d *Driver) watch(b *box, p *pair) *Instance {
	i := &Instance{d: d, box: b, done: make(chan struct{})}
	d.mu.Lock()
	d.live[b.ID] = i
	d.mu.Unlock()
	go i.follow(p, d.waitInit(b.ID))
	return i
}

// gone is the error for a sandbox of which a process is missing.
func (d *Driver) gone(b *box, which string, err error) error {
	if !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if d.cgroups.oomKills(b.ID) > 0 {
		return fault.Wrap(err, "not_found", "sandbox %s ended: it ran out of memory", b.ID)
	}
	return fault.Wrap(fmt.Errorf("%w; %s", err, d.lastWords(b)), "not_found", "sandbox %s ended: its %s is gone", b.ID, which)
}

// follow waits for the end of the sandbox and says how it came.
func (i *Instance) follow(p *pair, told <-chan int) {
	defer p.close()
	lost := make(chan bool, 1) // whether the gofer went first, which in an orderly end is the last to go
	go func() {
		err := p.gofer.wait()
		first := err == nil && !p.sentry.over()
		if first {
			p.sentry.kill()
		}
		lost <- first
	}()
	err := p.sentry.wait()
	exit := driver.Exit{Code: -1, Reason: crashed, At: time.Now()}
	if err != nil {
		i.d.log.Error("cannot watch a sandbox", "sandbox", i.box.ID, "error", err)
	}
	code, ok := -1, false
	select {
	case code, ok = <-told:
	case <-time.After(time.Second): // it ended, so its socket does too
	}
	if !ok { // it was over before the question, or before the answer was out
		code, ok = i.d.finished(i.box)
	}
	p.gofer.kill()
	switch first := <-lost; {
	case i.stopping.Load():
		exit.Code, exit.Reason = code, stopped
	case i.d.cgroups.oomKills(i.box.ID) > 0:
		exit.Code, exit.Reason = 137, oom
	case first:
		exit.Detail = "the sandbox's file server was killed from outside\n" + i.d.lastWords(i.box)
	case ok:
		exit.Code, exit.Reason = code, exited
	default:
		exit.Detail = i.d.lastWords(i.box)
	}
	i.exit = exit
	close(i.done)
}

// end is what the sentry logs when the first program has ended.
var end = regexp.MustCompile(`application exiting with (exit status|killed by signal) (\d+)`)

// finished says whether the sentry ended because the first program did, and
// with which code, by its log.
func (d *Driver) finished(b *box) (code int, ok bool) {
	m := end.FindStringSubmatch(tail(b.log("boot.log"), logTail))
	if m == nil {
		return -1, false
	}
	code, err := strconv.Atoi(m[2])
	if m[1] != "exit status" {
		code += 128
	}
	return code, err == nil
}

// lastWords are what the sentry said at its end: the head of a panic, which
// names the cause, else the end of its log.
func (d *Driver) lastWords(b *box) string {
	if s := head(b.log("panic.log"), logTail); s != "" {
		return s
	}
	if s := tail(b.log("boot.log"), logTail); s != "" {
		return s
	}
	return tail(b.log("runsc.log"), logTail)
}

// ID implements driver.Instance.
func (i *Instance) ID() string { return i.box.ID }

// Wait implements driver.Instance. The exit code is known when this process
// was watching at the end, and the sentry lived to tell.
func (i *Instance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-i.done:
		return i.exit, nil
	default:
	}
	select {
	case <-i.done:
		return i.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, context.Cause(ctx)
	}
}

// Stop implements driver.Instance. Nothing in the sandbox is told: what must
// outlive it was to be saved before.
func (i *Instance) Stop(ctx context.Context) error {
	unlock := i.d.lock(i.box.ID)
	defer unlock()
	i.d.mu.Lock()
	current := i.d.live[i.box.ID] == i
	i.d.mu.Unlock()
	if !current { // it was freed before, and the id may be another's by now
		return nil
	}
	select {
	case <-i.done:
	default:
		i.stopping.Store(true)
	}
	return i.d.clear(ctx, i.box.ID)
}

// owned is the handle behind a driver.Instance, if it is one of this driver and runs.
func (d *Driver) owned(inst driver.Instance) (*Instance, error) {
	i, ok := inst.(*Instance)
	if !ok || i.d != d {
		return nil, fault.New("invalid", "instance %s is not one of this driver", inst.ID())
	}
	select {
	case <-i.done:
		return nil, fault.New("not_found", "sandbox %s has ended", i.box.ID)
	default:
		return i, nil
	}
}

// Pause implements driver.Pauser.
func (d *Driver) Pause(ctx context.Context, inst driver.Instance) error {
	return d.pause(ctx, inst, true)
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, inst driver.Instance) error {
	return d.pause(ctx, inst, false)
}

func (d *Driver) pause(ctx context.Context, inst driver.Instance, still bool) error {
	i, err := d.owned(inst)
	if err != nil {
		return err
	}
	i.state.Lock()
	defer i.state.Unlock()
	_, err = d.hold(ctx, i.box, still)
	switch {
	case err == nil:
		return nil
	case i.ends(ctx):
		return fault.Wrap(err, "not_found", "sandbox %s has ended", i.box.ID)
	}
	return fmt.Errorf("hold sandbox %s, or let it go on: %w", i.box.ID, err)
}

// ends waits for the end of a sandbox that does not answer: one that was just
// killed has its socket until its memory is free.
func (i *Instance) ends(ctx context.Context) bool {
	select {
	case <-i.done:
		return true
	case <-time.After(endTime):
	case <-ctx.Done():
	}
	return false
}
