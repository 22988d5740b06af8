package guestd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/deadline"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
)

const (
	maxTimeoutMS  = 30 * 24 * 3600 * 1000
	maxTag        = 128
	keepFinished  = 128      // processes that have ended and can still be read
	keepBytes     = 32 << 20 // of their output
	lateOutput    = 100 * time.Millisecond
	terminateTime = time.Second // between SIGTERM and SIGKILL at a timeout
)

// processes are the commands that run, and those that have ended lately.
type processes struct {
	cfg Config
	env *environment

	starting sync.Mutex // one at a time, so that tags stay unique

	mu     sync.Mutex
	all    []*process // in order of their start
	starts int
}

// process is one command: a session of its own, with numbered output.
type process struct {
	child *child.Child
	log   *eventlog.Log
	out   *child.Outputs
	stdin *stdin
	term  *child.Terminal // nil without one

	mu    sync.Mutex
	info  api.Process
	cause string // why we killed it: "timeout", "oom"
}

func newProcesses(cfg Config, env *environment) *processes {
	return &processes{cfg: cfg, env: env}
}

func (ps *processes) start(req guestapi.StartProcess) (*process, error) {
	spec, err := ps.prepare(req)
	if err != nil {
		return nil, err
	}
	ps.starting.Lock()
	defer ps.starting.Unlock()
	ps.mu.Lock()
	ps.starts++
	number := ps.starts
	running := 0
	for _, p := range ps.all {
		if !p.snapshot().Running {
			continue
		}
		running++
		if req.Tag != "" && p.info.Tag == req.Tag {
			ps.mu.Unlock()
			return nil, fault.New(api.CodeConflict, "a process with the tag %q runs already: pid %d", req.Tag, p.child.PID)
		}
	}
	ps.mu.Unlock()
	if running >= guestapi.MaxProcesses {
		return nil, fault.New(api.CodeRateLimited, "%d processes run already, the most there may be", running).
			WithHint("end some of them first")
	}

	p := &process{info: api.Process{
		Tag: req.Tag, Cmd: req.Command, CWD: spec.Dir, User: spec.User.Name, StartedAt: time.Now().UTC(), Running: true,
	}}
	if p.info.Cmd.IsZero() {
		p.info.Cmd = api.Command{Argv: req.Argv}
	}
	if req.PTY != nil {
		size, err := guestapi.CheckPTY(*req.PTY)
		if err != nil {
			return nil, err
		}
		p.info.PTY = &size
	}
	p.log = eventlog.New(eventlog.Options{
		Head: guestapi.KeepHead, Tail: guestapi.KeepTail,
		Spill: &eventlog.Spill{
			Path: filepath.Join(ps.cfg.OutputDir, fmt.Sprintf("process-%d.log", number)),
			Max:  guestapi.MaxOutputFile, Keep: kernels.KeepFiles,
		},
	})
	if err := ps.spawn(p, spec, req.Stdin || len(req.Input) > 0); err != nil {
		return nil, startError(err, req, spec)
	}
	p.log.Add(api.Event{Type: api.EventStarted, PID: p.child.PID}, 0)
	p.out.Run()
	if len(req.Input) > 0 {
		go func() {
			_ = p.stdin.write(bytes.NewReader(req.Input), nil) // a program need not read its input
			if !req.Stdin {
				_ = p.stdin.close(nil) // nor mind its end
			}
		}()
	}
	ps.mu.Lock()
	ps.all = slices.DeleteFunc(ps.all, func(o *process) bool { return o.child.PID == p.child.PID })
	ps.all = append(ps.all, p)
	ps.mu.Unlock()
	go ps.supervise(p, time.Duration(req.TimeoutMS)*time.Millisecond)
	return p, nil
}

func (ps *processes) prepare(req guestapi.StartProcess) (child.Spec, error) {
	var spec child.Spec
	if len(req.Argv) == 0 || req.Argv[0] == "" {
		return spec, fault.InvalidField("cmd", "cmd is empty: give a shell command or a list of arguments")
	}
	for _, arg := range req.Argv {
		if strings.Contains(arg, "\x00") {
			return spec, fault.InvalidField("cmd", "cmd holds a NUL byte")
		}
	}
	if req.TimeoutMS < 0 || req.TimeoutMS > maxTimeoutMS {
		return spec, fault.InvalidField("timeout_ms", "timeout_ms must lie between 0 (none) and %d, not %d", int64(maxTimeoutMS), req.TimeoutMS)
	}
	if len(req.Tag) > maxTag {
		return spec, fault.InvalidField("tag", "tag is longer than %d bytes", maxTag)
	}
	if err := checkEnvs("envs", req.Envs); err != nil {
		return spec, err
	}
	user, err := child.LookupUser(ps.cfg.Etc, req.User)
	if err != nil {
		return spec, fault.InvalidField("user", "%v", err)
	}
	cwd := req.CWD
	if cwd == "" {
		cwd = ps.cfg.Workspace
	}
	if err := checkDir("cwd", cwd); err != nil {
		return spec, err
	}
	env := ps.env.forUser(user, req.Envs)
	if req.PTY != nil {
		env = ps.env.forTerminal(user, req.Envs)
	}
	path, err := lookPath(req.Argv[0], env["PATH"], cwd)
	if err != nil {
		return spec, err
	}
	return child.Spec{Path: path, Argv: req.Argv, Env: environ(env), Dir: cwd, User: user}, nil
}

