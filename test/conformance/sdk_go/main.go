// Command sdk_go is the Go SDK behind the conformance programme's operations:
// a line of JSON in, a line of JSON out. See sdk_python.py beside it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// args are those of one operation, under their names.
type args struct {
	raw json.RawMessage
	// What most operations have.
	Sandbox, Context string
	PID              int
	ID, Name, Path   string
	Count            *int
	Data             []byte
	Metadata         map[string]string
	TimeoutSeconds   float64 `json:"timeout_seconds"`
}

type operation func(ctx context.Context, c *pandastack.Client, a args) (any, error)

// ofClient reads the arguments as a T.
func ofClient[T any](call func(context.Context, *pandastack.Client, T) (any, error)) operation {
	return func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		var v T
		if err := json.Unmarshal(a.raw, &v); err != nil {
			return nil, err
		}
		return call(ctx, c, v)
	}
}

func ofSandbox[T any](call func(context.Context, *pandastack.Sandbox, T) (any, error)) operation {
	return func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		var v T
		if err := json.Unmarshal(a.raw, &v); err != nil {
			return nil, err
		}
		return call(ctx, c.Sandbox(a.Sandbox), v)
	}
}

func ofContext(call func(context.Context, *pandastack.CodeContext, args) (any, error)) operation {
	return func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		return call(ctx, c.Sandbox(a.Sandbox).Context(a.Context), a)
	}
}

func ofProcess(call func(context.Context, *pandastack.Process, args) (any, error)) operation {
	return func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		p, err := c.Sandbox(a.Sandbox).Connect(ctx, a.PID)
		if err != nil {
			return nil, err
		}
		return call(ctx, p, a)
	}
}

// run is how a cell runs.
type run struct {
	Code           string
	TimeoutSeconds float64 `json:"timeout_seconds"`
	ExecutionID    string  `json:"execution_id"`
	Detach         bool
	After          int64
	Language       string
}

func (a args) run() (r run, o pandastack.RunOptions, err error) {
	err = json.Unmarshal(a.raw, &r)
	return r, pandastack.RunOptions{Timeout: seconds(r.TimeoutSeconds), ExecutionID: r.ExecutionID, Detach: r.Detach}, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// command is how a command runs.
type command struct {
	Cmd            api.Command
	TimeoutSeconds float64 `json:"timeout_seconds"`
	CWD            string
	Envs           map[string]string
	User           string
	Stdin          json.RawMessage
	Tag            string
	Check          bool
	Rows, Cols     int
}

func (c command) exec() pandastack.ExecOptions {
	o := pandastack.ExecOptions{TimeoutSeconds: c.TimeoutSeconds, CWD: c.CWD, Envs: c.Envs, User: c.User, Check: c.Check}
	var text string
	if json.Unmarshal(c.Stdin, &text) == nil {
		o.Stdin = &text
	}
	return o
}

func (c command) start() pandastack.StartOptions {
	return pandastack.StartOptions{
		TimeoutSeconds: c.TimeoutSeconds, CWD: c.CWD, Envs: c.Envs, User: c.User, Tag: c.Tag, Stdin: string(c.Stdin) == "true",
	}
}

type events struct {
	Tail, After, Count int64
	Stream             string
	Follow             bool
}

func (e events) options() pandastack.EventOptions {
	return pandastack.EventOptions{Tail: int(e.Tail), After: e.After, Follow: e.Follow || e.Count > 0}
}

// collect takes so many of a stream, all of it when count is 0.
func collect[T any](items iter.Seq2[T, error], count int64) (any, error) {
	all := []T{}
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if all = append(all, item); int64(len(all)) == count {
			break
		}
	}
	return all, nil
}

// cellEvents shows events with the fields of the last one flat, as they travel.
func cellEvents(items iter.Seq2[api.Event, error]) (any, error) {
	all := []map[string]any{}
	for e, err := range items {
		if err != nil {
			return nil, err
		}
		if e.Raw != nil {
			e.Text = string(bytes.ToValidUTF8(e.Raw, []byte("�")))
		}
		flat := map[string]any{}
		for _, part := range []any{e, e.Execution, e.Exit} {
			raw, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			if string(raw) == "null" {
				continue
			}
			if err := json.Unmarshal(raw, &flat); err != nil {
				return nil, err
			}
		}
		delete(flat, "execution")
		delete(flat, "exit")
		all = append(all, flat)
	}
	return all, nil
}

