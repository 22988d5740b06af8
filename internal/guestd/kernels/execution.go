package kernels

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/deadline"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

// The ladder that ends a cell whose time is up.
const (
	afterInterrupt = 2 * time.Second
	afterTerminate = time.Second
	afterKill      = 5 * time.Second
)

// What ended a cell that had to be stopped, as api.Execution.Step has it.
const (
	stepInterrupt = "interrupt"
	stepTerminate = "terminate"
	stepKill      = "kill"
)

// Execution is one cell: waiting, running or ended.
type Execution struct {
	ID  string
	Log *eventlog.Log

	code    string
	note    *guestapi.Notebook // a notebook runs it
	ask     *guestapi.Ask      // instead of code
	digest  [sha256.Size]byte
	timeout time.Duration
	late    func(b []byte) // gets what is written before its beginning and after its end
	stopped func()         // ends what it has called outside of the sandbox, when it was interrupted

	mu          sync.Mutex
	count       int
	begun       bool
	end         *frame // the interpreter's last word on it
	over        bool
	interrupted bool // somebody asked for it
	watch       *deadline.Watch
	settled     chan struct{} // closed when the interpreter has ended the cell, or is gone
}

var _ sink = (*Execution)(nil)

func (ex *Execution) output(stream int, b []byte) {
	ex.mu.Lock()
	runs := ex.begun && !ex.over
	ex.mu.Unlock()
	if !runs { // a thread or a child of an earlier cell wrote it
		ex.late(b)
		return
	}
	ex.Log.Output(stream, b)
}

func (ex *Execution) frame(f frame) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if f.ID != ex.ID || ex.over {
		return // of a cell that has ended, or made up
	}
	switch f.Op {
	case "result":
		ex.Log.Flush()
		data, meta := bounded(f.Data, f.Metadata)
		ex.Log.Add(api.Event{Type: api.EventResult, Data: data, Metadata: meta, IsLastExpression: f.Last}, f.size)
	case "input_request":
		ex.Log.Flush()
		ex.Log.Add(api.Event{Type: api.EventInputRequest, Prompt: f.Prompt, Password: f.Password}, f.size)
	case "message":
		ex.Log.Flush()
		if m, ok := message(f); ok && (ex.note != nil || ex.ask != nil) {
			ex.Log.Add(api.Event{Type: api.EventMessage, Message: m}, f.size)
		}
	case "end":
		ex.end = &f
		if f.Count > 0 {
			ex.count = f.Count
		}
		ex.settle()
	}
}

// ranShort reports whether it ended with a MemoryError.
func (ex *Execution) ranShort() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.end != nil && ex.end.ErrorName == "MemoryError"
}

// begin tells that the cell starts, as number count of its context. The
// interpreter that it is about to be sent to is idle.
func (ex *Execution) begin(count int, note string) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.ask != nil {
		count = 0 // it is no cell
	}
	ex.begun, ex.count = true, count
	ex.Log.Add(api.Event{Type: api.EventStarted, ExecutionID: ex.ID, ExecutionCount: count}, 0)
	if note != "" {
		ex.Log.Output(eventlog.Stderr, []byte(note))
	}
}

func (ex *Execution) dead() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.settle()
}

// settle closes settled once. The lock is held.
func (ex *Execution) settle() {
	if !ex.over {
		ex.over = true
		close(ex.settled)
	}
}

func (ex *Execution) askInterrupt() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.interrupted = true
}

// outcome is what is known of a cell when it has ended.
type outcome struct {
	spent   time.Duration
	late    bool   // its time was up
	step    string // what we did about that
	cause   string // why we killed the interpreter, if we did
	fate    string // how the interpreter ended, "" if it lives
	restart bool   // a new interpreter takes its place
}

// supervise waits for the end of the running cell and sees to it that it comes.
func (ex *Execution) supervise(k *interp, clock deadline.Clock) outcome {
	watch := deadline.Start(clock)
	ex.mu.Lock()
	ex.watch = watch
	ex.mu.Unlock()
	var o outcome
	if watch.Wait(ex.timeout, ex.settled) {
		o.late = true
		limit := ex.timeout
		for _, rung := range []struct {
			step string
			act  func()
			wait time.Duration
		}{
			{stepInterrupt, func() { k.interrupt(ex.ID); ex.stopped() }, afterInterrupt},
			{stepTerminate, func() { k.signal(syscall.SIGTERM) }, afterTerminate},
			{stepKill, func() { k.kill("") }, afterKill},
		} {
			o.step = rung.step
			rung.act()
			limit += rung.wait
			if !watch.Wait(limit, ex.settled) {
				break
			}
		}
	}
	o.spent = watch.Spent()
	o.cause = k.why()
	return o
}

