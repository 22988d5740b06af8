package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
)

// Log gives the lines of the console and of the agent's log that have a number
// above after, and with follow those that come. A guest that says too much is
// cut off.
func (c *Client) Log(ctx context.Context, after int64, follow bool) iter.Seq2[guestapi.LogLine, error] {
	return func(yield func(guestapi.LogLine, error) bool) {
		if err := c.log(ctx, after, follow, yield); err != nil {
			yield(guestapi.LogLine{}, err)
		}
	}
}

func (c *Client) log(ctx context.Context, after int64, follow bool, yield func(guestapi.LogLine, error) bool) error {
	if err := c.needs(2, "show its log"); err != nil {
		return err
	}
	lines, err := c.events(ctx, call{method: http.MethodGet, path: "/log", query: afterQuery(after, follow)}, after)
	if err != nil {
		return err
	}
	defer lines.Close()
	for n := 0; follow || n <= guestapi.KeepLogLines; {
		n++
		raw, release, err := lines.line()
		if err != nil {
			release()
			if errors.Is(err, io.EOF) && !follow {
				return nil
			}
			return lines.why(err)
		}
		l, err := logLine(raw, after)
		release()
		switch {
		case err != nil:
			return err
		case l.Seq == 0: // a blank line
			continue
		}
		after = l.Seq
		if !yield(l, nil) {
			return nil
		}
	}
	return nonsense("more than %d lines at once", guestapi.KeepLogLines)
}

// logLine reads and bounds one line. A blank one has no number.
func logLine(raw []byte, after int64) (guestapi.LogLine, error) {
	var l guestapi.LogLine
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return l, nil
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return l, nonsense("a line of the log: %w", err)
	}
	if l.Seq <= after {
		return l, nonsense("line %d after line %d", l.Seq, after)
	}
	if l.Stream != "stdout" {
		l.Stream = "stderr"
	}
	l.Line = strings.ReplaceAll(plain(l.Line, guestapi.MaxLogLine), "\n", " ")
	if y := l.Time.Year(); y < 1970 || y > 9999 { // would not encode
		l.Time = time.Unix(0, 0).UTC()
	}
	return l, nil
}

// FollowLog is Log with follow across links that break. It ends with an error:
// that of the context, or of a link that cannot be had any more.
func FollowLog(ctx context.Context, after int64, link Link) iter.Seq2[guestapi.LogLine, error] {
	return func(yield func(guestapi.LogLine, error) bool) {
		err := stay(ctx, &after, func(linkCtx context.Context) error { return followLogOnce(ctx, linkCtx, &after, link, yield) })
		if err != nil {
			yield(guestapi.LogLine{}, err)
		}
	}
}

func followLogOnce(ctx, linkCtx context.Context, after *int64, link Link, yield func(guestapi.LogLine, error) bool) error {
	client, done, err := link(linkCtx)
	if err != nil {
		return err
	}
	defer done()
	return client.log(ctx, *after, true, func(l guestapi.LogLine, err error) bool {
		*after = l.Seq
		return yield(l, err)
	})
}
