package kernels

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

// The states of a context.
const (
	stateStarting = "starting"
	stateIdle     = "idle"
	stateBusy     = "busy"
	stateDead     = "dead"
)

const (
	startAttempts = 3
	betweenStarts = 200 * time.Millisecond
	maxLate       = 1 << 20 // bytes of the file with output between cells
)

// Context is a code context: one interpreter that keeps its state, and the
// cells that wait for it.
type Context struct {
	m    *Manager
	envs map[string]string

	mu      sync.Mutex
	info    api.Context
	k       *interp // nil while there is none
	queue   []*Execution
	running *Execution
	execs   map[string]*Execution
	reseed  bool   // when it is idle
	lost    string // what to tell the next cell about the state
	told    bool   // the cell that ran has told of the interpreter's end
	wanted  bool   // somebody waits for an interpreter, though no cell does
	closed  bool
	held    bool          // a fork is made: no cell may start
	changed chan struct{} // closed and replaced at every change
	late    int64         // bytes in the file with output between cells
}

func newContext(m *Manager, req api.CreateContextRequest) *Context {
	return &Context{
		m:    m,
		envs: req.Envs,
		info: api.Context{
			ID: req.ID, Language: "python", State: stateStarting, CWD: req.CWD, CreatedAt: time.Now().UTC(), Incarnation: 1,
		},
		execs:   map[string]*Execution{},
		changed: make(chan struct{}),
	}
}

// Info describes the context.
func (c *Context) Info() api.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	info := c.info
	info.Queued = len(c.queue)
	if c.running != nil {
		info.RunningID = c.running.ID
		info.State = stateBusy
	}
	return info
}

// change wakes all that wait for a change. The lock is held.
func (c *Context) change() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// start gives the context an interpreter, whose random state is new.
func (c *Context) start(ctx context.Context) error {
	c.mu.Lock()
	c.reseed = false
	c.mu.Unlock()
	k, err := c.m.take(ctx, initFrame{Op: "init", ContextID: c.info.ID, CWD: c.info.CWD, Envs: c.envs})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		go k.kill(causeClose)
		return fault.New(api.CodeConflict, "the context %s was closed", c.info.ID)
	}
	c.k, c.wanted = k, false
	c.info.State = stateIdle
	c.reseedNow() // if somebody asked meanwhile
	c.change()
	return nil
}

// loop runs the cells of the context, one after the other, and replaces its
// interpreter whenever that dies.
func (c *Context) loop() {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return
		}
		k, changed := c.k, c.changed
		if k != nil && k.alive() && len(c.queue) > 0 && !c.held {
			ex := c.queue[0]
			c.queue = c.queue[1:]
			c.running = ex
			c.info.State = stateBusy
			c.mu.Unlock()
			c.run(k, ex)
			continue
		}
		rests := c.info.State != stateStarting && !c.needed()
		c.mu.Unlock()
		switch {
		case k == nil && rests:
			<-changed
		case k == nil || !k.alive():
			c.replace(k)
		default:
			select {
			case <-changed:
			case <-k.gone:
			case <-k.exit.done:
			}
		}
	}
}

// run runs one cell to its end.
func (c *Context) run(k *interp, ex *Execution) {
	ex.late, ex.stopped = c.keepLate, func() { c.m.interrupted(k) }
	c.mu.Lock()
	note := ""
	if c.lost != "" {
		note = "[pandastack] " + c.lost + "\n"
	}
	c.lost = ""
	c.mu.Unlock()
	ex.begin(k.nextCount(), note)
	k.attach(ex)
	if ex.ask != nil {
		k.post(askFrame{Op: "ask", ID: ex.ID, Ask: *ex.ask}, ex.ask.Size())
	} else {
		k.post(runFrame{Op: "run", ID: ex.ID, Code: ex.code, Notebook: ex.note}, len(ex.code))
	}
	o := ex.supervise(k, c.m.cfg.Clock)
	if !ex.answered() || !k.alive() {
		k.waitLeft()
		o.fate = k.fate()
	}
	c.mu.Lock()
	c.told = o.fate != ""
	o.restart = !c.closed
	if n := ex.executionCount(); n > 0 {
		c.info.ExecutionCount = n
	}
	c.mu.Unlock()
	ex.finish(o)

	c.mu.Lock()
	c.running = nil
	c.info.State = stateIdle
	if o.fate != "" {
		c.info.State = stateStarting
	} else {
		c.reseedNow()
	}
	c.change()
	c.mu.Unlock()
	c.m.finished(ex, c)
}

