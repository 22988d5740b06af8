package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// process is a scripted command. Its shell line holds words between ";":
//
//	echo TEXT    warn TEXT    to stdout, to stderr
//	cat          standard input to stdout
//	exit N       the end with that code
//	wait NAME    until the test says Guest.Signal("NAME")
//	sleep S      a while
//	babble       an event that no agent of ours sends
//	tty          the size of the terminal, as ROWSxCOLS
//	resized      wait for another size than it wrote, and write that
//	type         what is typed, as it comes, until a Ctrl-D
type process struct {
	guest *Guest
	log   *eventLog
	ctx   context.Context
	stop  context.CancelCauseFunc
	stdin *io.PipeReader
	input *io.PipeWriter

	mu      sync.Mutex
	info    api.Process
	resized chan struct{} // closed and replaced with every new size

	shown api.PTY // the size that it wrote last
}

type killed struct{ signal, reason string }

func (k *killed) Error() string { return "killed by " + k.signal }

func (g *Guest) processRoutes(handle func(string, func(http.ResponseWriter, *http.Request) error)) {
	on := func(f func(http.ResponseWriter, *http.Request, *process) error) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, r *http.Request) error {
			pid, err := strconv.Atoi(r.PathValue("pid"))
			g.mu.Lock()
			var p *process
			for _, x := range g.procs {
				if err == nil && x.info.PID == pid {
					p = x
				}
			}
			g.mu.Unlock()
			if p == nil {
				return fault.New(api.CodeNotFound, "there is no process %s", r.PathValue("pid"))
			}
			return f(w, r, p)
		}
	}
	handle("GET /processes", func(w http.ResponseWriter, r *http.Request) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		out := []api.Process{}
		for _, p := range g.procs {
			out = append(out, p.describe())
		}
		return answer(w, out)
	})
	handle("POST /processes", func(w http.ResponseWriter, r *http.Request) error {
		var req guestapi.StartProcess
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		return answer(w, g.start(req).describe())
	})
	handle("GET /processes/{pid}", on(func(w http.ResponseWriter, r *http.Request, p *process) error { return answer(w, p.describe()) }))
	handle("GET /processes/{pid}/events", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		return p.log.stream(w, r, number(r, "after"), r.FormValue("follow") == "1")
	}))
	handle("POST /processes/{pid}/stdin", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		if _, err := io.Copy(p.input, r.Body); err != nil {
			return fault.New(api.CodeConflict, "standard input is closed")
		}
		return answer(w, nil)
	}))
	handle("POST /processes/{pid}/stdin/close", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		if p.describe().PTY != nil {
			_, _ = p.input.Write([]byte{4}) // its end is told elsewhere
			return answer(w, nil)
		}
		p.input.Close()
		return answer(w, nil)
	}))
	handle("POST /processes/{pid}/signal", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		var req api.SignalRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		p.kill(req.Signal, api.ReasonSignaled)
		return answer(w, nil)
	}))
	handle("POST /processes/{pid}/resize", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		var size api.PTY
		if err := json.NewDecoder(r.Body).Decode(&size); err != nil {
			return fault.InvalidField("", "%v", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.info.PTY == nil {
			return fault.New(api.CodeConflict, "process %d has no terminal", p.info.PID)
		}
		p.info.PTY = &size
		close(p.resized)
		p.resized = make(chan struct{})
		return answer(w, nil)
	}))
	handle("DELETE /processes/{pid}", on(func(w http.ResponseWriter, r *http.Request, p *process) error {
		p.kill("SIGKILL", api.ReasonKilled)
		return answer(w, nil)
	}))
}

func (g *Guest) start(req guestapi.StartProcess) *process {
	ctx, stop := context.WithCancelCause(g.inst.life)
	p := &process{guest: g, log: newEventLog(), ctx: ctx, stop: stop, resized: make(chan struct{})}
	p.stdin, p.input = io.Pipe()
	g.mu.Lock()
	p.info = api.Process{PID: 100 + len(g.procs), Tag: req.Tag, Cmd: req.Command, CWD: req.CWD, User: "root", StartedAt: time.Now(), Running: true, PTY: req.PTY}
	if p.info.Cmd.IsZero() {
		p.info.Cmd = api.Command{Argv: req.Argv}
	}
	g.procs = append(g.procs, p)
	g.mu.Unlock()
	go func() {
		_, _ = p.input.Write(req.Input) // the process may not read it
		if !req.Stdin && req.PTY == nil {
			p.input.Close()
		}
	}()
	g.inst.spawn(func() { p.run(req.Argv[len(req.Argv)-1], time.Duration(req.TimeoutMS)*time.Millisecond) })
	return p
}

