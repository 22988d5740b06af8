package guestd

import (
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func (a *Agent) listProcesses(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.processes.list())
}

func (a *Agent) startProcess(w http.ResponseWriter, r *http.Request) error {
	var req guestapi.StartProcess
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	p, err := a.processes.start(req)
	if err != nil {
		return err
	}
	a.watchdog.wake()
	return writeJSON(w, http.StatusOK, p.snapshot())
}

// withProcess serves a route of one process.
func (a *Agent) withProcess(h func(w http.ResponseWriter, r *http.Request, p *process) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		pid, err := strconv.Atoi(r.PathValue("pid"))
		if err != nil || pid <= 0 {
			return fault.InvalidField("pid", "pid must be the number of a process, not %q", r.PathValue("pid"))
		}
		p, err := a.processes.get(pid)
		if err != nil {
			return err
		}
		return h(w, r, p)
	}
}

func (a *Agent) getProcess(w http.ResponseWriter, _ *http.Request, p *process) error {
	return writeJSON(w, http.StatusOK, p.snapshot())
}

func (a *Agent) processEvents(w http.ResponseWriter, r *http.Request, p *process) error {
	after, follow, err := afterAndFollow(r)
	if err != nil {
		return err
	}
	return streamEvents(w, r, p.log, after, follow)
}

func (a *Agent) writeStdin(w http.ResponseWriter, r *http.Request, p *process) error {
	return noContent(w, p.stdin.write(r.Body, r.Context().Done()))
}

func (a *Agent) closeStdin(w http.ResponseWriter, r *http.Request, p *process) error {
	return noContent(w, p.stdin.close(r.Context().Done()))
}

func (a *Agent) signalProcess(w http.ResponseWriter, r *http.Request, p *process) error {
	var req api.SignalRequest
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	sig, err := parseSignal(req.Signal)
	if err != nil {
		return err
	}
	if !p.snapshot().Running {
		return fault.New(api.CodeConflict, "process %d has ended", p.child.PID)
	}
	p.signal(sig)
	return noContent(w, nil)
}

func (a *Agent) resizeProcess(w http.ResponseWriter, r *http.Request, p *process) error {
	var req api.PTY
	if err := readJSON(w, r, &req); err != nil {
		return err
	}
	return noContent(w, p.resize(req))
}

func (a *Agent) killProcess(w http.ResponseWriter, _ *http.Request, p *process) error {
	p.kill(api.ReasonKilled)
	return noContent(w, nil)
}

// parseSignal reads "SIGTERM", "TERM" or "15".
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fault.InvalidField("signal", "%q is no signal", s).WithHint(`signals are written "SIGTERM", "TERM" or "15"`)
}
