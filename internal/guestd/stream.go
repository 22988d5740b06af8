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
	batch     = 128 // events in one write
)

// streamEvents answers with the events of a log as lines of JSON: with follow
// as they happen, without it what was kept, once the end has come.
func streamEvents(w http.ResponseWriter, r *http.Request, log *eventlog.Log, after int64, follow bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	flush()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()

	if !follow {
		for {
			more, ended := log.Waiting()
			if ended {
				break
			}
			select {
			case <-more:
			case <-alive.C:
				if _, err := w.Write([]byte("\n")); err != nil {
					return
				}
				flush()
			case <-r.Context().Done():
				return
			}
		}
	}
	cursor := log.Cursor(after)
	var buf bytes.Buffer
	for {
		events, more, end := cursor.Next(batch)
		if len(events) > 0 {
			buf.Reset()
			for _, ev := range events {
				encodeEvent(&buf, ev)
			}
			if _, err := w.Write(buf.Bytes()); err != nil {
				return
			}
			if buf.Cap() > 1<<20 {
				buf = bytes.Buffer{}
			}
			flush()
		}
		if end {
			return
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-alive.C:
			if _, err := w.Write([]byte("\n")); err != nil {
				return
			}
			flush()
		case <-r.Context().Done():
			return
		}
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