func (p *process) describe() api.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	info := p.info
	info.LastEvent = p.log.last()
	return info
}

func (p *process) writeSize() {
	size := "none"
	if t := p.describe().PTY; t != nil {
		p.shown = *t
		size = fmt.Sprintf("%dx%d", t.Rows, t.Cols)
	}
	p.log.add(api.Event{Type: api.EventStdout, Text: size + "\n"})
}

func (p *process) kill(signal, reason string) { p.stop(&killed{signal, reason}) }

func (p *process) run(script string, timeout time.Duration) {
	began := time.Now()
	if timeout > 0 {
		defer time.AfterFunc(timeout, func() { p.stop(errTimeout) }).Stop()
	}
	p.log.add(api.Event{Type: api.EventStarted, PID: p.info.PID})
	exit := api.Exit{Reason: "exited"}
	var err error
	for _, part := range strings.Split(script, ";") {
		word, arg, _ := strings.Cut(strings.TrimSpace(part), " ")
		if exit.Code, err = p.do(word, arg); err != nil || exit.Code != 0 {
			break
		}
	}
	var k *killed
	switch {
	case errors.Is(err, errTimeout):
		exit = api.Exit{Code: 137, Signal: "SIGKILL", Reason: "timeout"}
	case errors.As(err, &k):
		exit = api.Exit{Code: 137, Signal: k.signal, Reason: k.reason}
	case err != nil:
		return // it died with its sandbox, and nobody is left to say so
	}
	exit.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	p.stdin.Close()
	now := time.Now()
	p.mu.Lock()
	p.info.Running, p.info.Exit, p.info.EndedAt = false, &exit, &now
	p.mu.Unlock()
	p.log.add(api.Event{Type: api.EventExit, Exit: &exit})
}

func (p *process) do(word, arg string) (int, error) {
	switch word {
	case "echo":
		p.log.add(api.Event{Type: api.EventStdout, Text: arg + "\n"})
	case "warn":
		p.log.add(api.Event{Type: api.EventStderr, Text: arg + "\n"})
	case "cat":
		b, err := io.ReadAll(p.stdin)
		if len(b) > 0 {
			p.log.add(api.Event{Type: api.EventStdout, Text: string(b)})
		}
		return 0, err
	case "exit":
		return strconv.Atoi(arg)
	case "wait":
		select {
		case <-p.guest.signal(arg):
		case <-p.ctx.Done():
		}
	case "tty":
		p.writeSize()
	case "resized":
		for p.ctx.Err() == nil {
			p.mu.Lock()
			resized, is := p.resized, *p.info.PTY
			p.mu.Unlock()
			if is != p.shown {
				p.writeSize()
				break
			}
			select {
			case <-resized:
			case <-p.ctx.Done():
			}
		}
	case "type":
		defer context.AfterFunc(p.ctx, func() { p.stdin.Close() })()
		buf := make([]byte, 1<<10)
		for {
			n, err := p.stdin.Read(buf)
			if err != nil {
				return 0, context.Cause(p.ctx)
			}
			typed, _, ended := strings.Cut(string(buf[:n]), "\x04")
			if typed != "" {
				e := api.Event{Type: api.EventStdout, Text: typed}
				if !utf8.ValidString(typed) {
					e.Text, e.Raw = "", []byte(typed)
				}
				p.log.add(e)
			}
			if ended {
				break
			}
		}
	case "babble":
		p.log.add(api.Event{Type: "babble"})
	case "sleep":
		s, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return 1, nil
		}
		select {
		case <-time.After(time.Duration(s * float64(time.Second))):
		case <-p.ctx.Done():
		}
	default:
		p.log.add(api.Event{Type: api.EventStderr, Text: word + ": command not found\n"})
		return 127, nil
	}
	return 0, context.Cause(p.ctx)
}