func (ex *Execution) answered() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.end != nil
}

func (ex *Execution) executionCount() int {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.count
}

// needed reports whether a cell, or somebody else, waits for an interpreter.
// The lock is held.
func (c *Context) needed() bool { return len(c.queue) > 0 || c.wanted }

// replace puts a new interpreter in the place of one that died. One that was
// ended for its memory is replaced when it is needed: before that a new one
// would only take what has come free.
func (c *Context) replace(old *interp) {
	lost := ""
	if old != nil {
		old.waitLeft()
		lost = lossWords(old)
	}
	c.mu.Lock()
	c.k = nil
	c.info.State = stateStarting
	if old != nil {
		c.info.Incarnation++
		c.info.ExecutionCount = 0
		if !c.told && len(c.execs) > 0 {
			c.lost = lost
		}
		c.told = false
		if old.why() == causeOOM && !c.needed() {
			c.info.State = stateIdle
			c.change()
			c.mu.Unlock()
			return
		}
	}
	c.mu.Unlock()
	var err error
	for attempt := range startAttempts {
		if attempt > 0 && !c.rest(betweenStarts) {
			return
		}
		if err = c.start(context.Background()); err == nil || c.isClosed() {
			return
		}
		c.m.cfg.Log.Warn("a context gets no interpreter", "context", c.info.ID, "error", err)
	}
	c.mu.Lock()
	c.info.State, c.wanted = stateDead, false
	queue := c.queue
	c.queue = nil
	c.change()
	c.mu.Unlock()
	for _, ex := range queue {
		ex.fail(fmt.Sprintf("The context has no interpreter: %v. The cell did not run.", err))
		c.m.finished(ex, c)
	}
}

// rest waits, and reports false as soon as the context is closed.
func (c *Context) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		c.mu.Lock()
		closed, changed := c.closed, c.changed
		c.mu.Unlock()
		if closed {
			return false
		}
		select {
		case <-changed:
		case <-timer.C:
			return true
		}
	}
}

// fail ends a cell that could not be run.
func (ex *Execution) fail(words string) {
	ex.mu.Lock()
	ex.settle()
	ex.mu.Unlock()
	ex.Log.End(func(eventlog.Outcome) api.Event {
		return api.Event{Type: api.EventEnd, Execution: &api.Execution{
			ExecutionID: ex.ID, End: api.EndKernelDied, Exit: 1, ExitCode: 1, Error: &words, ErrorName: "KernelDied",
		}}
	})
}

// lossWords tells the next cell that an interpreter died between cells.
func lossWords(k *interp) string {
	const words = "the interpreter of this context died and was replaced, earlier variables and imports are gone: "
	switch k.why() {
	case causeRestart, causeClose:
		return "" // somebody asked for it
	case causeOOM:
		return words + "it was ended because the sandbox had no memory left"
	}
	return words + k.fate()
}

func (c *Context) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// enqueue adds a cell. The manager has made sure that its id is new.
func (c *Context) enqueue(ex *Execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fault.New(api.CodeNotFound, "the context %s was closed", c.info.ID)
	}
	if len(c.queue) >= guestapi.MaxQueue {
		return fault.New(api.CodeRateLimited, "%d executions wait in the context %s already, the most there may be", len(c.queue), c.info.ID).
			WithHint("wait for them, or run this one in another context")
	}
	c.queue = append(c.queue, ex)
	c.execs[ex.ID] = ex
	c.change()
	return nil
}

