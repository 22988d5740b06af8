// Package process runs commands in a sandbox and waits for them: it starts
// them in the guest, follows their output, attaches again when the link breaks
// in the middle, and keeps the deadline. The HTTP API calls it, and package
// kernel for one-shot code in other languages.
//
// Processes that are only started and listed need none of it: those calls go
// straight to guest.Client.
package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/capture"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	grace    = 30 * time.Second // the guest gets to end a command after its deadline
	killTime = 10 * time.Second // for the kill of a command whose caller is gone
	maxEnvs  = 128 << 10
	maxStdin = 10 << 20
	maxWords = 4 << 10 // of the end of the output, for a hint

	tagPrefix = "exec-" // of the tags of commands that are waited for
	maxID     = 64      // bytes of an execution id
)

// Guests gives the link to a sandbox for the length of one call. It is
// sandbox.Manager.
type Guests interface {
	Guest(ctx context.Context, owner, sandboxID string) (*guest.Client, func(), error)
}

// Notes keeps what happens in a sandbox. It is sandbox.Manager.
type Notes interface {
	Note(owner, sandboxID, kind string, payload map[string]any)
}

// Config bounds commands. Zero values mean the defaults beside them.
type Config struct {
	Notes          Notes         // nil: nothing is noted
	DefaultTimeout time.Duration // 60 s
	MaxTimeout     time.Duration // 24 h; a request for more is invalid
	DisconnectWait time.Duration // 10 s until the command of a caller that is gone is killed, if it has an id; else at once

	// Hint says which limit of a sandbox explains the end of a command, "" when none does.
	Hint func(ctx context.Context, owner, sandboxID, end, words string) string
}

// Service runs commands. Close it before the requests in progress are
// cancelled at the end of the daemon, so that their commands go on.
type Service struct {
	guests Guests
	cfg    Config
	left   *leaving
}

// New makes a Service.
func New(guests Guests, cfg Config) *Service {
	if cfg.DefaultTimeout == 0 {
		cfg.DefaultTimeout = time.Minute
	}
	if cfg.MaxTimeout == 0 {
		cfg.MaxTimeout = 24 * time.Hour
	}
	if cfg.DisconnectWait == 0 {
		cfg.DisconnectWait = 10 * time.Second
	}
	return &Service{guests: guests, cfg: cfg, left: newLeaving(cfg.DisconnectWait)}
}

// Close keeps commands alive whose callers go away from now on.
func (s *Service) Close() { s.left.close() }

// Exec runs a command and waits for its end. A command that fails or runs out
// of time is an outcome, not an error. When the context ends first, the
// command's whole session is killed, one with an ExecutionID only if nobody has
// attached to it for a while. With an error comes what the command had written
// until then.
func (s *Service) Exec(ctx context.Context, owner, sid string, req api.ExecRequest) (api.ExecResult, error) {
	stdout := capture.New(guestapi.KeepHead, guestapi.KeepTail)
	stderr := capture.New(guestapi.KeepHead, guestapi.KeepTail)
	result := func(x api.Exit) (r api.ExecResult) {
		r = api.ExecResult{ExitCode: x.Code, Signal: x.Signal, Reason: x.Reason, DurationMS: x.DurationMS, TimedOut: x.Reason == api.ReasonTimeout, OutputPath: x.OutputPath, Hint: x.Hint}
		r.Stdout, r.StdoutDropped = stdout.Text(r.OutputPath)
		r.Stderr, r.StderrDropped = stderr.Text(r.OutputPath)
		r.Truncated = r.StdoutDropped > 0 || r.StderrDropped > 0
		return r
	}
	for e, err := range s.ExecStream(ctx, owner, sid, req) {
		if err != nil {
			return result(api.Exit{}), err
		}
		switch e.Type {
		case api.EventStdout:
			stdout.Add(e.Text + string(e.Raw))
		case api.EventStderr:
			stderr.Add(e.Text + string(e.Raw))
		case api.EventGap:
			if e.Stream == "stderr" {
				stderr.Gap(e.Dropped)
			} else {
				stdout.Gap(e.Dropped)
			}
		case api.EventExit:
			return result(*e.Exit), nil
		}
	}
	return result(api.Exit{}), fault.New(api.CodeInternal, "the command ended without saying how")
}

