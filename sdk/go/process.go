package pandastack

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// StartOptions say how a process runs. The zero value is root in /workspace,
// with no deadline and no standard input.
type StartOptions struct {
	TimeoutSeconds float64
	CWD            string
	Envs           map[string]string
	User           string // name or uid
	Tag            string // a name for lists, unique while it runs
	Stdin          bool   // keep standard input open, for WriteStdin and Feed
	PTY            *PTY   // give it a terminal of this size, whose input is always open

	// Stdout and Stderr get its output as it comes, from the start, until it ends
	// or the context of Start does. Wait waits for them, and gives their errors.
	Stdout, Stderr io.Writer
}

// PTY is the size of a terminal. All that its process writes is stdout.
type PTY = api.PTY

// Process is a process in a sandbox. It lives there, whoever is connected.
type Process struct {
	PID  int
	Info api.Process // as the server last described it

	sandbox *Sandbox
	copied  chan struct{} // closed when all is with the writers of Start; nil without any
	exit    api.Exit
	err     error
}

// Start starts a command and returns at once.
func (s *Sandbox) Start(ctx context.Context, cmd api.Command, o StartOptions) (*Process, error) {
	req := api.StartProcessRequest{
		Cmd: cmd, CWD: o.CWD, Envs: o.Envs, User: o.User, Tag: o.Tag, Stdin: o.Stdin, PTY: o.PTY, TimeoutMS: int64(o.TimeoutSeconds * 1000),
	}
	if o.TimeoutSeconds > 0 {
		req.TimeoutMS = max(req.TimeoutMS, 1) // 0 would be none
	}
	p := &Process{sandbox: s}
	if err := s.client.call(ctx, http.MethodPost, s.path+"/processes", nil, req, &p.Info); err != nil {
		return nil, err
	}
	p.PID = p.Info.PID
	if o.Stdout != nil || o.Stderr != nil {
		p.copied = make(chan struct{})
		go func() {
			defer close(p.copied)
			p.exit, p.err = p.copy(ctx, 0, o.Stdout, o.Stderr)
		}()
	}
	return p, nil
}

