package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// ofProcess serves a route of one process.
func ofProcess(h func(w http.ResponseWriter, r *http.Request, pid int) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		pid, err := strconv.Atoi(r.PathValue("pid"))
		if err != nil || pid <= 0 {
			return fault.InvalidField("pid", "pid must be a whole number above 0, but is %s", shown(r.PathValue("pid")))
		}
		return h(w, r, pid)
	}
}

func (s *Server) listProcesses(w http.ResponseWriter, r *http.Request) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		list, err := g.Processes(ctx)
		return answer(w, orEmpty(list), err)
	})
}

func (s *Server) startProcess(w http.ResponseWriter, r *http.Request) error {
	var req api.StartProcessRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if _, err := millis("timeout_ms", req.TimeoutMS); err != nil {
		return err
	}
	if err := checkCommand(req.Cmd, req.CWD, req.Envs, req.User); err != nil {
		return err
	}
	if err := clientName("tag", req.Tag); err != nil {
		return err
	}
	if req.PTY != nil {
		size, err := guestapi.CheckPTY(*req.PTY)
		if err != nil {
			return err
		}
		req.PTY = &size
	}
	cwd := req.CWD
	if cwd == "" {
		cwd = guestapi.Workspace
	}
	// Not asked again when the link breaks: it may have started.
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		p, err := g.StartProcess(ctx, guestapi.StartProcess{
			Argv: req.Cmd.Args(), Command: req.Cmd, CWD: cwd, Envs: req.Envs, User: req.User,
			Tag: req.Tag, TimeoutMS: req.TimeoutMS, Stdin: req.Stdin, PTY: req.PTY,
		})
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusCreated, p)
		return nil
	})
}

func (s *Server) getProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		p, err := g.Process(ctx, pid)
		return answer(w, p, err)
	})
}

func (s *Server) killProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.KillProcess(ctx, pid))
	})
}

// streamProcess gives a process's output from a number on, also across a link
// that breaks.
func (s *Server) streamProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	after, err := attachAfter(r)
	if err != nil {
		return err
	}
	link := func(ctx context.Context) (*guest.Client, func(), error) {
		return s.Sandboxes.Guest(ctx, owner(r), r.PathValue("id"))
	}
	return s.events(w, r, guest.Follow(r.Context(), after, link, func(ctx context.Context, g *guest.Client, after int64) (*guest.Events, error) {
		return g.ProcessEvents(ctx, pid, after, true)
	}))
}

// writeStdin appends the body, of any size, to a process's standard input.
func (s *Server) writeStdin(w http.ResponseWriter, r *http.Request, pid int) error {
	body := flowing{http.NewResponseController(w), r.Body}
	err := s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.WriteStdin(ctx, pid, body))
	})
	if err != nil {
		drain(body)
	}
	return err
}

func (s *Server) closeStdin(w http.ResponseWriter, r *http.Request, pid int) error {
	return s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.CloseStdin(ctx, pid))
	})
}

func (s *Server) signalProcess(w http.ResponseWriter, r *http.Request, pid int) error {
	var req api.SignalRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := clientName("signal", req.Signal); err != nil {
		return err
	}
	if req.Signal == "" {
		return fault.InvalidField("signal", "signal is missing").WithHint("SIGTERM, TERM or 15")
	}
	return s.onceWithGuest(r, func(ctx context.Context, g *guest.Client) error {
		return done(w, g.SignalProcess(ctx, pid, req.Signal))
	})
}
