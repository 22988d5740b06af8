package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"

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
// *TimeoutError with the output so far. When the connection breaks it comes
// back to the command, which never runs twice.
func (s *Sandbox) Exec(ctx context.Context, cmd api.Command, o ExecOptions) (ExecResult, error) {
	var res ExecResult
	req := o.request(cmd)
	req.ExecutionID = newID()
	err := again(ctx, func() error {
		err := s.client.call(ctx, http.MethodPost, s.path+"/exec", nil, req, &res)
		req.Attach = true // a second attempt follows what the first has started
		return err
	})
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
