package fake

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// kernel is a context with a toy interpreter. A cell has one statement a line:
//
//	x = 1 + y           integers, 'strings', names, sums
//	x                   on the last line: the result
//	print(x) warn(x)    to stdout, to stderr
//	png()               displays a picture
//	spam(n)             n bytes to stdout; gap(n) pretends that n were dropped
//	append('/f', 'x')   to a file
//	wait('name')        until the test says Guest.Signal("name")
//	sleep(seconds)      a while
//	stubborn('name')    like wait, and deaf to interrupts
//	raise('Name', 'v')  an exception
//	die() oom()         the end of the interpreter
//	crash('oom')        the end of the sandbox, with that reason
type kernel struct {
	guest   *Guest
	id      string
	cwd     string
	created time.Time
	jobs    chan *execution

	mu          sync.Mutex
	vars        map[string]string // a value as its repr
	count       int
	incarnation int
	forkedFrom  string
	running     *execution
	queued      int
	executions  map[string]*execution
	closed      bool
}

type execution struct {
	id, code string
	timeout  time.Duration
	log      *eventLog
	stop     context.CancelCauseFunc
	ctx      context.Context
}

var (
	errInterrupted = errors.New("interrupted")
	errTimeout     = errors.New("timeout")
	errDied        = errors.New("died")
	errOOM         = errors.New("oom")
)

func newKernel(g *Guest, req api.CreateContextRequest) *kernel {
	k := &kernel{guest: g, id: req.ID, cwd: req.CWD, created: time.Now(), jobs: make(chan *execution, guestapi.MaxQueue),
		vars: map[string]string{}, executions: map[string]*execution{}, incarnation: 1}
	g.inst.spawn(k.work)
	return k
}

func (k *kernel) variables() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]string{}
	for n, v := range k.vars {
		out[n] = v
	}
	return out
}

func (k *kernel) info() api.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := api.Context{ID: k.id, Language: "python", State: "idle", CWD: k.cwd, CreatedAt: k.created, ExecutionCount: k.count, Queued: k.queued, Incarnation: k.incarnation, ForkedFrom: k.forkedFrom}
	if k.running != nil {
		c.State, c.RunningID = "busy", k.running.id
	}
	return c
}

func (k *kernel) find(eid string) *execution {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.executions[eid]
}

func (k *kernel) submit(req guestapi.RunRequest) (*execution, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.executions[req.ExecutionID]; e != nil {
		if e.code != req.Code {
			return nil, fault.New(api.CodeConflict, "execution %s has other code", e.id)
		}
		return e, nil
	}
	if k.closed {
		return nil, fault.New(api.CodeNotFound, "context %s is closed", k.id)
	}
	ctx, stop := context.WithCancelCause(k.guest.inst.life)
	e := &execution{id: req.ExecutionID, code: req.Code, timeout: time.Duration(req.TimeoutMS) * time.Millisecond, log: newEventLog(), ctx: ctx, stop: stop}
	select {
	case k.jobs <- e:
	default:
		stop(nil)
		return nil, fault.New(api.CodeRateLimited, "%d executions wait already", guestapi.MaxQueue)
	}
	k.queued++
	k.executions[e.id] = e
	return e, nil
}

func (k *kernel) interrupt(eid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if eid != "" {
		k.executions[eid].stop(errInterrupted)
	} else if k.running != nil {
		k.running.stop(errInterrupted)
	}
}

func (k *kernel) copy(id string) *kernel {
	c := newKernel(k.guest, api.CreateContextRequest{ID: id, CWD: k.cwd})
	c.vars, c.forkedFrom = k.variables(), k.id
	return c
}

func (k *kernel) restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.executions {
		e.stop(errDied)
	}
	k.vars = map[string]string{}
	k.incarnation++
}

func (k *kernel) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	for _, e := range k.executions {
		e.stop(errDied)
	}
	close(k.jobs)
}

func (k *kernel) work() {
	for e := range k.jobs {
		k.mu.Lock()
		k.queued--
		k.running = e
		k.count++
		count := k.count
		k.mu.Unlock()
		k.execute(e, count)
		k.mu.Lock()
		k.running = nil
		k.mu.Unlock()
	}
}

