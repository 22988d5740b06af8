package guest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// What an answer of the guest may hold. More is cut where a cut is harmless
// and refused where it is not.
const (
	maxName      = 128
	maxPath      = 4096
	maxArgs      = 4096
	maxArg       = 128 << 10
	maxMessage   = 4 << 10
	maxTraceback = 1 << 20
	maxListed    = 1024 // processes; ended ones are kept for a while
	maxImports   = 100_000
	maxSteps     = 32
	maxBigLines  = 2 // lines above bigLine that are read at once from one guest
	bigLine      = 256 << 10
)

// cut shortens a string at a character and leaves out what a terminal or a log
// would stumble over: bytes that are not UTF-8.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "�")
}

// plain is cut for words of one line.
func plain(s string, n int) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, cut(s, n))
}

func atLeast0[T int | int64 | float64](v T) T { return max(v, 0) }

func checkContext(c *api.Context, sandboxID string) error {
	if !guestapi.ValidID(c.ID) {
		return fmt.Errorf("context id %q", cut(c.ID, maxName))
	}
	switch c.State {
	case "starting", "idle", "busy", "dead":
	default:
		return fmt.Errorf("context state %q", cut(c.State, maxName))
	}
	c.SandboxID = sandboxID
	c.Language = plain(c.Language, maxName)
	c.CWD = cut(c.CWD, maxPath)
	c.ExecutionCount = atLeast0(c.ExecutionCount)
	c.Queued = atLeast0(c.Queued)
	c.Incarnation = atLeast0(c.Incarnation)
	if !guestapi.ValidID(c.RunningID) {
		c.RunningID = ""
	}
	return nil
}

func checkProcess(p *api.Process) error {
	if p.PID <= 0 {
		return fmt.Errorf("process id %d", p.PID)
	}
	if len(p.Cmd.Argv) > maxArgs {
		return fmt.Errorf("a process with %d arguments", len(p.Cmd.Argv))
	}
	for i, a := range p.Cmd.Argv {
		p.Cmd.Argv[i] = cut(a, maxArg)
	}
	p.Cmd.Shell = cut(p.Cmd.Shell, guestapi.MaxCode)
	p.Tag = cut(p.Tag, maxName)
	p.CWD = cut(p.CWD, maxPath)
	p.User = plain(p.User, maxName)
	p.LastEvent = atLeast0(p.LastEvent)
	if p.PTY != nil {
		size, err := guestapi.CheckPTY(*p.PTY)
		if err != nil {
			return err
		}
		p.PTY = &size
	}
	if p.Exit != nil {
		checkExit(p.Exit)
	}
	return nil
}

func checkExit(x *api.Exit) {
	if x.Code < 0 || x.Code > 255 {
		x.Code = 255
	}
	x.Signal = plain(x.Signal, 32)
	switch x.Reason {
	case api.ReasonExited, api.ReasonSignaled, api.ReasonTimeout, api.ReasonOOM, api.ReasonKilled:
	default:
		x.Reason = api.ReasonExited
	}
	x.DurationMS = atLeast0(x.DurationMS)
	x.StdoutDropped = atLeast0(x.StdoutDropped)
	x.StderrDropped = atLeast0(x.StderrDropped)
	x.OutputPath = cut(x.OutputPath, maxPath)
}

func checkFile(f *api.FileInfo) error {
	if f.Name == "" && f.Path == "" {
		return fmt.Errorf("a file without a name")
	}
	if len(f.RawName) > maxPath {
		return fmt.Errorf("a name of %d bytes", len(f.RawName))
	}
	f.Name = cut(f.Name, maxPath)
	f.Path = cut(f.Path, maxPath)
	f.Target = cut(f.Target, maxPath)
	f.Mode = plain(f.Mode, 1)
	f.Permissions = plain(f.Permissions, 8)
	f.Symbolic = plain(f.Symbolic, 16)
	f.Owner = plain(f.Owner, maxName)
	f.Group = plain(f.Group, maxName)
	f.Size = atLeast0(f.Size)
	return nil
}