// ExecStream is Exec with the events as they happen: started, stdout, stderr,
// gap, and exit at the end, whose Exit.Reason is "timeout" when time ran out.
func (s *Service) ExecStream(ctx context.Context, owner, sid string, req api.ExecRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		start, timeout, err := s.check(req)
		if err != nil {
			yield(api.Event{}, err)
			return
		}
		if err := s.run(ctx, owner, sid, req, start, timeout, yield); err != nil {
			yield(api.Event{}, err)
		}
	}
}

func (s *Service) check(req api.ExecRequest) (start guestapi.StartProcess, timeout time.Duration, err error) {
	timeout = s.cfg.DefaultTimeout
	switch t := req.TimeoutSeconds; {
	case t < 0 || math.IsNaN(t) || t > s.cfg.MaxTimeout.Seconds():
		return start, 0, fault.InvalidField("timeout_seconds", "timeout_seconds must be between 0 and %v, but is %v", s.cfg.MaxTimeout.Seconds(), t)
	case t > 0:
		timeout = max(time.Millisecond, time.Duration(t*float64(time.Second)))
	}
	if req.Cmd.IsZero() || req.Cmd.Argv != nil && (len(req.Cmd.Argv) == 0 || req.Cmd.Argv[0] == "") {
		return start, 0, fault.InvalidField("cmd", "there is no command to run")
	}
	args := req.Cmd.Args()
	for _, a := range args {
		if strings.ContainsRune(a, 0) {
			return start, 0, fault.InvalidField("cmd", "the command holds a NUL byte")
		}
	}
	if req.CWD == "" {
		req.CWD = guestapi.Workspace
	}
	if req.CWD[0] != '/' || strings.ContainsRune(req.CWD, 0) {
		return start, 0, fault.InvalidField("cwd", "cwd must be an absolute path, but is %.80q", req.CWD)
	}
	size := 0
	for k, v := range req.Envs {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return start, 0, fault.InvalidField("envs", "%.40q cannot be an environment variable", k)
		}
		size += len(k) + len(v) + 2
	}
	if size > maxEnvs {
		return start, 0, fault.InvalidField("envs", "envs has %d bytes; a process gets at most %d", size, maxEnvs)
	}
	tag := newTag()
	if req.ExecutionID != "" {
		tag = tagPrefix + req.ExecutionID
		if len(req.ExecutionID) > maxID {
			return start, 0, fault.InvalidField("execution_id", "execution_id is longer than %d bytes", maxID)
		}
	} else if req.Attach {
		return start, 0, fault.InvalidField("execution_id", "execution_id is missing: it says what to attach to")
	}
	start = guestapi.StartProcess{
		Argv: args, CWD: req.CWD, Envs: req.Envs, User: req.User, Tag: tag, TimeoutMS: timeout.Milliseconds(), Command: req.Cmd,
	}
	if req.Stdin != nil {
		if len(*req.Stdin) > maxStdin {
			return start, 0, fault.New(api.CodeTooLarge, "stdin has %d bytes; at most %d are taken here", len(*req.Stdin), maxStdin).
				WithHint("write a file and redirect it, or start a process and write to its standard input")
		}
		start.Input = []byte(*req.Stdin)
	}
	return start, timeout, nil
}

// run starts the command and passes its events on. Errors that it returns were
// not passed on yet.
func (s *Service) run(ctx context.Context, owner, sid string, req api.ExecRequest, start guestapi.StartProcess, timeout time.Duration, yield func(api.Event, error) bool) error {
	link := func(ctx context.Context) (*guest.Client, func(), error) { return s.guests.Guest(ctx, owner, sid) }
	p, err := startOnce(ctx, link, start, req.Attach)
	if err != nil {
		var f *fault.Error
		if errors.As(err, &f) && f.Code == api.CodeRateLimited {
			s.note(owner, sid, api.LifeLimitHit, map[string]any{"limit": "processes", "detail": f.Message})
		}
		return err
	}
	exited := false
	this := command{sid, start.Tag}
	s.left.join(this)
	defer func() {
		s.left.leave(this, exited, req.ExecutionID != "", func() { s.kill(ctx, link, p.PID) })
	}()
	deadline, cancel := context.WithTimeoutCause(ctx, timeout+grace, errNotEnded)
	defer cancel()
	open := func(ctx context.Context, c *guest.Client, after int64) (*guest.Events, error) {
		return c.ProcessEvents(ctx, p.PID, after, true)
	}
	words := capture.New(0, maxWords)
	for e, err := range guest.Follow(deadline, 0, link, open) {
		if err != nil {
			var ended *guest.EndedError
			switch {
			case errors.As(err, &ended):
				exited = true
			case deadline.Err() != nil && ctx.Err() == nil:
				err = errNotEnded
			}
			return err
		}
		switch e.Type {
		case api.EventStdout, api.EventStderr:
			words.Add(e.Text)
		case api.EventExit:
			exited = true
			s.noteExit(owner, sid, p.PID, e.Exit)
			if s.cfg.Hint != nil && (e.Exit.Code != 0 || e.Exit.Reason != "exited") {
				said, _ := words.Text("")
				e.Exit.Hint = s.cfg.Hint(ctx, owner, sid, e.Exit.Reason, said)
			}
		}
		if !yield(e, nil) || exited {
			return nil
		}
	}
	return fault.New(api.CodeInternal, "the command ended without saying how")
}