func checkDir(field, dir string) error {
	if !filepath.IsAbs(dir) || strings.Contains(dir, "\x00") {
		return fault.InvalidField(field, "%s must be an absolute path, not %q", field, dir)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return fault.InvalidField(field, "there is no folder %s in the sandbox", dir)
	}
	if !st.IsDir() {
		return fault.InvalidField(field, "%s is not a folder", dir)
	}
	return nil
}

// lookPath finds a program the way a shell in the sandbox would.
func lookPath(name, path, cwd string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(cwd, name)
		}
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = cwd
		}
		if p := filepath.Join(dir, name); executable(p) == nil {
			return p, nil
		}
	}
	return "", fault.InvalidField("cmd", "there is no program %q in the sandbox", name).
		WithHint("a command with arguments, pipes or variables is a string, which the shell reads; a list starts with a program in PATH")
}

func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fault.InvalidField("cmd", "there is no program %s in the sandbox", path)
	case st.IsDir():
		return fault.InvalidField("cmd", "%s is a folder, not a program", path)
	case st.Mode()&0o111 == 0:
		return fault.InvalidField("cmd", "%s is not executable", path).WithHint("chmod +x %s, or run it through its interpreter", path)
	}
	return nil
}

func startError(err error, req guestapi.StartProcess, spec child.Spec) error {
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return fault.Wrap(err, api.CodeRateLimited, "the sandbox runs as many processes as it may").
			WithHint("end some of them first")
	case errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.ENAMETOOLONG): // the latter is gVisor's word for an argument
		return fault.Wrap(err, api.CodeTooLarge, "the command and its environment are too large for the system").
			WithHint("an argument has at most 128 KiB: write a file and run that")
	case errors.Is(err, syscall.ENOMEM):
		return fault.Wrap(err, api.CodeNoCapacity, "the sandbox has no memory left for another process")
	case errors.Is(err, syscall.EACCES):
		return fault.Wrap(err, api.CodeDenied, "user %s may not run %s in %s", spec.User.Name, spec.Path, spec.Dir)
	case errors.Is(err, syscall.ENOEXEC):
		return fault.InvalidField("cmd", "%s is no program that this system can run", spec.Path).
			WithHint("a script needs a first line such as #!/bin/sh")
	case errors.Is(err, syscall.ENOENT):
		return fault.InvalidField("cmd", "the interpreter of %s is missing", spec.Path)
	}
	return fmt.Errorf("start %s: %w", req.Argv[0], err)
}

// spawn starts the process with its terminal or its pipes.
func (ps *processes) spawn(p *process, spec child.Spec, keepInput bool) error {
	if size := p.info.PTY; size != nil {
		term, end, err := child.NewTerminal(uint16(size.Rows), uint16(size.Cols), spec.User, p.log.Output)
		if err != nil {
			return err
		}
		p.term, p.out, p.stdin = term, term.Outputs, newStdin(term.Input)
		p.stdin.terminal = true
		spec.Files, spec.Terminal = []*os.File{end, end, end}, true
		err = ps.launch(p, spec)
		_ = end.Close()
		return err
	}
	out, ends, err := child.NewOutputs(p.log.Output)
	if err != nil {
		return err
	}
	in, input, err := inputs(keepInput)
	if err != nil {
		out.Close()
		return err
	}
	p.out, p.stdin = out, newStdin(input)
	spec.Files = []*os.File{in, ends[0], ends[1]}
	err = ps.launch(p, spec)
	for _, f := range spec.Files {
		_ = f.Close()
	}
	return err
}

func (ps *processes) launch(p *process, spec child.Spec) (err error) {
	p.child, err = ps.cfg.Reaper.Start(spec)
	if err != nil {
		p.out.Close()
		p.stdin.end()
		return err
	}
	p.info.PID, p.stdin.pid, p.stdin.done = p.child.PID, p.child.PID, p.child.Done()
	return nil
}

