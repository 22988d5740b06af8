package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Events is the numbered output of an execution or a process. It is read by
// one goroutine. Close it; what produces the output goes on.
type Events struct {
	client *Client
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   func()
	idle   *time.Timer
	lines  *bufio.Reader
	last   int64 // number of the event before
	ended  bool

	release func() // of the place of a big line that Next gave last
}

var errStreamIdle = fault.New(api.CodeTimeout, "the sandbox has fallen silent").
	WithHint("it may be out of memory or overloaded; a new sandbox will do")

func (c *Client) events(ctx context.Context, in call, after int64) (*Events, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(streamIdle, func() { cancel(errStreamIdle) })
	resp, done, err := c.send(ctx, in)
	if err != nil {
		idle.Stop()
		cancel(nil)
		return nil, err
	}
	return &Events{
		release: func() {}, client: c, ctx: ctx, cancel: cancel, done: done, idle: idle,
		lines: bufio.NewReaderSize(resp.Body, 16<<10), last: after,
	}, nil
}

// Next waits for the next event. After the end or the exit of what is followed
// it gives io.EOF. While the reader is busy with a big event, which takes as
// long as it likes, it has one of the few places for them.
func (e *Events) Next() (api.Event, error) {
	for {
		if e.ended {
			return api.Event{}, io.EOF
		}
		event, ok, err := e.read()
		switch {
		case err != nil:
			e.ended = true
			return api.Event{}, e.why(err)
		case !ok:
			continue
		}
		if err := checkEvent(&event); err != nil {
			e.ended = true
			return api.Event{}, nonsense("%w", err)
		}
		if event.Seq <= e.last {
			e.ended = true
			return api.Event{}, nonsense("event %d after event %d", event.Seq, e.last)
		}
		e.last = event.Seq
		e.ended = event.Type == api.EventEnd || event.Type == api.EventExit
		return event, nil
	}
}

// why explains a failed read. A stream that stops before its end was cut.
func (e *Events) why(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return e.client.broken(e.ctx, err)
}

// read gives one event; false for a blank line.
func (e *Events) read() (api.Event, bool, error) {
	var event api.Event
	e.release()
	line, release, err := e.line()
	e.release = sync.OnceFunc(release)
	if err != nil {
		return event, false, err
	}
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return event, false, nil
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return event, false, nonsense("an event: %w", err)
	}
	return event, true, nil
}

// line reads up to the next newline. Only a few long lines of one guest are
// held at a time, so that many streams cannot add up to much.
func (e *Events) line() (line []byte, release func(), err error) {
	e.idle.Reset(streamIdle) // the clock runs only while the guest is waited for
	defer e.idle.Stop()
	release = func() {}
	for {
		part, err := e.lines.ReadSlice('\n')
		e.idle.Reset(streamIdle)
		if err == nil && line == nil {
			return part, release, nil
		}
		if len(line) <= bigLine && len(line)+len(part) > bigLine {
			e.idle.Stop() // it is us who are waiting, not for the guest
			select {
			case e.client.big <- struct{}{}:
				e.idle.Reset(streamIdle)
				release = func() { <-e.client.big }
			case <-e.ctx.Done():
				return nil, release, context.Cause(e.ctx)
			}
		}
		if len(line)+len(part) > guestapi.MaxEventLine {
			return nil, release, nonsense("an event of more than %d bytes", guestapi.MaxEventLine)
		}
		line = append(line, part...)
		if err == nil {
			return line, release, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, release, err
		}
	}
}

// Close ends the stream.
func (e *Events) Close() error {
	e.idle.Stop()
	e.cancel(context.Canceled)
	e.release()
	e.done()
	return nil
}
