package guestd

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

const (
	keepAlive = 15 * time.Second
	linger    = 2 * time.Millisecond  // for which an event may wait for the next
	patience  = 25 * time.Millisecond // for which the news that something has started may
	batch     = 128                   // events in one write
)

// streamEvents answers with the events of a log as lines of JSON: with follow
// as they happen, without it what was kept, once the end has come. A number
// after which nothing can come is refused: an answer without its end would
// look broken.
func streamEvents(w http.ResponseWriter, r *http.Request, log *eventlog.Log, after int64, follow bool) error {
	if last, ended := log.Last(); after > last || ended && after == last {
		return fault.InvalidField("after", "there is no event after number %d: the last one is %d", after, last)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{w: w, unsent: true, since: time.Now()}
	gone := r.Context().Done()
	if !follow {
		for {
			more, ended := log.Waiting()
			if ended {
				break
			}
			if !out.wait(more, gone) {
				return nil
			}
		}
	}
	cursor := log.Cursor(after)
	for {
		events, more, end := cursor.Next(batch)
		if !out.write(events) {
			return nil
		}
		if end {
			return nil
		}
		if len(events) < batch && !out.wait(more, gone) {
			return nil
		}
	}
}

// eventWriter writes events and sees to it that they are sent soon, several of
// them at once where they come close together: most cells end within that time,
// and then their whole answer is one write.
type eventWriter struct {
	w      http.ResponseWriter
	buf    bytes.Buffer
	unsent bool
	since  time.Time // of the first that is not sent
	output bool      // there is more to send than that it has started
}

// write reports false when the host is gone.
func (o *eventWriter) write(events []api.Event) bool {
	if len(events) == 0 {
		return true
	}
	o.buf.Reset()
	for _, ev := range events {
		encodeEvent(&o.buf, ev)
		o.output = o.output || ev.Type != api.EventStarted
	}
	if !o.unsent {
		o.unsent, o.since = true, time.Now()
	}
	_, err := o.w.Write(o.buf.Bytes())
	if o.buf.Cap() > 1<<20 {
		o.buf = bytes.Buffer{}
	}
	return err == nil
}

// wait waits for more, and meanwhile sends what is not sent and keeps the
// stream alive. It reports false when the host is gone.
func (o *eventWriter) wait(more, gone <-chan struct{}) bool {
	for {
		d := keepAlive
		if o.unsent {
			d = linger
			if !o.output {
				d = patience
			}
			d -= time.Since(o.since)
		}
		if d <= 0 {
			o.flush()
			continue
		}
		timer := time.NewTimer(d)
		select {
		case <-more:
			timer.Stop()
			return true
		case <-gone:
			timer.Stop()
			return false
		case <-timer.C:
			if !o.unsent {
				if _, err := o.w.Write([]byte("\n")); err != nil {
					return false
				}
			}
			o.flush()
		}
	}
}

func (o *eventWriter) flush() {
	o.unsent, o.output = false, false
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
}

// encodeEvent writes one line, which is never longer than both ends agreed.
func encodeEvent(buf *bytes.Buffer, ev api.Event) {
	start := buf.Len()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(ev); err == nil && buf.Len()-start <= guestapi.MaxEventLine {
		return
	}
	size := buf.Len() - start
	buf.Truncate(start)
	_ = enc.Encode(api.Event{Seq: ev.Seq, Type: ev.Type, IsLastExpression: ev.IsLastExpression,
		Data: api.Bundle{"text/plain": "<a result of " + strconv.Itoa(size>>20) + " MiB, too large to be shown: write it to a file>"}})
}

func afterAndFollow(r *http.Request) (after int64, follow bool, err error) {
	q := r.URL.Query()
	if s := q.Get("after"); s != "" {
		if after, err = strconv.ParseInt(s, 10, 64); err != nil || after < 0 {
			return 0, false, fault.InvalidField("after", "after must be the number of an event, not %q", s)
		}
	}
	return after, q.Get("follow") == "1", nil
}