func (s *Service) note(owner, sid, kind string, payload map[string]any) {
	if s.cfg.Notes != nil {
		s.cfg.Notes.Note(owner, sid, kind, payload)
	}
}

// noteExit notes an end that the command did not choose.
func (s *Service) noteExit(owner, sid string, pid int, x *api.Exit) {
	payload := map[string]any{"pid": pid, "duration_ms": x.DurationMS}
	switch x.Reason {
	case "timeout":
		s.note(owner, sid, api.LifeProcessTimeout, payload)
	case "oom":
		s.note(owner, sid, api.LifeProcessOOM, payload)
	}
	if x.StdoutDropped > 0 || x.StderrDropped > 0 {
		s.note(owner, sid, api.LifeLimitHit, map[string]any{"limit": "output", "pid": pid, "detail": "the middle of a command's output was left out"})
	}
}

var errNotEnded = fault.New(api.CodeTimeout, "the sandbox did not end the command at its deadline").
	WithHint("it may be overloaded; a new sandbox will do")

// startOnce starts a process. When the link breaks before the answer, or when
// attach says that it may have been started, the tag tells whether it was, so
// that it never is twice.
func startOnce(ctx context.Context, link guest.Link, start guestapi.StartProcess, attach bool) (api.Process, error) {
	asked, generation := false, 0
	for {
		client, done, err := link(ctx)
		if err != nil {
			return api.Process{}, err
		}
		p, err := func() (api.Process, error) {
			defer done()
			if asked || attach {
				if p, found, err := byTag(ctx, client, start); found || err != nil {
					return p, err
				}
			}
			if asked && client.Generation() != generation {
				return api.Process{}, fault.New(api.CodeConflict, "the sandbox was restored while the command was started")
			}
			asked, generation = true, client.Generation()
			p, err := client.StartProcess(ctx, start)
			if attach && errors.Is(err, fault.Conflict) && !errors.Is(err, guest.ErrLinkLost) { // the first call was quicker
				if p, found, err := byTag(ctx, client, start); found || err != nil {
					return p, err
				}
			}
			return p, err
		}()
		if !errors.Is(err, guest.ErrLinkLost) {
			return p, err
		}
		ctx = guest.WithoutWaking(ctx)
	}
}

// byTag finds the process of a command.
func byTag(ctx context.Context, c *guest.Client, start guestapi.StartProcess) (api.Process, bool, error) {
	list, err := c.Processes(ctx)
	if err != nil {
		return api.Process{}, false, err
	}
	for _, p := range list {
		switch {
		case p.Tag != start.Tag:
		case p.Cmd.Shell != start.Command.Shell || !slices.Equal(p.Cmd.Argv, start.Command.Argv):
			return api.Process{}, false, fault.New(api.CodeConflict, "this execution_id has run another command").
				WithHint("choose an execution_id for each command, a UUID say")
		default:
			return p, true, nil
		}
	}
	return api.Process{}, false, nil
}

// kill ends a command whose caller is gone. There is nobody left to tell when
// it fails; the deadline in the guest ends it then.
func (s *Service) kill(ctx context.Context, link guest.Link, pid int) {
	ctx, cancel := context.WithTimeout(guest.WithoutWaking(context.WithoutCancel(ctx)), killTime)
	defer cancel()
	client, done, err := link(ctx)
	if err != nil {
		return
	}
	defer done()
	_ = client.KillProcess(ctx, pid)
}

func newTag() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails
	return tagPrefix + hex.EncodeToString(b)
}
