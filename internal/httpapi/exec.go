package httpapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/process"
)

// Commands runs commands and waits for them.
type Commands interface {
	Exec(ctx context.Context, owner, sid string, req api.ExecRequest) (api.ExecResult, error)
	ExecStream(ctx context.Context, owner, sid string, req api.ExecRequest) iter.Seq2[api.Event, error]
}

var _ Commands = (*process.Service)(nil)

// timedOut is the body of a command that ran out of time: an error by its
// status, with the output so far beside it.
type timedOut struct {
	*api.Error
	api.ExecResult
	Hint string `json:"hint,omitempty"` // both have one
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	req, err := decodeExec(w, r)
	if err != nil {
		return err
	}
	res, err := s.Commands.Exec(r.Context(), owner(r), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	if res.TimedOut {
		f := fault.New(api.CodeTimeout, "timeout: the command did not end in time and was killed").
			WithHint("%s", strings.TrimSpace(res.Hint+" raise timeout_seconds, or start it as a process and look at it later"))
		body, status := s.failure(r, f)
		writeJSON(w, status, timedOut{body, res, body.Hint})
		return nil
	}
	return ok(w, res)
}

func decodeExec(w http.ResponseWriter, r *http.Request) (api.ExecRequest, error) {
	var req api.ExecRequest
	if err := decode(w, r, &req); err != nil {
		return req, err
	}
	if _, err := seconds("timeout_seconds", req.TimeoutSeconds); err != nil {
		return req, err
	}
	return req, checkCommand(req.Cmd, req.CWD, req.Envs, req.User)
}

func checkCommand(cmd api.Command, cwd string, env map[string]string, user string) error {
	if cmd.IsZero() {
		return fault.InvalidField("cmd", "cmd is missing").WithHint("a string for the shell, or an array of arguments")
	}
	if len(cmd.Argv) > 0 && cmd.Argv[0] == "" {
		return fault.InvalidField("cmd", "cmd: the first argument, the program, is empty")
	}
	for _, err := range []error{
		noNUL("cmd", append(cmd.Argv, cmd.Shell)...),
		optionalPath("cwd", cwd),
		envs("envs", env),
		noNUL("user", user),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// The data of the events of exec/stream, which are the published ones.
type (
	chunkData struct {
		Chunk string `json:"chunk"`
	}
	exitData struct {
		ExitCode      int     `json:"exit_code"`
		DurationMS    float64 `json:"duration_ms"`
		Signal        string  `json:"signal,omitempty"`
		Reason        string  `json:"reason,omitempty"`
		Hint          string  `json:"hint,omitempty"`
		StdoutDropped int64   `json:"stdout_dropped,omitempty"`
		StderrDropped int64   `json:"stderr_dropped,omitempty"`
		OutputPath    string  `json:"output_path,omitempty"`
	}
)

// errNoExit ends a stream that would otherwise end without an exit, which
// published clients take for success.
var errNoExit = errors.New("the command's output ended without an exit")

func (s *Server) execStream(w http.ResponseWriter, r *http.Request) error {
	req, err := decodeExec(w, r)
	if err != nil {
		return err
	}
	out := newSSE(w, keepAlive)
	defer out.close()
	ended := false
	for e, err := range s.Commands.ExecStream(r.Context(), owner(r), r.PathValue("id"), req) {
		if err == nil {
			ended, err = sendExec(out, e)
		}
		if err != nil {
			return s.streamed(out, r, err)
		}
	}
	if !ended {
		return s.streamed(out, r, errNoExit)
	}
	return nil
}

func sendExec(out *sse, e api.Event) (ended bool, err error) {
	switch e.Type {
	case api.EventStarted:
		return false, out.begin()
	case api.EventStdout, api.EventStderr:
		text := e.Text
		if text == "" {
			text = strings.ToValidUTF8(string(e.Raw), "\uFFFD")
		}
		return false, out.send(e.Seq, e.Type, chunkData{text})
	case api.EventGap:
		return false, out.send(e.Seq, e.Type, dataOf(e))
	case api.EventExit:
		x := e.Exit
		if x == nil {
			return false, errNoExit
		}
		if x.Reason == "timeout" {
			return true, fault.New(api.CodeTimeout, "timeout: the command did not end in time and was killed")
		}
		return true, out.send(e.Seq, "exit", exitData{x.Code, x.DurationMS, x.Signal, x.Reason, x.Hint, x.StdoutDropped, x.StderrDropped, x.OutputPath})
	}
	return false, nil
}