// inputs gives the standard input of a process, and the end that writes to it
// if there is to be one.
func inputs(keep bool) (in, input *os.File, err error) {
	if !keep {
		in, err = os.Open(os.DevNull)
		return in, nil, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	_ = unix.SetNonblock(fds[1], true)
	return os.NewFile(uintptr(fds[0]), "stdin"), os.NewFile(uintptr(fds[1]), "stdin"), nil
}

// supervise waits for the end of a process, or brings it about.
func (ps *processes) supervise(p *process, timeout time.Duration) {
	watch := deadline.Start(deadline.System)
	if timeout > 0 && watch.Wait(timeout, p.child.Done()) {
		p.setCause(api.ReasonTimeout)
		p.signal(unix.SIGTERM)
		if watch.Wait(timeout+terminateTime, p.child.Done()) {
			child.KillSession(p.child.PID)
		}
	}
	<-p.child.Done()
	if p.why() != "" {
		child.KillSession(p.child.PID) // those that did not mind SIGTERM
	}
	// A child that was left behind may hold the pipes open for ever.
	select {
	case <-p.out.Done():
	case <-time.After(lateOutput):
	}
	p.out.Lock()
	p.out.Drain()
	p.out.Unlock()

	p.stdin.end()
	if p.term != nil {
		p.out.Close() // which hangs up on those that were left behind
	}

	now := time.Now().UTC()
	exit := exitOf(p.child.Status(), p.why())
	exit.DurationMS = milliseconds(now.Sub(p.info.StartedAt))
	if timeout > 0 {
		exit.DurationMS = milliseconds(watch.Spent())
	}
	p.log.End(func(o eventlog.Outcome) api.Event {
		exit.StdoutDropped, exit.StderrDropped = o.Dropped[eventlog.Stdout], o.Dropped[eventlog.Stderr]
		exit.OutputPath = o.Path
		p.mu.Lock()
		p.info.Running, p.info.Exit, p.info.EndedAt = false, &exit, &now
		p.mu.Unlock()
		return api.Event{Type: api.EventExit, Exit: &exit}
	})
	ps.forget()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// timeoutCode is what timeout(1) returns, too.
const timeoutCode = 124

// exitOf says how a process ended that we may have had cause to end.
func exitOf(status syscall.WaitStatus, cause string) api.Exit {
	exit := api.Exit{Code: status.ExitStatus(), Reason: api.ReasonExited}
	if status.Signaled() {
		exit = api.Exit{Code: 128 + int(status.Signal()), Signal: unix.SignalName(status.Signal()), Reason: api.ReasonSignaled}
	}
	switch {
	case cause == api.ReasonTimeout:
		exit.Reason = cause
		if exit.Code == 0 { // a program that ends well at SIGTERM has not done its work
			exit.Code = timeoutCode
		}
	case cause != "" && status.Signaled() && status.Signal() == unix.SIGKILL: // else it was quicker than we
		exit.Reason = cause
	}
	return exit
}

// forget lets go of the oldest processes that have ended, when there are many.
func (ps *processes) forget() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	count, size := 0, 0
	for i := len(ps.all) - 1; i >= 0; i-- {
		p := ps.all[i]
		if p.snapshot().Running {
			continue
		}
		count++
		size += p.log.Size()
		if count > keepFinished || (size > keepBytes && count > 1) {
			ps.all = slices.Delete(ps.all, i, i+1)
		}
	}
}

func (ps *processes) list() []api.Process {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	list := make([]api.Process, 0, len(ps.all))
	for _, p := range ps.all {
		list = append(list, p.snapshot())
	}
	return list
}

func (ps *processes) running() int {
	n := 0
	for _, p := range ps.list() {
		if p.Running {
			n++
		}
	}
	return n
}

func (ps *processes) get(pid int) (*process, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var pids []string
	for _, p := range ps.all {
		if p.child.PID == pid {
			return p, nil
		}
		if len(pids) < 10 {
			pids = append(pids, fmt.Sprint(p.child.PID))
		}
	}
	err := fault.New(api.CodeNotFound, "no process %d was started through the API", pid)
	if len(pids) > 0 {
		err = err.WithHint("there are %s", strings.Join(pids, ", "))
	}
	return nil, err
}

func (ps *processes) killAll() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.all {
		if p.snapshot().Running {
			child.KillSession(p.child.PID)
		}
	}
}

func (p *process) snapshot() api.Process {
	last, _ := p.log.Last()
	p.mu.Lock()
	defer p.mu.Unlock()
	info := p.info
	info.LastEvent = last
	return info
}

// resize sets the size of the terminal.
func (p *process) resize(size api.PTY) error {
	if p.term == nil {
		return fault.New(api.CodeConflict, "process %d has no terminal", p.child.PID).WithHint("start it with pty")
	}
	size, err := guestapi.CheckPTY(size)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.info.Running {
		return fault.New(api.CodeConflict, "process %d has ended", p.child.PID)
	}
	if err := p.term.Resize(uint16(size.Rows), uint16(size.Cols)); err != nil {
		if errors.Is(err, os.ErrClosed) { // it ends at this moment
			return fault.New(api.CodeConflict, "process %d has ended", p.child.PID)
		}
		return err
	}
	p.info.PTY = &size
	return nil
}

func (p *process) setCause(cause string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause == "" {
		p.cause = cause
	}
}

func (p *process) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// signal sends a signal to the whole group.
func (p *process) signal(sig syscall.Signal) {
	_ = unix.Kill(-p.child.PID, sig)
}

// kill ends the process and everything in its session. What has made itself a
// session of its own, with setsid, said that it wants to outlive this one, and
// does: until the sandbox ends.
func (p *process) kill(cause string) {
	if p.snapshot().Running {
		p.setCause(cause)
		child.KillSession(p.child.PID)
	}
}