// checkEvent bounds an event and clears the fields that are not of its type.
func checkEvent(e *api.Event) error {
	if e.Seq <= 0 {
		return fmt.Errorf("event number %d", e.Seq)
	}
	in := *e
	*e = api.Event{Seq: in.Seq, Type: in.Type}
	switch in.Type {
	case api.EventStarted:
		if guestapi.ValidID(in.ExecutionID) {
			e.ExecutionID = in.ExecutionID
		}
		e.ExecutionCount = atLeast0(in.ExecutionCount)
		e.PID = atLeast0(in.PID)
	case api.EventStdout, api.EventStderr:
		e.Text, e.Raw = in.Text, in.Raw
	case api.EventResult:
		if err := checkData(in.Data, in.Metadata); err != nil {
			return err
		}
		e.Data, e.Metadata, e.IsLastExpression = in.Data, in.Metadata, in.IsLastExpression
	case api.EventInputRequest:
		e.Prompt, e.Password = cut(in.Prompt, maxMessage), in.Password
	case api.EventMessage:
		if err := checkMessage(in.Message); err != nil {
			return err
		}
		e.Message = in.Message
	case api.EventGap:
		if in.Stream != "stdout" && in.Stream != "stderr" {
			return fmt.Errorf("a gap in stream %q", cut(in.Stream, maxName))
		}
		e.Stream, e.Dropped = in.Stream, atLeast0(in.Dropped)
	case api.EventEnd:
		if in.Execution == nil {
			return fmt.Errorf("an end that says nothing")
		}
		if len(in.Reply) > 0 {
			if in.Reply[0] != '{' || guestapi.Depth(in.Reply) > guestapi.MaxDepth {
				return fmt.Errorf("a reply that is no object, or too deep")
			}
			e.Reply = in.Reply
		}
		e.Execution = in.Execution
		return checkExecution(e.Execution)
	case api.EventExit:
		if in.Exit == nil {
			return fmt.Errorf("an exit that says nothing")
		}
		e.Exit = in.Exit
		checkExit(e.Exit)
	default:
		return fmt.Errorf("event type %q", cut(in.Type, maxName))
	}
	return nil
}

func checkMessage(m *api.NotebookMessage) error {
	switch {
	case m == nil || !slices.Contains(guestapi.Messages, m.Type):
		return fmt.Errorf("a message of a type that there is not")
	case len(m.Content) == 0 || m.Content[0] != '{' || guestapi.Depth(m.Content) > guestapi.MaxDepth || guestapi.Depth(m.Metadata) > guestapi.MaxDepth:
		return fmt.Errorf("a message whose content is no object, or too deep")
	case len(m.Buffers) > guestapi.MaxBuffers:
		return fmt.Errorf("a message with %d buffers", len(m.Buffers))
	}
	return nil
}

func checkData(data api.Bundle, meta map[string]json.RawMessage) error {
	if len(data) == 0 || len(data) > guestapi.MaxTypes {
		return fmt.Errorf("a result in %d types", len(data))
	}
	for t := range data {
		if t == "" || len(t) > guestapi.MaxTypeName {
			return fmt.Errorf("a result of type %q", cut(t, maxName))
		}
	}
	if len(meta) > guestapi.MaxMetadata {
		return fmt.Errorf("a result with %d metadata entries", len(meta))
	}
	for k, v := range meta {
		if len(k) > guestapi.MaxTypeName {
			return fmt.Errorf("a metadata key of %d bytes", len(k))
		}
		if d := guestapi.Depth(v); d > guestapi.MaxDepth {
			return fmt.Errorf("metadata nested %d deep", d)
		}
	}
	return nil
}

func checkExecution(x *api.Execution) error {
	switch x.End {
	case api.EndOK, api.EndError, api.EndTimeout, api.EndInterrupted, api.EndOOM, api.EndKernelDied:
	default:
		return fmt.Errorf("an end of kind %q", cut(string(x.End), maxName))
	}
	switch x.Step {
	case "", "interrupt", "terminate", "kill":
	default:
		x.Step = ""
	}
	if !guestapi.ValidID(x.ExecutionID) {
		x.ExecutionID = ""
	}
	x.ExecutionCount = atLeast0(x.ExecutionCount)
	x.DurationMS = atLeast0(x.DurationMS)
	x.StdoutDropped = atLeast0(x.StdoutDropped)
	x.StderrDropped = atLeast0(x.StderrDropped)
	x.OutputPath = cut(x.OutputPath, maxPath)
	x.ErrorName = cut(x.ErrorName, maxMessage)
	x.ErrorValue = cut(x.ErrorValue, maxTraceback)
	if x.Error != nil {
		s := cut(*x.Error, maxTraceback)
		x.Error = &s
	}
	// These travel in events of their own.
	x.Stdout, x.Stderr, x.Results, x.ResultsMeta = "", "", nil, nil
	return nil
}
