package pandastack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
)

// EventOptions say which events are meant.
type EventOptions struct {
	Tail   int   // so many of the last ones; 0: 50, negative: none
	After  int64 // instead, those with a higher number, when positive
	Follow bool  // go on as they happen
}

// Events gives what happened to the sandbox, the oldest first; see
// api.LifeEvent for the types. With Follow it goes on until the sandbox has
// ended, across connections that break: nothing is missed that the server still
// keeps, and an event of type "gap" says what is not.
func (s *Sandbox) Events(ctx context.Context, o EventOptions) iter.Seq2[api.LifeEvent, error] {
	return s.client.lifeEvents(ctx, s.path+"/events", o, func(e api.LifeEvent) bool { return e.Type == api.LifeEnded })
}

// Events gives what happened to all sandboxes of the workspace, and to the
// server. With Follow it goes on until the context ends.
func (c *Client) Events(ctx context.Context, o EventOptions) iter.Seq2[api.LifeEvent, error] {
	return c.lifeEvents(ctx, "/events", o, func(api.LifeEvent) bool { return false })
}

func (c *Client) lifeEvents(ctx context.Context, path string, o EventOptions, last func(api.LifeEvent) bool) iter.Seq2[api.LifeEvent, error] {
	q := url.Values{}
	switch {
	case o.After > 0:
		q.Set("after", strconv.FormatInt(o.After, 10))
	case o.Tail < 0:
		q.Set("tail", "0")
	case o.Tail > 0:
		q.Set("tail", strconv.Itoa(o.Tail))
	}
	return func(yield func(api.LifeEvent, error) bool) {
		if !o.Follow {
			var list api.LifeEvents
			if err := c.call(ctx, http.MethodGet, path, q, nil, &list); err != nil {
				yield(api.LifeEvent{}, err)
				return
			}
			for _, e := range list.Events {
				if !yield(e, nil) {
					return
				}
			}
			return
		}
		q.Set("follow", "1")
		err := c.stayOn(ctx, path, q, func(raw sseEvent) (more bool, err error) {
			var e api.LifeEvent
			if err := json.Unmarshal(raw.data, &e); err != nil {
				return false, fmt.Errorf("pandastack: an event cannot be read: %w", err)
			}
			q.Del("tail")
			return yield(e, nil) && !last(e), nil
		})
		if err != nil {
			yield(api.LifeEvent{}, err)
		}
	}
}

// LogOptions say which lines of a log are meant.
type LogOptions struct {
	Stream string // "stdout": the console, "stderr": the log of the agent inside; "": both
	Follow bool   // go on as lines are written
}

// Logs gives the last lines of the sandbox's console and of the log of the
// agent in it, the oldest first. Without Follow only the Line of each is set.
func (s *Sandbox) Logs(ctx context.Context, o LogOptions) iter.Seq2[api.LogLine, error] {
	q := url.Values{}
	if o.Stream != "" {
		q.Set("stream", o.Stream)
	}
	return func(yield func(api.LogLine, error) bool) {
		var err error
		if o.Follow {
			q.Set("follow", "1")
			err = s.client.stayOn(ctx, s.path+"/logs", q, func(raw sseEvent) (more bool, err error) {
				var l api.LogLine
				if err := json.Unmarshal(raw.data, &l); err != nil {
					return false, fmt.Errorf("pandastack: a line cannot be read: %w", err)
				}
				return yield(l, nil), nil
			})
		} else {
			err = s.logs(ctx, q, yield)
		}
		if err != nil {
			yield(api.LogLine{}, err)
		}
	}
}

func (s *Sandbox) logs(ctx context.Context, q url.Values, yield func(api.LogLine, error) bool) error {
	res, err := s.client.request(ctx, http.MethodGet, s.path+"/logs", q, nil, http.Header{"Accept": {"text/plain"}})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if !yield(api.LogLine{Line: lines.Text()}, nil) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return connectionError(ctx, s.client.root, err)
	}
	return nil
}

// stayOn reads a stream, and takes it up again after its last event when the
// connection breaks. It ends when take wants no more, and when the server ends
// the stream between two events.
func (c *Client) stayOn(ctx context.Context, path string, q url.Values, take func(sseEvent) (more bool, err error)) error {
	var broken time.Time
	wait, last := firstPause, int64(-1)
	for {
		failure := io.EOF
		header := http.Header{"Accept": {"text/event-stream"}}
		if last >= 0 {
			header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
		}
		res, err := c.request(ctx, http.MethodGet, path, q, nil, header)
		if err != nil {
			failure = err
		} else {
			for e, err := range readEvents(res.Body) {
				if err != nil {
					failure = connectionError(ctx, c.root, err)
					break
				}
				if e.seq >= 0 {
					last = e.seq
				}
				broken, wait = time.Time{}, firstPause
				if more, err := take(e); err != nil || !more {
					res.Body.Close()
					return err
				}
			}
			res.Body.Close()
			if errors.Is(failure, io.EOF) {
				return nil
			}
		}
		if broken.IsZero() {
			broken = time.Now()
		}
		starting := errors.Is(failure, ErrNoCapacity) && last >= 0 // a server that is back and not ready
		lost := errors.Is(failure, ErrConnection) && (last >= 0 || !unreached(failure))
		if !lost && !starting || time.Since(broken) > reattach || pause(ctx, wait) != nil {
			return failure
		}
		wait = min(2*wait, lastPause)
	}
}