func (k *kernel) execute(e *execution, count int) {
	defer e.stop(nil)
	began := time.Now()
	e.log.add(api.Event{Type: api.EventStarted, ExecutionID: e.id, ExecutionCount: count})
	if e.timeout > 0 {
		defer time.AfterFunc(e.timeout, func() { e.stop(errTimeout) }).Stop()
	}
	x := &api.Execution{ExecutionID: e.id, ExecutionCount: count, End: api.EndOK, StateSurvived: true}
	lines := strings.Split(strings.Trim(e.code, "\n"), "\n")
	var err error
	for i, line := range lines {
		if err = context.Cause(e.ctx); err != nil {
			break
		}
		if err = k.line(e, strings.TrimSpace(line), i == len(lines)-1); err != nil {
			break
		}
	}
	if k.guest.inst.ended() {
		return // nobody is left to say anything
	}
	var raised *exception
	words := ""
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		x.End, words, x.Step = api.EndInterrupted, "KeyboardInterrupt", "interrupt"
	case errors.Is(err, errTimeout):
		x.End, words, x.Step = api.EndTimeout, "the cell was stopped at its deadline", "interrupt"
	case errors.Is(err, errOOM):
		x.End, words, x.StateSurvived = api.EndOOM, "the interpreter was killed for its memory", false
		k.restart()
	case errors.As(err, &raised):
		x.End, x.ErrorName, x.ErrorValue = api.EndError, raised.name, raised.value
		words = "Traceback (most recent call last)\n" + raised.Error()
	default:
		x.End, words, x.StateSurvived = api.EndKernelDied, "the interpreter ended", false
	}
	if x.End != api.EndOK {
		x.Error, x.Exit, x.ExitCode = &words, 1, 1
	}
	x.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	e.log.add(api.Event{Type: api.EventEnd, Execution: x})
}

type exception struct{ name, value string }

func (e *exception) Error() string { return e.name + ": " + e.value }

var (
	assignment = regexp.MustCompile(`^(\w+)\s*=\s*(.+)$`)
	callForm   = regexp.MustCompile(`^(\w+)\((.*)\)$`)
)

func (k *kernel) line(e *execution, s string, last bool) error {
	if s == "" {
		return nil
	}
	if m := assignment.FindStringSubmatch(s); m != nil {
		v, err := k.eval(m[2])
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.vars[m[1]] = v
		k.mu.Unlock()
		return nil
	}
	if m := callForm.FindStringSubmatch(s); m != nil {
		var args []string
		if m[2] != "" {
			for _, a := range strings.Split(m[2], ",") {
				v, err := k.eval(strings.TrimSpace(a))
				if err != nil {
					return err
				}
				args = append(args, v)
			}
		}
		return k.call(e, m[1], args)
	}
	v, err := k.eval(s)
	if err == nil && last {
		e.log.add(api.Event{Type: api.EventResult, Data: api.Bundle{"text/plain": v}, IsLastExpression: true})
	}
	return err
}

func (k *kernel) call(e *execution, name string, args []string) error {
	arg := func(i int) string {
		if i < len(args) {
			return strings.Trim(args[i], "'")
		}
		return ""
	}
	n, _ := strconv.ParseFloat(arg(0), 64) // only some calls take a number
	switch name {
	case "print":
		e.log.add(api.Event{Type: api.EventStdout, Text: arg(0) + "\n"})
	case "warn":
		e.log.add(api.Event{Type: api.EventStderr, Text: arg(0) + "\n"})
	case "png":
		e.log.add(api.Event{Type: api.EventResult, Data: api.Bundle{"image/png": "iVBORw0KGgo="}})
	case "spam":
		for left := int(n); left > 0; left -= 32 << 10 {
			e.log.add(api.Event{Type: api.EventStdout, Text: strings.Repeat("x", min(left, 32<<10))})
		}
	case "gap":
		e.log.add(api.Event{Type: api.EventGap, Stream: "stdout", Dropped: int64(n)})
	case "append":
		k.guest.mu.Lock()
		k.guest.files[arg(0)] = append(k.guest.files[arg(0)], arg(1)...)
		k.guest.mu.Unlock()
	case "wait":
		select {
		case <-k.guest.signal(arg(0)):
		case <-e.ctx.Done():
			return context.Cause(e.ctx)
		}
	case "stubborn":
		select {
		case <-k.guest.signal(arg(0)):
		case <-k.guest.inst.life.Done():
			return errDied
		}
	case "sleep":
		select {
		case <-time.After(time.Duration(n * float64(time.Second))):
		case <-e.ctx.Done():
			return context.Cause(e.ctx)
		}
	case "raise":
		return &exception{arg(0), arg(1)}
	case "die":
		return errDied
	case "oom":
		return errOOM
	case "crash":
		k.guest.crash(arg(0))
		<-k.guest.inst.life.Done()
		return errDied
	default:
		return &exception{"NameError", fmt.Sprintf("name '%s' is not defined", name)}
	}
	return nil
}

func (k *kernel) eval(s string) (string, error) {
	if strings.HasPrefix(s, "'") && strings.Count(s, "'") == 2 && strings.HasSuffix(s, "'") {
		return s, nil
	}
	sum := 0
	for i, term := range strings.Split(s, "+") {
		term = strings.TrimSpace(term)
		k.mu.Lock()
		v, known := k.vars[term]
		k.mu.Unlock()
		if !known {
			v = term
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			if _, ferr := strconv.ParseFloat(v, 64); (ferr == nil || known) && i == 0 {
				return v, nil
			}
			return "", &exception{"NameError", fmt.Sprintf("name '%s' is not defined", term)}
		}
		sum += n
	}
	return strconv.Itoa(sum), nil
}