// waited is how a process ended, with its output.
func waited(ctx context.Context, p *pandastack.Process) (any, error) {
	var stdout, stderr bytes.Buffer
	x, err := p.Wait(ctx, 0, &stdout, &stderr)
	return struct {
		api.Exit
		Stdout string `json:"stdout"`
		Stderr string `json:"stderr"`
	}{x, stdout.String(), stderr.String()}, err
}

func contextOf(c *pandastack.CodeContext, warnings []string) any {
	return map[string]any{"id": c.ID, "language": c.Info.Language, "warnings": warnings}
}

func ofRun(call func(context.Context, *pandastack.AgentRun, args) (any, error)) operation {
	return func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		r, err := c.GetAgent(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		return call(ctx, r, a)
	}
}

type none struct{}

var operations = map[string]operation{
	"agents.start": ofClient(func(ctx context.Context, c *pandastack.Client, a struct {
		Options struct {
			api.AgentRequest
			ModelKey string `json:"model_key"`
		}
		Task      string
		Files     map[string]string
		SandboxID string   `json:"sandbox_id"`
		DataFiles []string `json:"data_files"`
		Follows   string
		Metadata  map[string]string
	}) (any, error) {
		o := pandastack.AgentOptions{AgentRequest: a.Options.AgentRequest, ModelKey: a.Options.ModelKey}
		o.Task, o.SandboxID, o.Metadata, o.Data, o.Follows = a.Task, a.SandboxID, a.Metadata, a.DataFiles, a.Follows
		for _, name := range slices.Sorted(maps.Keys(a.Files)) {
			o.Files = append(o.Files, api.AgentFile{Path: name, Content: []byte(a.Files[name])})
		}
		r, err := c.StartAgent(ctx, o)
		if err != nil {
			return nil, err
		}
		return r.Info, nil
	}),
	"agents.functions": ofClient(functionsOfAgents),
	"agents.get":       ofRun(func(_ context.Context, r *pandastack.AgentRun, _ args) (any, error) { return r.Info, nil }),
	"agents.runs": ofClient(func(ctx context.Context, c *pandastack.Client, o struct{ Limit int }) (any, error) {
		return c.Agents(ctx, o.Limit)
	}),
	"agent.wait": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) {
		info, err := r.Wait(ctx)
		return map[string]any{"answer": info.Answer, "reason": info.Reason}, err
	}),
	"agent.events": ofRun(func(ctx context.Context, r *pandastack.AgentRun, a args) (any, error) {
		o, _, err := a.run()
		if err != nil {
			return nil, err
		}
		return collect(r.Events(ctx, o.After), 0)
	}),
	"agent.transcript": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) { return r.Transcript(ctx) }),
	"agent.figure": ofRun(func(ctx context.Context, r *pandastack.AgentRun, a args) (any, error) {
		var o struct{ File string }
		if err := json.Unmarshal(a.raw, &o); err != nil {
			return nil, err
		}
		return r.Figure(ctx, o.File)
	}),
	"agent.notebook": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) { return r.Notebook(ctx) }),
	"agent.report": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) {
		page, err := r.Report(ctx)
		return string(page), err
	}),
	"agent.refresh": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) {
		err := r.Refresh(ctx)
		return r.Info, err
	}),
	"agent.cancel": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) { return nil, r.Cancel(ctx) }),
	"agent.delete": ofRun(func(ctx context.Context, r *pandastack.AgentRun, _ args) (any, error) { return nil, r.Delete(ctx) }),

	"filesystem.copied_dir": ofSandbox(copiedDir),

	"version": ofClient(func(ctx context.Context, c *pandastack.Client, _ none) (any, error) { return c.Version(ctx) }),
	"me":      ofClient(func(ctx context.Context, c *pandastack.Client, _ none) (any, error) { return c.Me(ctx) }),
	"events": ofClient(func(ctx context.Context, c *pandastack.Client, e events) (any, error) {
		return collect(c.Events(ctx, e.options()), 0)
	}),
	"tokens.list": ofClient(func(ctx context.Context, c *pandastack.Client, o struct{ Workspace string }) (any, error) {
		return c.Keys(ctx, o.Workspace)
	}),
	"tokens.create": ofClient(func(ctx context.Context, c *pandastack.Client, o pandastack.KeyOptions) (any, error) {
		return c.CreateKey(ctx, o)
	}),
	"tokens.revoke": ofClient(func(ctx context.Context, c *pandastack.Client, o struct{ Prefix string }) (any, error) {
		return nil, c.RevokeKey(ctx, o.Prefix)
	}),
	"templates.list": ofClient(func(ctx context.Context, c *pandastack.Client, _ none) (any, error) { return c.Templates(ctx) }),
	"templates.get":  ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) { return c.Template(ctx, a.Name) }),
	"snapshots.list": ofClient(func(ctx context.Context, c *pandastack.Client, o struct {
		SandboxID string `json:"sandbox_id"`
	}) (any, error) {
		return c.Snapshots(ctx, o.SandboxID)
	}),
	"snapshots.get": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) { return c.Snapshot(ctx, a.ID) }),
	"snapshots.update": func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		var p api.SnapshotPatch
		if err := json.Unmarshal(a.raw, &p); err != nil {
			return nil, err
		}
		return c.PatchSnapshot(ctx, a.ID, p)
	},
	"snapshots.copied": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		r, err := c.ExportSnapshot(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return c.ImportSnapshot(ctx, r, a.Name)
	}),
	"snapshots.delete": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		return nil, c.DeleteSnapshot(ctx, a.ID)
	}),
	"sandboxes.create": ofClient(func(ctx context.Context, c *pandastack.Client, o struct {
		pandastack.CreateOptions
		Key string `json:"idempotency_key"`
	}) (any, error) {
		o.IdempotencyKey = o.Key
		sb, err := c.Create(ctx, o.CreateOptions)
		if err != nil {
			return nil, err
		}
		return sb.Info, nil
	}),
	"sandboxes.get": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		sb, err := c.Get(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		return sb.Info, nil
	}),
	"sandboxes.list": ofClient(func(ctx context.Context, c *pandastack.Client, o pandastack.ListOptions) (any, error) {
		return c.List(ctx, o)
	}),
	"sandbox.kill":      ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return nil, s.Kill(ctx) }),
	"sandbox.lifecycle": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Lifecycle(ctx) }),
	"sandbox.set_lifecycle": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, p api.LifecyclePatch) (any, error) {
		return s.PatchLifecycle(ctx, p)
	}),
	"sandbox.metrics": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Metrics(ctx) }),
	"sandbox.pause":   ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return nil, s.Pause(ctx) }),
	"sandbox.resume":  ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return nil, s.Resume(ctx) }),
	"sandbox.hibernate": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.CarryRequest) (any, error) {
		return nil, s.Hibernate(ctx, o)
	}),
	"sandbox.wake": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return nil, s.Wake(ctx) }),
	"sandbox.snapshot": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.SnapshotRequest) (any, error) {
		return s.Snapshot(ctx, o)
	}),
	"sandbox.fork": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.ForkRequest) (any, error) {
		f, err := s.Fork(ctx, o)
		if err == nil && o.Count == nil {
			return f.Children[0], nil
		}
		return f.Children, err
	}),
	"sandbox.fork_tree": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.ForkRequest) (any, error) {
		f, err := s.ForkTree(ctx, o)
		return f.Children, err
	}),
	"sandbox.promote": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.PromoteRequest) (any, error) {
		return s.Promote(ctx, o)
	}),
	"sandbox.explore": ofSandbox(explore),
	"sandbox.events": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) {
		return collect(s.Events(ctx, e.options()), 0)
	}),
	"sandbox.follow_events": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) {
		return collect(s.Events(ctx, e.options()), e.Count)
	}),
	"sandbox.logs":        ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) { return logs(ctx, s, e, false) }),
	"sandbox.follow_logs": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) { return logs(ctx, s, e, true) }),
	"sandbox.languages":   ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Languages(ctx) }),
	"network.get":         ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Network(ctx) }),
	"network.set": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, p api.NetworkPatch) (any, error) {
		return s.SetNetwork(ctx, p)
	}),
	"network.log": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) {
		return collect(s.NetworkLog(ctx, pandastack.NetworkLogOptions{Tail: int(e.Tail)}), 0)
	}),
	"network.follow": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, e events) (any, error) {
		return collect(s.NetworkLog(ctx, pandastack.NetworkLogOptions{Tail: int(e.Tail), Follow: true}), e.Count)
	}),
	"secrets.list": ofClient(func(ctx context.Context, c *pandastack.Client, _ none) (any, error) {
		list, err := c.Secrets(ctx)
		names := []string{}
		for _, s := range list {
			names = append(names, s.Name)
		}
		return names, err
	}),
	"secrets.set": ofClient(func(ctx context.Context, c *pandastack.Client, o struct{ Name, Value string }) (any, error) {
		_, err := c.SetSecret(ctx, o.Name, o.Value)
		return nil, err
	}),
	"secrets.delete": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		return nil, c.DeleteSecret(ctx, a.Name)
	}),
	"tools.list": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) {
		l, err := s.Tools(ctx)
		return l.Tools, err
	}),
	"tools.set": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o struct{ Tools api.Tools }) (any, error) {
		l, err := s.SetTools(ctx, o.Tools)
		return l.Tools, err
	}),
	"tools.serve": ofSandbox(serveTools),
	"tools.calls": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o struct{ Limit int }) (any, error) {
		return s.ToolCalls(ctx, o.Limit)
	}),
	"tools.close": ofSandbox(func(_ context.Context, s *pandastack.Sandbox, _ none) (any, error) {
		served[s.ID].CloseTools()
		return nil, nil
	}),
	"tools.decided": decided,
	"approvals.list": ofClient(func(ctx context.Context, c *pandastack.Client, o struct {
		SandboxID string `json:"sandbox_id"`
		AgentID   string `json:"agent_id"`
		Status    string
	}) (any, error) {
		return c.Approvals(ctx, pandastack.ApprovalFilter(o))
	}),
	"approvals.get": ofClient(func(ctx context.Context, c *pandastack.Client, a args) (any, error) { return c.Approval(ctx, a.ID) }),
	"approvals.decide": ofClient(func(ctx context.Context, c *pandastack.Client, o struct {
		ID string
		api.Decision
	}) (any, error) {
		return c.Decide(ctx, o.ID, o.Decision)
	}),
	"sandbox.ports": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Ports(ctx) }),
	"sandbox.name_port": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.CreatePortRequest) (any, error) {
		return s.NamePort(ctx, o.Port, o.Label, o.Public)
	}),
	"sandbox.forget_port": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.CreatePortRequest) (any, error) {
		return nil, s.ForgetPort(ctx, o.Port)
	}),
	"sandbox.signed_preview_url": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.PreviewTokenRequest) (any, error) {
		link := pandastack.PreviewOptions{Paths: o.Paths}
		if o.TTLSeconds != nil {
			link.TTL = time.Duration(*o.TTLSeconds) * time.Second
		}
		t, err := s.SignedPreviewURL(ctx, o.Port, link)
		return t.URL, err
	}),
	"sandbox.run_code": func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		r, o, err := a.run()
		if err != nil {
			return nil, err
		}
		if r.Language == "" || r.Language == "python" {
			return c.Sandbox(a.Sandbox).RunCode(ctx, r.Code, o)
		}
		return c.Sandbox(a.Sandbox).RunOnce(ctx, r.Language, r.Code, seconds(r.TimeoutSeconds))
	},
	"sandbox.create_code_context": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o api.CreateContextRequest) (any, error) {
		c, err := s.CreateContext(ctx, o)
		if err != nil {
			return nil, err
		}
		return contextOf(c, nil), nil
	}),
	"sandbox.contexts": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) {
		list, err := s.Contexts(ctx)
		ids := []string{}
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		return ids, err
	}),
	"sandbox.exec": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, c command) (any, error) {
		return s.Exec(ctx, c.Cmd, c.exec())
	}),
	"sandbox.exec_stream": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, c command) (any, error) {
		exit, heard := 0, [][2]string{}
		for out, err := range s.ExecStream(ctx, c.Cmd, c.exec(), &exit) {
			if err != nil {
				return nil, err
			}
			heard = append(heard, [2]string{out.Stream, out.Text})
		}
		return map[string]any{"value": exit, "heard": heard}, nil
	}),
	"context.run_code": ofContext(func(ctx context.Context, c *pandastack.CodeContext, a args) (any, error) {
		r, o, err := a.run()
		if err != nil {
			return nil, err
		}
		return c.Run(ctx, r.Code, o)
	}),
	"context.stream": ofContext(func(ctx context.Context, c *pandastack.CodeContext, a args) (any, error) {
		r, o, err := a.run()
		if err != nil {
			return nil, err
		}
		return cellEvents(c.Stream(ctx, r.Code, o))
	}),
	"context.attach": ofContext(func(ctx context.Context, c *pandastack.CodeContext, a args) (any, error) {
		r, _, err := a.run()
		if err != nil {
			return nil, err
		}
		return cellEvents(c.Attach(ctx, r.ExecutionID, r.After))
	}),
	"context.interrupt": ofContext(func(ctx context.Context, c *pandastack.CodeContext, _ args) (any, error) {
		return nil, c.Interrupt(ctx)
	}),
	"context.restart": ofContext(func(ctx context.Context, c *pandastack.CodeContext, _ args) (any, error) { return nil, c.Restart(ctx) }),
	"context.fork": ofContext(func(ctx context.Context, c *pandastack.CodeContext, a args) (any, error) {
		count := 1
		if a.Count != nil {
			count = *a.Count
		}
		copies, warnings, err := c.Fork(ctx, count)
		if err != nil {
			return nil, err
		}
		made := []any{}
		for _, each := range copies {
			made = append(made, contextOf(each, warnings))
		}
		if a.Count == nil {
			return made[0], nil
		}
		return made, nil
	}),
	"context.info": ofContext(func(ctx context.Context, c *pandastack.CodeContext, _ args) (any, error) {
		err := c.Refresh(ctx)
		return c.Info, err
	}),
	"context.close": ofContext(func(ctx context.Context, c *pandastack.CodeContext, _ args) (any, error) { return nil, c.Close(ctx) }),
	"commands.start": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, c command) (any, error) {
		p, err := s.Start(ctx, c.Cmd, c.start())
		if err != nil {
			return nil, err
		}
		return map[string]int{"pid": p.PID}, nil
	}),
	"pty.create": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, c command) (any, error) {
		o := c.start()
		o.PTY = &pandastack.PTY{Rows: c.Rows, Cols: c.Cols}
		p, err := s.Start(ctx, c.Cmd, o)
		if err != nil {
			return nil, err
		}
		return map[string]int{"pid": p.PID}, nil
	}),
	"pty.resize": ofProcess(func(ctx context.Context, p *pandastack.Process, a args) (any, error) {
		var size pandastack.PTY
		if err := json.Unmarshal(a.raw, &size); err != nil {
			return nil, err
		}
		return nil, p.Resize(ctx, size)
	}),
	"commands.list": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, _ none) (any, error) { return s.Processes(ctx) }),
	"process.info":  ofProcess(func(_ context.Context, p *pandastack.Process, _ args) (any, error) { return p.Info, nil }),
	"process.wait":  ofProcess(func(ctx context.Context, p *pandastack.Process, _ args) (any, error) { return waited(ctx, p) }),
	"process.stream": ofProcess(func(ctx context.Context, p *pandastack.Process, a args) (any, error) {
		r, _, err := a.run()
		if err != nil {
			return nil, err
		}
		return cellEvents(p.Events(ctx, r.After))
	}),
	"process.send_stdin": ofProcess(func(ctx context.Context, p *pandastack.Process, a args) (any, error) {
		var o struct{ Close bool }
		if err := json.Unmarshal(a.raw, &o); err != nil {
			return nil, err
		}
		err := p.WriteStdin(ctx, bytes.NewReader(a.Data))
		if err == nil && o.Close {
			err = p.CloseStdin(ctx)
		}
		return nil, err
	}),
	"process.close_stdin": ofProcess(func(ctx context.Context, p *pandastack.Process, _ args) (any, error) { return nil, p.CloseStdin(ctx) }),
	"process.signal": ofProcess(func(ctx context.Context, p *pandastack.Process, a args) (any, error) {
		var o struct{ Signal string }
		if err := json.Unmarshal(a.raw, &o); err != nil {
			return nil, err
		}
		return nil, p.Signal(ctx, o.Signal)
	}),
	"process.kill": ofProcess(func(ctx context.Context, p *pandastack.Process, _ args) (any, error) { return nil, p.Kill(ctx) }),
	"filesystem.read": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o struct {
		Path  string
		Start *int64
		End   int64
	}) (any, error) {
		if o.Start == nil {
			return s.ReadFile(ctx, o.Path)
		}
		length := int64(0)
		if o.End > 0 {
			length = o.End - *o.Start
		}
		f, err := s.OpenRange(ctx, o.Path, *o.Start, length)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(f)
	}),
	"filesystem.write": func(ctx context.Context, c *pandastack.Client, a args) (any, error) {
		var o struct {
			Mode   string
			Append bool
		}
		if err := json.Unmarshal(a.raw, &o); err != nil {
			return nil, err
		}
		mode, err := strconv.ParseUint("0"+o.Mode, 8, 32)
		if err != nil {
			return nil, err
		}
		return c.Sandbox(a.Sandbox).WriteFrom(ctx, a.Path, bytes.NewReader(a.Data), pandastack.WriteOptions{Mode: fs.FileMode(mode), Append: o.Append})
	},
	"filesystem.list":   ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, a args) (any, error) { return s.ReadDir(ctx, a.Path) }),
	"filesystem.stat":   ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, a args) (any, error) { return s.Stat(ctx, a.Path) }),
	"filesystem.exists": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, a args) (any, error) { return s.Exists(ctx, a.Path) }),
	"filesystem.watch":  ofSandbox(watched),
	"filesystem.download_url": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o link) (any, error) {
		l, err := s.DownloadURL(ctx, o.Path, o.options())
		return l.URL, err
	}),
	"filesystem.upload_url": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o link) (any, error) {
		l, err := s.UploadURL(ctx, o.Path, o.options())
		return l.URL, err
	}),
	"filesystem.mkdir": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, a args) (any, error) {
		return nil, s.Mkdir(ctx, a.Path)
	}),
	"filesystem.move": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o struct {
		Source, Target string
		Overwrite      bool
	}) (any, error) {
		return nil, s.Move(ctx, o.Source, o.Target, o.Overwrite)
	}),
	"filesystem.remove": ofSandbox(func(ctx context.Context, s *pandastack.Sandbox, o struct {
		Path      string
		Recursive bool
	}) (any, error) {
		return nil, s.Remove(ctx, o.Path, o.Recursive)
	}),
}

