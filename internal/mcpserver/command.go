package mcpserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type runCommandIn struct {
	Command        string            `json:"command" jsonschema:"a line for bash, run as root in the sandbox"`
	CWD            string            `json:"cwd,omitempty" jsonschema:"folder to run in, default /workspace"`
	Envs           map[string]string `json:"envs,omitempty" jsonschema:"environment on top of the sandbox's"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" jsonschema:"default 60, at most 3600; the command is then killed"`
	Background     bool              `json:"background,omitempty" jsonschema:"start it, as for a server, and answer with its process id at once"`
	SandboxID      string            `json:"sandbox_id,omitempty" jsonschema:"default: this session's sandbox"`
}

const commandSeconds = 60

func (s *Session) runCommand(ctx context.Context, req *mcp.CallToolRequest, in runCommandIn) (*mcp.CallToolResult, any, error) {
	if strings.TrimSpace(in.Command) == "" {
		return nil, nil, fmt.Errorf("command is empty")
	}
	p, err := s.place(ctx, req, in.SandboxID)
	if err != nil {
		return nil, nil, err
	}
	o := pandastack.StartOptions{CWD: in.CWD, Envs: in.Envs, TimeoutSeconds: in.TimeoutSeconds}
	if o.TimeoutSeconds == 0 && !in.Background {
		o.TimeoutSeconds = commandSeconds
	}
	line, log := in.Command, ""
	if in.Background {
		log = "/tmp/background-" + strings.ToLower(rand.Text()[:8]) + ".log"
		line = "exec >" + log + " 2>&1\n" + line
	}
	process, err := p.Start(ctx, pandastack.Shell(line), o)
	if err != nil {
		return nil, nil, err
	}
	if in.Background {
		return p.answer("started with process id %d; its output goes to %s; run_command `kill %d` ends it", process.PID, log, process.PID)
	}
	told := s.progress(ctx, req)
	defer told.stop()
	exit, out, err := follow(ctx, process, told)
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	switch exit.Reason {
	case api.ReasonTimeout:
		notes = append(notes, fmt.Sprintf("killed: it took longer than its %g s; raise timeout_seconds, or start it with background", o.TimeoutSeconds))
	case api.ReasonOOM:
		notes = append(notes, "ended because the sandbox ran out of memory")
	case api.ReasonSignaled, api.ReasonKilled:
		notes = append(notes, "ended by "+firstOf(exit.Signal, "a signal"))
	}
	notes = append(notes, fmt.Sprintf("exit code %d", exit.Code))
	if exit.OutputPath != "" {
		notes = append(notes, "the whole output is in "+exit.OutputPath+" of the sandbox")
	}
	var content []mcp.Content
	if words := strings.Trim(out, "\n"); words != "" {
		content = append(content, &mcp.TextContent{Text: words})
	}
	content = append(content, text("[%s]", strings.Join(notes, "; ")))
	failed := exit.Reason == api.ReasonTimeout || exit.Reason == api.ReasonOOM
	return &mcp.CallToolResult{Content: p.told(content), IsError: failed}, nil, nil
}

// follow gives a command's output when it has ended. A command whose caller
// gives up is killed, with all that it started.
func follow(ctx context.Context, process *pandastack.Process, told *progress) (api.Exit, string, error) {
	running, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		limited, cancel := context.WithTimeout(running, stopTime)
		defer cancel()
		_ = process.Kill(limited) // it may have ended
		stop(ctx.Err())
	})()
	var out spool
	stream := ""
	for e, err := range process.Events(running, 0) {
		if ctx.Err() != nil {
			return api.Exit{}, "", ctx.Err()
		}
		if err != nil {
			return api.Exit{}, "", err
		}
		switch e.Type {
		case api.EventStdout, api.EventStderr:
			if e.Type != stream && (stream != "" || e.Type == api.EventStderr) {
				out.add("\n[" + e.Type + "]\n")
			}
			stream = e.Type
			words := strings.ToValidUTF8(string(pandastack.Bytes(e)), "�")
			out.add(words)
			told.say(words)
		case api.EventGap:
			out.skip(e.Dropped)
		case api.EventExit:
			return *e.Exit, out.String(), nil
		}
	}
	return api.Exit{}, "", fmt.Errorf("the server did not say how the command ended")
}