// Interrupt interrupts the running cell, if any.
func (c *Context) Interrupt() {
	c.mu.Lock()
	ex, k := c.running, c.k
	c.mu.Unlock()
	c.interrupt(ex, k)
}

// interrupt is for a cell that ran on an interpreter; the next one there is not meant.
func (c *Context) interrupt(ex *Execution, k *interp) {
	if ex == nil || k == nil {
		return
	}
	ex.askInterrupt()
	k.announceInterrupt(ex.ID)
	c.mu.Lock()
	runs := c.running == ex
	if runs {
		k.signal(syscall.SIGINT)
	}
	c.mu.Unlock()
	if runs {
		c.m.interrupted(k)
	}
}

// InterruptExecution interrupts one cell, also one that waits.
func (c *Context) InterruptExecution(ex *Execution) {
	c.mu.Lock()
	if c.running == ex {
		k := c.k
		c.mu.Unlock()
		c.interrupt(ex, k)
		return
	}
	i := slices.Index(c.queue, ex)
	if i < 0 {
		c.mu.Unlock()
		return // it has ended
	}
	c.queue = slices.Delete(c.queue, i, i+1)
	c.change()
	c.mu.Unlock()
	ex.cancel("The cell was interrupted before it started.", true)
	c.m.finished(ex, c)
}

// Input answers the input() of a running cell.
func (c *Context) Input(ex *Execution, value string) error {
	c.mu.Lock()
	runs, k := c.running == ex, c.k
	c.mu.Unlock()
	if !runs || k == nil {
		return fault.New(api.CodeConflict, "the execution %s does not run, so nobody waits for input", ex.ID)
	}
	k.post(inputFrame{Op: "input", ID: ex.ID, Value: value}, len(value))
	return nil
}

// Restart gives the context a new interpreter and drops the cells that wait.
func (c *Context) Restart(ctx context.Context) error {
	c.mu.Lock()
	before := c.info.Incarnation
	queue := c.queue
	c.queue = nil
	k := c.k
	c.wanted = true
	if k == nil {
		before-- // there is none to lose
		c.info.State = stateStarting
		c.lost = ""
	}
	c.change()
	c.mu.Unlock()
	c.drop(queue, "The context was restarted before the cell started.")
	if k != nil {
		k.kill(causeRestart)
	}
	for {
		c.mu.Lock()
		state, now, changed, closed := c.info.State, c.info.Incarnation, c.changed, c.closed
		c.mu.Unlock()
		switch {
		case closed:
			return fault.New(api.CodeNotFound, "the context %s was closed", c.info.ID)
		case now > before && state == stateIdle, now > before && state == stateBusy:
			return nil
		case state == stateDead:
			return fault.New(api.CodeInternal, "the context %s gets no new interpreter", c.info.ID)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Context) drop(queue []*Execution, words string) {
	for _, ex := range queue {
		ex.cancel(words, false)
		c.m.finished(ex, c)
	}
}

// close ends the context for good.
func (c *Context) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	queue, k := c.queue, c.k
	c.queue = nil
	c.change()
	c.mu.Unlock()
	c.drop(queue, "The context was closed before the cell started.")
	if k != nil {
		k.kill(causeClose)
	}
}

// wantReseed makes the random state new as soon as no cell runs.
func (c *Context) wantReseed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reseed = true
	if c.running == nil {
		c.reseedNow()
	}
}

// reseedNow sends what wantReseed has asked for. The lock is held, so that no
// cell starts meanwhile.
func (c *Context) reseedNow() {
	if c.reseed && c.k != nil {
		c.reseed = false
		_ = c.k.send(reseedFrame{Op: "reseed", Entropy: c.m.entropy()})
	}
}

// keepLate keeps what threads and children write between cells in a file, for
// it is no cell's output.
func (c *Context) keepLate(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late >= maxLate {
		return
	}
	path := filepath.Join(c.m.cfg.OutputDir, "context-"+c.info.ID+".late.log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	n, _ := f.Write(b)
	c.late += int64(max(n, 1))
}