func logs(ctx context.Context, s *pandastack.Sandbox, e events, follow bool) (any, error) {
	lines := []string{}
	for l, err := range s.Logs(ctx, pandastack.LogOptions{Stream: e.Stream, Follow: follow}) {
		if err != nil {
			return nil, err
		}
		if lines = append(lines, l.Line); follow && int64(len(lines)) == e.Count {
			break
		}
	}
	return lines, nil
}

// entry is a file or link of a folder of this machine.
type entry struct {
	Text  string `json:"text,omitempty"`
	Link  string `json:"link,omitempty"`
	Mode  string `json:"mode,omitempty"`
	MTime int64  `json:"mtime,omitempty"`
}

// copiedDir makes a folder here, and has it go in and come out into another.
func copiedDir(ctx context.Context, s *pandastack.Sandbox, o struct {
	Path string
	Tree map[string]entry
}) (any, error) {
	here, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(here)
	for name, e := range o.Tree {
		if err := e.make(filepath.Join(here, "in", name)); err != nil {
			return nil, err
		}
	}
	sent, left := []string{}, []string{}
	up, err := s.UploadDir(ctx, filepath.Join(here, "in"), o.Path, pandastack.DirOptions{LeftOut: func(n, _ string) { sent = append(sent, n) }})
	if err != nil {
		return nil, err
	}
	down, err := s.DownloadDir(ctx, o.Path, filepath.Join(here, "out"), pandastack.DirOptions{LeftOut: func(n, _ string) { left = append(left, n) }})
	if err != nil {
		return nil, err
	}
	tree := map[string]entry{}
	out := filepath.Join(here, "out")
	err = filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(out, path)
		if err != nil {
			return err
		}
		tree[name], err = seen(path)
		return err
	})
	of := func(files, folders, links int, size int64, left []string) map[string]any {
		return map[string]any{"files": files, "folders": folders, "links": links, "bytes": size, "left_out": left}
	}
	return map[string]any{
		"sent": of(up.Files, up.Folders, up.Links, up.Bytes, sent), "got": of(down.Files, down.Folders, down.Links, down.Bytes, left), "tree": tree,
	}, err
}

