package pandastack

import (
	"bufio"
	"bytes"
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

// maxEvent bounds one event of a stream.
const maxEvent = 32 << 20

// sseEvent is one server-sent event.
type sseEvent struct {
	seq   int64 // -1 without an id
	event string
	data  []byte
}

// events opens a stream and gives its events. An "error" event becomes an
// *Error.
func (c *Client) events(ctx context.Context, method, path string, q url.Values, in any) iter.Seq2[sseEvent, error] {
	return func(yield func(sseEvent, error) bool) {
		var body io.Reader
		header := http.Header{"Accept": {"text/event-stream"}}
		if in != nil {
			raw, err := json.Marshal(in)
			if err != nil {
				yield(sseEvent{}, fmt.Errorf("pandastack: %w", err))
				return
			}
			body = bytes.NewReader(raw)
			header.Set("Content-Type", "application/json")
		}
		res, err := c.request(ctx, method, path, q, body, header)
		if err != nil {
			yield(sseEvent{}, err)
			return
		}
		defer res.Body.Close()
		for e, err := range readEvents(res.Body) {
			switch {
			case err != nil:
				yield(sseEvent{}, connectionError(ctx, c.root, err))
				return
			case e.event == "error":
				yield(sseEvent{}, readError(&http.Response{
					StatusCode: http.StatusInternalServerError, Body: io.NopCloser(bytes.NewReader(e.data)),
				}))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// readEvents parses a stream. The end of it between two events is no error.
func readEvents(r io.Reader) iter.Seq2[sseEvent, error] {
	return func(yield func(sseEvent, error) bool) {
		br := bufio.NewReaderSize(r, 64<<10)
		e := sseEvent{seq: -1}
		started := false
		for {
			line, err := readLine(br)
			if err != nil {
				if errors.Is(err, io.EOF) && !started {
					return
				}
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				yield(sseEvent{}, err)
				return
			}
			if len(line) == 0 {
				if started && !yield(e, nil) {
					return
				}
				e, started = sseEvent{seq: -1}, false
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "id":
				if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
					e.seq = n
				}
				started = true
			case "event":
				e.event, started = string(value), true
			case "data":
				if e.data != nil {
					e.data = append(e.data, '\n')
				}
				e.data, started = append(e.data, value...), true
			}
		}
	}
}

func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, more, err := br.ReadLine()
		if err != nil {
			if len(line) > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if line = append(line, part...); len(line) > maxEvent {
			return nil, fmt.Errorf("an event is larger than %d bytes", maxEvent)
		}
		if !more {
			return line, nil
		}
	}
}

// How a broken connection is taken up again.
const (
	reattach   = 60 * time.Second // tried for so long
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// follow gives numbered events, across connections that break: open is asked
// again with the number of the last event there was. It ends after the event
// that is the last of its kind.
func (c *Client) follow(ctx context.Context, after int64, open func(after int64) iter.Seq2[sseEvent, error]) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		var broken time.Time
		wait, reached := firstPause, false
		for {
			var failure error
			for raw, err := range open(after) {
				if err != nil {
					failure = err
					break
				}
				e, err := decodeEvent(raw)
				if err != nil {
					yield(api.Event{}, fmt.Errorf("pandastack: an event cannot be read: %w", err))
					return
				}
				if raw.seq >= 0 {
					after = raw.seq
				}
				broken, wait, reached = time.Time{}, firstPause, true
				if !yield(e, nil) || e.Type == api.EventEnd || e.Type == api.EventExit {
					return
				}
			}
			if failure == nil {
				failure = connectionError(ctx, c.root, io.ErrUnexpectedEOF)
			}
			if broken.IsZero() {
				broken = time.Now()
			}
			lost := errors.Is(failure, ErrConnection) && (reached || !unreached(failure))
			if !lost || time.Since(broken) > reattach || pause(ctx, wait) != nil {
				yield(api.Event{}, failure)
				return
			}
			wait = min(2*wait, lastPause)
		}
	}
}

// decodeEvent makes an api.Event of the data that belongs to its type.
func decodeEvent(raw sseEvent) (api.Event, error) {
	e := api.Event{Seq: raw.seq, Type: raw.event}
	var err error
	switch raw.event {
	case api.EventEnd:
		e.Execution = new(api.Execution)
		err = json.Unmarshal(raw.data, e.Execution)
	case api.EventExit:
		e.Exit = new(api.Exit)
		err = json.Unmarshal(raw.data, e.Exit)
	default:
		err = json.Unmarshal(raw.data, &e)
		e.Seq, e.Type = raw.seq, raw.event
	}
	return e, err
}