// finish writes the last event.
func (ex *Execution) finish(o outcome) {
	ex.mu.Lock()
	e, count, interrupted := ex.end, ex.count, ex.interrupted
	ex.settle()
	ex.mu.Unlock()

	x := api.Execution{ExecutionID: ex.ID, ExecutionCount: count, DurationMS: milliseconds(o.spent), Exit: 1, ExitCode: 1, Step: o.step}
	answered := e != nil
	x.StateSurvived = answered && o.fate == ""
	switch {
	case o.late:
		x.End = api.EndTimeout
	case answered && e.Status == "ok":
		x.End, x.Exit, x.ExitCode = api.EndOK, 0, 0
	case answered && interrupted && e.ErrorName == "KeyboardInterrupt":
		x.End = api.EndInterrupted
	case answered:
		x.End = api.EndError
	case o.cause == causeOOM:
		x.End = api.EndOOM
	case o.cause != "":
		x.End = api.EndInterrupted
	default:
		x.End = api.EndKernelDied
	}
	ex.Log.End(func(kept eventlog.Outcome) api.Event {
		x.StdoutDropped, x.StderrDropped = kept.Dropped[eventlog.Stdout], kept.Dropped[eventlog.Stderr]
		x.OutputPath = kept.Path
		x.Truncated = x.StdoutDropped+x.StderrDropped > 0 || kept.Refused > 0
		ex.explain(&x, e, o)
		ev := api.Event{Type: api.EventEnd, Execution: &x}
		if e != nil && (ex.note != nil || ex.ask != nil) && isObject(e.Reply) {
			ev.Reply = e.Reply
		}
		return ev
	})
}

// explain fills in the error: the traceback of a cell that raised, and words
// that say what is left for every other end.
func (ex *Execution) explain(x *api.Execution, e *frame, o outcome) {
	var words, trace string
	if e != nil {
		x.ErrorName, x.ErrorValue, trace = e.ErrorName, e.ErrorValue, e.Traceback
	}
	lost := "The interpreter is a new one: variables and imports are gone, files are still there."
	if !o.restart {
		lost = "Its variables are gone, files are still there."
	}
	switch x.End {
	case api.EndOK:
		return
	case api.EndError:
		x.Error = &trace
		return
	case api.EndInterrupted:
		words = "The cell was interrupted. Variables are still there."
		if !x.StateSurvived {
			words = interruptWords[o.cause] + " " + lost
		}
		x.ErrorName, x.ErrorValue = "KeyboardInterrupt", ""
	case api.EndTimeout:
		words = fmt.Sprintf("The cell was stopped: it ran longer than its %v. ", ex.timeout)
		if x.StateSurvived {
			words += "It was interrupted; variables are still there."
		} else {
			words += "It did not react to an interrupt, so the interpreter was ended. " + lost
		}
		x.ErrorName, x.ErrorValue = "TimeoutError", fmt.Sprintf("the cell ran longer than %v", ex.timeout)
	case api.EndOOM:
		words = "The cell was ended: the sandbox had no memory left, and this context held the most. " + lost
		x.ErrorName, x.ErrorValue = "OutOfMemory", "the sandbox had no memory left"
		trace = ""
	case api.EndKernelDied:
		words = "The interpreter died while the cell ran: " + o.fate + ". " + lost
		x.ErrorName, x.ErrorValue = "KernelDied", o.fate
		trace = ""
	}
	if x.OutputPath != "" {
		words += " All of its output is in " + x.OutputPath + "."
	}
	if trace != "" {
		words += "\n\n" + trace
	}
	x.Error = &words
}

// Why we kill interpreters.
const (
	causeOOM     = "oom"
	causeRestart = "restart"
	causeClose   = "close"
)

var interruptWords = map[string]string{
	causeRestart: "The context was restarted while the cell ran.",
	causeClose:   "The context was closed while the cell ran.",
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// cancel ends a cell that has not started.
func (ex *Execution) cancel(words string, survived bool) {
	ex.mu.Lock()
	ex.settle()
	ex.mu.Unlock()
	ex.Log.End(func(eventlog.Outcome) api.Event {
		return api.Event{Type: api.EventEnd, Execution: &api.Execution{
			ExecutionID: ex.ID, End: api.EndInterrupted, StateSurvived: survived, Exit: 1, ExitCode: 1,
			Error: &words, ErrorName: "KeyboardInterrupt",
		}}
	})
}