func (e entry) make(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if e.Link != "" {
		return os.Symlink(e.Link, path)
	}
	mode, err := strconv.ParseUint("0"+e.Mode, 8, 32)
	if err != nil {
		return err
	}
	if mode == 0 {
		mode = 0o644
	}
	if err := os.WriteFile(path, []byte(e.Text), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, fs.FileMode(mode)); err != nil {
		return err
	}
	return os.Chtimes(path, time.Unix(e.MTime, 0), time.Unix(e.MTime, 0))
}

func seen(path string) (entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return entry{}, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		return entry{Link: to}, err
	}
	text, err := os.ReadFile(path)
	return entry{Text: string(text), Mode: strconv.FormatUint(uint64(info.Mode().Perm()), 8), MTime: info.ModTime().Unix()}, err
}

func explore(ctx context.Context, s *pandastack.Sandbox, o struct {
	Candidates []struct {
		Cmd            api.Command
		Label          string
		TimeoutSeconds float64 `json:"timeout_seconds"`
	}
	Metadata map[string]string
}) (any, error) {
	tries := []pandastack.Candidate{}
	for _, c := range o.Candidates {
		tries = append(tries, pandastack.Candidate(c))
	}
	x, err := s.Explore(ctx, tries, pandastack.ExploreOptions{Metadata: o.Metadata})
	if err != nil {
		return nil, err
	}
	outcomes := []map[string]any{}
	for _, out := range x.Outcomes {
		outcomes = append(outcomes, map[string]any{
			"index": out.Index, "label": out.Label, "cmd": out.Cmd, "sandbox_id": out.SandboxID, "exit_code": out.ExitCode,
			"stdout_tail": out.Stdout, "stderr_tail": out.Stderr, "duration_ms": out.DurationMS, "files": out.Files, "score": out.Score,
		})
	}
	return map[string]any{
		"winner": x.Winner.ID, "index": x.WinnerOutcome.Index, "tree_id": x.TreeID, "outcomes": outcomes,
		"reaped": x.Reaped, "reap_failures": x.ReapFailures, "errors": x.Errors,
	}, nil
}

