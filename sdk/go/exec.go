package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pandastack/pandastack/api"
)

// ExecResult is how a command ended and what it wrote.
type ExecResult = api.ExecResult

// ExecOptions say how a command runs. The zero value is root in /workspace
// with 60 seconds.
type ExecOptions struct {
	TimeoutSeconds float64
	CWD            string
	Envs           map[string]string
	User           string  // name or uid
	Stdin          *string // written to standard input, which is then closed
	Check          bool    // a non-zero exit is a *CommandError
}

// Shell is a command line for the shell.
func Shell(line string) api.Command { return api.Command{Shell: line} }

// Argv is a program and its arguments, with no shell between.
func Argv(argv ...string) api.Command { return api.Command{Argv: argv} }

func (o ExecOptions) request(cmd api.Command) api.ExecRequest {
	return api.ExecRequest{
		Cmd: cmd, TimeoutSeconds: o.TimeoutSeconds, CWD: o.CWD, Envs: o.Envs, User: o.User, Stdin: o.Stdin,
	}
}

// Exec runs a command and waits for it. One that runs out of time is a
// *TimeoutError with the output so far.
func (s *Sandbox) Exec(ctx context.Context, cmd api.Command, o ExecOptions) (ExecResult, error) {
	var res ExecResult
	err := s.client.call(ctx, http.MethodPost, s.path+"/exec", nil, o.request(cmd), &res)
	var e *Error
	if errors.As(err, &e) && e.Code == api.CodeTimeout {
		t := &TimeoutError{Err: e}
		_ = json.Unmarshal(e.Body, &t.Result) // a timeout of another kind has no output
		return t.Result, t
	}
	if err != nil {
		return res, err
	}
	if o.Check && res.ExitCode != 0 {
		return res, &CommandError{res}
	}
	return res, nil
}

// Output is a piece of what a running command wrote.
type Output struct {
	Stream string // "stdout" or "stderr"
	Text   string
}

// ExecStream runs a command and gives its output as it comes. After the last
// piece, exit holds its exit code.
func (s *Sandbox) ExecStream(ctx context.Context, cmd api.Command, o ExecOptions, exit *int) iter.Seq2[Output, error] {
	return func(yield func(Output, error) bool) {
		ended := false
		for e, err := range s.client.events(ctx, http.MethodPost, s.path+"/exec/stream", nil, o.request(cmd)) {
			if err != nil {
				yield(Output{}, err)
				return
			}
			switch e.event {
			case "stdout", "stderr":
				var data struct {
					Chunk string `json:"chunk"`
				}
				if err := json.Unmarshal(e.data, &data); err != nil {
					yield(Output{}, err)
					return
				}
				if !yield(Output{e.event, data.Chunk}, nil) {
					return
				}
			case "exit":
				var data struct {
					ExitCode int `json:"exit_code"`
				}
				if err := json.Unmarshal(e.data, &data); err != nil {
					yield(Output{}, err)
					return
				}
				ended = true
				if exit != nil {
					*exit = data.ExitCode
				}
			}
		}
		if !ended {
			yield(Output{}, connectionError(ctx, s.client.root, io.ErrUnexpectedEOF))
		}
	}
}

// Processes lists the processes that were started through the API.
func (s *Sandbox) Processes(ctx context.Context) ([]api.Process, error) {
	var list []api.Process
	return list, s.client.call(ctx, http.MethodGet, s.path+"/processes", nil, nil, &list)
}

// Start starts a command and returns at once.
func (s *Sandbox) Start(ctx context.Context, req api.StartProcessRequest) (api.Process, error) {
	var p api.Process
	return p, s.client.call(ctx, http.MethodPost, s.path+"/processes", nil, req, &p)
}

// Process describes a process that was started.
func (s *Sandbox) Process(ctx context.Context, pid int) (api.Process, error) {
	var p api.Process
	return p, s.client.call(ctx, http.MethodGet, s.processPath(pid), nil, nil, &p)
}

// ProcessEvents gives a process's output from after on, and then as it comes,
// up to its exit.
func (s *Sandbox) ProcessEvents(ctx context.Context, pid int, after int64) iter.Seq2[api.Event, error] {
	again := func(after int64) iter.Seq2[sseEvent, error] {
		q := url.Values{"after": {strconv.FormatInt(after, 10)}}
		return s.client.events(ctx, http.MethodGet, s.processPath(pid)+"/stream", q, nil)
	}
	return s.client.follow(ctx, after, again)
}

// WriteStdin appends to a process's standard input.
func (s *Sandbox) WriteStdin(ctx context.Context, pid int, r io.Reader) error {
	return s.client.send(ctx, http.MethodPost, s.processPath(pid)+"/stdin", nil, r, nil)
}

// CloseStdin ends a process's standard input.
func (s *Sandbox) CloseStdin(ctx context.Context, pid int) error {
	return s.client.call(ctx, http.MethodDelete, s.processPath(pid)+"/stdin", nil, nil, nil)
}

// Signal sends a signal, "SIGTERM", "TERM" or "15", to a process's group.
func (s *Sandbox) Signal(ctx context.Context, pid int, signal string) error {
	return s.client.call(ctx, http.MethodPost, s.processPath(pid)+"/signal", nil, api.SignalRequest{Signal: signal}, nil)
}

// KillProcess kills a process and its group.
func (s *Sandbox) KillProcess(ctx context.Context, pid int) error {
	return s.client.call(ctx, http.MethodDelete, s.processPath(pid), nil, nil, nil)
}

func (s *Sandbox) processPath(pid int) string { return s.path + "/processes/" + strconv.Itoa(pid) }