// Connect finds a process that somebody has started through the API.
func (s *Sandbox) Connect(ctx context.Context, pid int) (*Process, error) {
	p := &Process{PID: pid, sandbox: s}
	_, err := p.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Processes lists the processes that were started through the API, those that
// ended lately too.
func (s *Sandbox) Processes(ctx context.Context) ([]api.Process, error) {
	var list []api.Process
	return list, s.client.call(ctx, http.MethodGet, s.path+"/processes", nil, nil, &list)
}

func (p *Process) path() string { return p.sandbox.path + "/processes/" + strconv.Itoa(p.PID) }

// Refresh asks how the process is and returns it.
func (p *Process) Refresh(ctx context.Context) (api.Process, error) {
	var info api.Process
	if err := p.sandbox.client.call(ctx, http.MethodGet, p.path(), nil, nil, &info); err != nil {
		return info, err
	}
	p.Info = info
	return info, nil
}

// Events gives its output behind an event, 0 for all that is kept, and then as
// it comes, up to its exit. A connection that breaks is taken up again.
func (p *Process) Events(ctx context.Context, after int64) iter.Seq2[api.Event, error] {
	c := p.sandbox.client
	return c.follow(ctx, after, func(after int64) iter.Seq2[sseEvent, error] {
		q := url.Values{"after": {strconv.FormatInt(after, 10)}}
		return c.events(ctx, http.MethodGet, p.path()+"/stream", q, nil)
	})
}

// Wait copies its output behind an event, 0 for all that is kept, to two
// writers, and returns how it ended. A deadline that ended it is an Exit, not an
// error. What was written faster than it was read, or too long ago, is missing:
// the Exit counts it as dropped. The writers of Start get all of it besides, and
// their error is Wait's.
func (p *Process) Wait(ctx context.Context, after int64, stdout, stderr io.Writer) (api.Exit, error) {
	if p.copied == nil {
		return p.copy(ctx, after, stdout, stderr)
	}
	if stdout != nil || stderr != nil {
		if _, err := p.copy(ctx, after, stdout, stderr); err != nil {
			return api.Exit{}, err
		}
	}
	select {
	case <-p.copied:
		return p.exit, p.err
	case <-ctx.Done():
		return api.Exit{}, ctx.Err()
	}
}

func (p *Process) copy(ctx context.Context, after int64, stdout, stderr io.Writer) (api.Exit, error) {
	to := map[string]io.Writer{api.EventStdout: stdout, api.EventStderr: stderr}
	missed := map[string]int64{}
	for e, err := range p.Events(ctx, after) {
		switch {
		case err != nil:
			return api.Exit{}, err
		case e.Type == api.EventGap:
			missed[e.Stream] += e.Dropped
		case e.Type == api.EventExit:
			x := *e.Exit
			x.StdoutDropped, x.StderrDropped = missed[api.EventStdout], missed[api.EventStderr]
			return x, nil
		case to[e.Type] != nil:
			if _, err := to[e.Type].Write(Bytes(e)); err != nil {
				return api.Exit{}, err
			}
		}
	}
	return api.Exit{}, connectionError(ctx, p.sandbox.client.root, io.ErrUnexpectedEOF)
}

// Bytes is what was written in an event of output, UTF-8 or not.
func Bytes(e api.Event) []byte {
	if e.Raw != nil {
		return e.Raw
	}
	return []byte(e.Text)
}

// WriteStdin appends to its standard input, as fast as it reads. It must have
// been started with Stdin. A reader that pauses for a minute is given up: use
// Feed for one that may.
func (p *Process) WriteStdin(ctx context.Context, r io.Reader) error {
	return p.sandbox.client.send(ctx, http.MethodPost, p.path()+"/stdin", nil, r, nil)
}

// Type writes to the terminal of a process. While the server cannot be reached
// it waits, for a minute; what was on its way when a connection broke may have
// arrived or not, and is not sent again.
func (p *Process) Type(ctx context.Context, input []byte) error {
	began := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		err := p.WriteStdin(ctx, bytes.NewReader(input))
		starting := errors.Is(err, ErrNoCapacity) // a server that is back and not ready
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrConnection) && !unreached(err):
			return nil
		case !starting && !errors.Is(err, ErrConnection), time.Since(began) > reattach, pause(ctx, wait) != nil:
			return err
		}
	}
}

// Resize sets the size of its terminal. Programs in the foreground are told.
func (p *Process) Resize(ctx context.Context, size PTY) error {
	return p.sandbox.client.call(ctx, http.MethodPost, p.path()+"/resize", nil, size, nil)
}

// CloseStdin says that there is no more input; to a terminal it is a Ctrl-D.
func (p *Process) CloseStdin(ctx context.Context) error {
	return p.sandbox.client.call(ctx, http.MethodDelete, p.path()+"/stdin", nil, nil, nil)
}

// feedPiece is how much Feed sends at once.
const feedPiece = 256 << 10

// Feed passes a reader on to its standard input piece by piece, as it comes,
// and then closes it. A process need not read all: its end is no error.
func (p *Process) Feed(ctx context.Context, r io.Reader) error {
	buf := make([]byte, feedPiece)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if werr := p.WriteStdin(ctx, bytes.NewReader(buf[:n])); werr != nil {
				return unlessConflict(werr)
			}
		}
		if errors.Is(err, io.EOF) {
			return unlessConflict(p.CloseStdin(ctx))
		}
		if err != nil {
			return err
		}
	}
}

func unlessConflict(err error) error {
	if errors.Is(err, ErrConflict) {
		return nil
	}
	return err
}

// Signal sends a signal, "SIGTERM", "TERM" or "15", to its group.
func (p *Process) Signal(ctx context.Context, signal string) error {
	return p.sandbox.client.call(ctx, http.MethodPost, p.path()+"/signal", nil, api.SignalRequest{Signal: signal}, nil)
}

// Kill kills it and all of its session. One that has ended stays as it is.
func (p *Process) Kill(ctx context.Context) error {
	return p.sandbox.client.call(ctx, http.MethodDelete, p.path(), nil, nil, nil)
}