// link is how far a link goes.
type link struct {
	Path       string
	TTLSeconds float64 `json:"ttl_seconds"`
	MaxBytes   int64   `json:"max_bytes"`
}

func (l link) options() pandastack.LinkOptions {
	return pandastack.LinkOptions{TTL: seconds(l.TTLSeconds), MaxBytes: l.MaxBytes}
}

// watched gives so many changes, the first of which may be one that is made here.
func watched(ctx context.Context, s *pandastack.Sandbox, o struct {
	Path, Write string
	Recursive   bool
	Count       int
}) (any, error) {
	var changes []pandastack.FileEvent
	for e, err := range s.Watch(ctx, o.Path, pandastack.WatchOptions{Recursive: o.Recursive}) {
		switch {
		case err != nil:
			return nil, err
		case e.Type != api.FileStarted:
			e.Seq = 0
			changes = append(changes, e)
		case o.Write != "":
			if err := s.WriteFile(ctx, o.Write, []byte("x")); err != nil {
				return nil, err
			}
		}
		if len(changes) == o.Count {
			break
		}
	}
	return changes, nil
}

// kinds are what errors.Is tells apart.
var kinds = []struct {
	is   error
	name string
}{
	{pandastack.ErrUnauthenticated, "auth"}, {pandastack.ErrDenied, "auth"}, {pandastack.ErrNotFound, "not_found"},
	{pandastack.ErrConflict, "conflict"}, {pandastack.ErrRateLimited, "rate_limited"}, {pandastack.ErrInvalid, "bad_request"},
	{pandastack.ErrTooLarge, "bad_request"}, {pandastack.ErrNoCapacity, "capacity"}, {pandastack.ErrNoSpace, "capacity"},
	{pandastack.ErrTimeout, "timeout"}, {pandastack.ErrInternal, "server"}, {pandastack.ErrUnsupported, "server"}, {pandastack.ErrUnreachable, "server"},
	{pandastack.ErrConnection, "connection"},
}

