package kernel

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/nearest"
)

// programs run code that is given as an argument, by language.
var programs = map[string][]string{
	"bash": {"/bin/bash", "-c"},
	"sh":   {"/bin/sh", "-c"},
	"node": {"node", "-e"},
}

// otherNames are what callers call languages.
var otherNames = map[string]string{"": python, "py": python, "python3": python, "shell": "bash", "js": "node", "javascript": "node", "nodejs": "node"}

// Languages names what OneShot runs.
func Languages() []string { return []string{python, "bash", "sh", "node"} }

// OneShot runs code that leaves no state: Python in a context of its own, the
// others as processes. A timeout of 0 is the default.
func (s *Service) OneShot(ctx context.Context, owner, sid, language, code string, timeout time.Duration) (api.OneShotResult, error) {
	name := strings.ToLower(language)
	if other, ok := otherNames[name]; ok {
		name = other
	}
	if !slices.Contains(Languages(), name) {
		return api.OneShotResult{}, fault.InvalidField("language", "there is no language %.40q here", language).
			WithHint("%s", nearest.Hint(name, Languages(), "languages"))
	}
	if err := guestapi.CheckCode(code); err != nil {
		return api.OneShotResult{}, err
	}
	if timeout < 0 || timeout > s.cfg.MaxTimeout {
		return api.OneShotResult{}, fault.InvalidField("timeout_ms", "timeout_ms must be between 0 and %d, but is %d", s.cfg.MaxTimeout.Milliseconds(), timeout.Milliseconds())
	}
	var x api.Execution
	var err error
	if name == python {
		x, err = s.oncePython(ctx, owner, sid, code, timeout)
	} else {
		x, err = s.onceCommand(ctx, owner, sid, append(slices.Clone(programs[name]), code), timeout)
	}
	return api.OneShotResult{Language: name, Execution: x}, err
}

// oncePrefix begins the ids of contexts that run code once.
const oncePrefix = "once-"

func (s *Service) oncePython(ctx context.Context, owner, sid, code string, timeout time.Duration) (api.Execution, error) {
	c, err := s.CreateContext(ctx, owner, sid, api.CreateContextRequest{ID: newID(oncePrefix)})
	if err != nil {
		return api.Execution{}, err
	}
	defer func() {
		// Also when the caller is gone: nobody else knows this context.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptTime)
		defer cancel()
		if err := s.CloseContext(ctx, owner, sid, c.ID); err != nil {
			s.cfg.Logger.Warn("a one-shot context stays open", "sandbox", sid, "context", c.ID, "error", err)
		}
	}()
	return s.Run(ctx, owner, sid, c.ID, api.RunRequest{Code: code, TimeoutMS: timeout.Milliseconds()})
}

func (s *Service) onceCommand(ctx context.Context, owner, sid string, argv []string, timeout time.Duration) (api.Execution, error) {
	if timeout == 0 {
		timeout = s.cfg.DefaultTimeout
	}
	r, err := s.commands.Exec(ctx, owner, sid, api.ExecRequest{Cmd: api.Command{Argv: argv}, TimeoutSeconds: timeout.Seconds()})
	if err != nil {
		return api.Execution{}, err
	}
	x := api.Execution{
		ExecutionID: newID(""), End: api.EndOK, Stdout: r.Stdout, Stderr: r.Stderr, Exit: r.ExitCode, ExitCode: r.ExitCode, DurationMS: r.DurationMS,
		Truncated: r.Truncated, StdoutDropped: r.StdoutDropped, StderrDropped: r.StderrDropped, OutputPath: r.OutputPath,
		Results: []api.Bundle{}, ResultsMeta: []api.ResultMeta{},
	}
	switch {
	case r.TimedOut:
		words := "the command was stopped at its deadline"
		x.End, x.Error, x.Step = api.EndTimeout, &words, "kill"
	case r.ExitCode != 0:
		x.End = api.EndError
	}
	return x, nil
}
