package httpapi

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/process"
)

// Commands runs commands and waits for them.
type Commands interface {
	Exec(ctx context.Context, owner, sid string, req api.ExecRequest) (api.ExecResult, error)
	ExecStream(ctx context.Context, owner, sid string, req api.ExecRequest) iter.Seq2[api.Event, error]
}

var _ Commands = (*process.Service)(nil)

// cutShort is the failure of a command that had begun: what it had written by
// then goes with the error.
type cutShort struct {
	error
	soFar api.ExecResult
}

func (e *cutShort) Unwrap() error { return e.error }

func (e *cutShort) body(err *api.Error) api.ExecFailure {
	r := e.soFar
	f := api.ExecFailure{
		Error: err, Stdout: r.Stdout, Stderr: r.Stderr, TimedOut: r.TimedOut, Truncated: r.Truncated,
		StdoutDropped: r.StdoutDropped, StderrDropped: r.StderrDropped, OutputPath: r.OutputPath,
	}
	if r.TimedOut {
		f.ExitCode = &r.ExitCode
	}
	return f
}

// errDeadline has the word by which published clients know it.
var errDeadline = fault.New(api.CodeTimeout, "timeout: the command did not end in time and was killed, with all that it had started").
	WithHint("raise timeout_seconds, or start it as a process and look at it later")

// pastDeadline is errDeadline with what may be why.
func pastDeadline(hint string) *fault.Error {
	if hint == "" {
		return errDeadline
	}
	return errDeadline.WithHint("%s %s", hint, errDeadline.Hint)
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	req, err := decodeExec(w, r)
	if err != nil {
		return err
	}
	res, err := s.Commands.Exec(r.Context(), owner(r), r.PathValue("id"), req)
	if err = s.cut(r, req.ExecutionID, err); errors.Is(err, http.ErrAbortHandler) {
		return err
	}
	switch {
	case err != nil && res.Stdout+res.Stderr != "":
		return &cutShort{err, res}
	case err == nil && res.TimedOut:
		return &cutShort{pastDeadline(res.Hint), res}
	}
	return answer(w, res, err)
}

func decodeExec(w http.ResponseWriter, r *http.Request) (api.ExecRequest, error) {
	var req api.ExecRequest
	if err := decode(w, r, &req); err != nil {
		return req, err
	}
	return req, checkExec(req)
}

func checkExec(req api.ExecRequest) error {
	if _, err := seconds("timeout_seconds", req.TimeoutSeconds); err != nil {
		return err
	}
	if req.ExecutionID != "" {
		if err := guestapi.CheckID("execution_id", req.ExecutionID); err != nil {
			return err
		}
	}
	return checkCommand(req.Cmd, req.CWD, req.Envs, req.User)
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

// textOf is the output in an event, with U+FFFD for what is not UTF-8.
func textOf(e api.Event) string {
	if e.Text == "" {
		return strings.ToValidUTF8(string(e.Raw), "\uFFFD")
	}
	return e.Text
}

func sendExec(out *sse, e api.Event) (ended bool, err error) {
	switch e.Type {
	case api.EventStarted:
		return false, out.begin()
	case api.EventStdout, api.EventStderr:
		return false, out.send(e.Seq, e.Type, chunkData{textOf(e)})
	case api.EventGap:
		return false, out.send(e.Seq, e.Type, dataOf(e))
	case api.EventExit:
		x := e.Exit
		if x == nil {
			return false, errNoExit
		}
		if x.Reason == api.ReasonTimeout {
			return true, pastDeadline(x.Hint)
		}
		return true, out.send(e.Seq, "exit", exitData{x.Code, x.DurationMS, x.Signal, x.Reason, x.Hint, x.StdoutDropped, x.StderrDropped, x.OutputPath})
	}
	return false, nil
}