func failure(err error) map[string]any {
	f := map[string]any{"message": err.Error()}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			f["kind"] = k.name
		}
	}
	var e *pandastack.Error
	if errors.As(err, &e) {
		stdout, stderr := e.Output()
		maps.Copy(f, map[string]any{
			"status_code": e.StatusCode, "code": e.Code, "hint": e.Hint, "field": e.Field, "request_id": e.RequestID,
			"retry_after": e.RetryAfter.Seconds(), "stdout": stdout, "stderr": stderr,
		})
	}
	var c *pandastack.CommandError
	if errors.As(err, &c) {
		maps.Copy(f, map[string]any{"kind": "command", "exit_code": c.Result.ExitCode, "stdout": c.Result.Stdout, "stderr": c.Result.Stderr})
	}
	var x *pandastack.ExploreError
	if errors.As(err, &x) {
		f["kind"] = "explore"
	}
	return f
}

func perform(ctx context.Context, c *pandastack.Client, line []byte) (map[string]any, error) {
	var step struct {
		Op   string
		Args json.RawMessage
	}
	if err := json.Unmarshal(line, &step); err != nil {
		return nil, err
	}
	do := operations[step.Op]
	if do == nil {
		return nil, fmt.Errorf("there is no operation %q", step.Op)
	}
	a := args{raw: step.Args}
	if a.raw == nil {
		a.raw = json.RawMessage("{}")
	}
	if err := json.Unmarshal(a.raw, &a); err != nil {
		return nil, err
	}
	value, err := do(ctx, c, a)
	if err != nil {
		return map[string]any{"error": failure(err)}, nil
	}
	return map[string]any{"value": value}, nil
}

func serve(ctx context.Context) error {
	c, err := pandastack.NewClient()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		answer, err := perform(ctx, c, lines.Bytes())
		if err != nil {
			return err
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// served are the sandboxes whose functions are here.
var served = map[string]*pandastack.Sandbox{}

type numbers struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// serveTools gives a sandbox functions of this program.
func serveTools(ctx context.Context, s *pandastack.Sandbox, o struct{ Policy api.ToolPolicy }) (any, error) {
	add := pandastack.Func("add", "Add.", func(_ context.Context, n numbers) (any, error) { return map[string]float64{"sum": n.A + n.B}, nil })
	add.Risky = true
	type words struct {
		Why string `json:"why"`
	}
	fail := pandastack.Func("ns.fail", "", func(context.Context, words) (any, error) {
		return nil, &pandastack.ToolError{Kind: "unfit", Message: "Unfit: it does not fit"}
	})
	l, err := s.SetTools(ctx, api.Tools{Policy: o.Policy}, add, fail)
	if err != nil {
		return nil, err
	}
	served[s.ID] = s
	told := []map[string]any{}
	for _, t := range l.Tools {
		told = append(told, map[string]any{"name": t.Name, "source": t.Source, "risky": t.Risky})
	}
	return told, nil
}

// functionsOfAgents is a run whose code calls a function of this program, its fork,
// and the fork for which the function is missing.
func functionsOfAgents(ctx context.Context, c *pandastack.Client, a struct {
	Options api.AgentRequest
	Task    string
}) (any, error) {
	calls := [][]float64{}
	add := pandastack.Func("add", "", func(_ context.Context, n numbers) (map[string]float64, error) {
		calls = append(calls, []float64{n.A, n.B})
		return map[string]float64{"sum": n.A + n.B}, nil
	})
	first := a.Options
	first.Task = a.Task
	run, err := c.StartAgent(ctx, pandastack.AgentOptions{AgentRequest: first, Functions: []pandastack.Function{add}})
	if err != nil {
		return nil, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return nil, err
	}
	fork := a.Options
	fork.Fork = &api.AgentFork{Of: run.ID, At: 2}
	again, err := c.StartAgent(ctx, pandastack.AgentOptions{AgentRequest: fork, Functions: []pandastack.Function{add}})
	if err != nil {
		return nil, err
	}
	differ := []string{}
	for e, err := range again.Events(ctx, 0) {
		if err != nil {
			return nil, err
		}
		if e.Forked != nil {
			differ = append(differ, e.Forked.Differ...)
		}
	}
	_, err = c.StartAgent(ctx, pandastack.AgentOptions{AgentRequest: fork})
	lacking := errors.Is(err, pandastack.ErrInvalid) && strings.Contains(err.Error(), ": add")
	return map[string]any{"answer": run.Info.Answer, "again": again.Info.Answer, "differ": differ, "calls": calls, "lacking": lacking}, nil
}

// decided runs a cell that makes a call about which somebody is asked, and is
// that somebody.
func decided(ctx context.Context, c *pandastack.Client, a args) (any, error) {
	var o struct {
		Code string
		api.Decision
	}
	if err := json.Unmarshal(a.raw, &o); err != nil {
		return nil, err
	}
	type end struct {
		x   *pandastack.Execution
		err error
	}
	cell := make(chan end, 1)
	go func() {
		x, err := c.Sandbox(a.Sandbox).RunCode(ctx, o.Code, pandastack.RunOptions{})
		cell <- end{x, err}
	}()
	for {
		waiting, err := c.Approvals(ctx, pandastack.ApprovalFilter{SandboxID: a.Sandbox, Status: api.ApprovalPending})
		if err != nil {
			return nil, err
		}
		if len(waiting) == 0 {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		approval, err := c.Decide(ctx, waiting[0].ID, o.Decision)
		if err != nil {
			return nil, err
		}
		done := <-cell
		if done.err != nil {
			return nil, done.err
		}
		return map[string]any{"waiting": waiting[0], "approval": approval, "stdout": done.x.Stdout}, nil
	}
}

// surface is the public methods of each noun.
func surface() map[string]map[string][]string {
	nouns := map[string][]string{}
	for _, v := range []any{
		&pandastack.Client{}, &pandastack.Sandbox{}, &pandastack.CodeContext{}, &pandastack.Process{}, &pandastack.AgentRun{}, &pandastack.Analyst{}, &pandastack.PortConn{},
	} {
		t := reflect.TypeOf(v)
		for i := range t.NumMethod() {
			nouns[t.Elem().Name()] = append(nouns[t.Elem().Name()], t.Method(i).Name)
		}
	}
	return map[string]map[string][]string{"nouns": nouns}
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--surface" {
		_ = json.NewEncoder(os.Stdout).Encode(surface())
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "--ops" {
		_ = json.NewEncoder(os.Stdout).Encode(slices.Sorted(maps.Keys(operations)))
		return
	}
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
