package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// watching is the version of the protocol that brought watches.
const watching = 8

// Watch is what is watched, under an id with which it is found again.
type Watch struct {
	ID        string
	Path      string
	Recursive bool
}

// Watch gives the events of a watch that have a number above after, and those
// that come. It begins the watch when there is none with this id.
func (c *Client) Watch(ctx context.Context, w Watch, after int64) iter.Seq2[api.FileEvent, error] {
	return func(yield func(api.FileEvent, error) bool) {
		if err := c.watch(ctx, w, after, yield); err != nil {
			yield(api.FileEvent{}, err)
		}
	}
}

func (c *Client) watch(ctx context.Context, w Watch, after int64, yield func(api.FileEvent, error) bool) error {
	if err := c.needs(watching, "watch files"); err != nil {
		return err
	}
	q := url.Values{"path": {w.Path}, "after": {strconv.FormatInt(after, 10)}}
	if w.Recursive {
		q.Set("recursive", "1")
	}
	lines, err := c.events(ctx, call{method: http.MethodGet, path: "/watches/" + url.PathEscape(w.ID), query: q}, after)
	if err != nil {
		return err
	}
	defer lines.Close()
	for {
		raw, release, err := lines.line()
		if err != nil {
			release()
			return lines.why(err)
		}
		e, err := fileEvent(raw, after)
		release()
		switch {
		case err != nil:
			return err
		case e.Seq == 0: // a blank line
			continue
		}
		after = e.Seq
		if !yield(e, nil) || e.Type == api.FileEnded {
			return nil
		}
	}
}

// fileEvent reads and bounds one event. A blank line has no number.
func fileEvent(raw []byte, after int64) (api.FileEvent, error) {
	var in api.FileEvent
	if raw = bytes.TrimSpace(raw); len(raw) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return in, nonsense("an event of a watch: %w", err)
	}
	if in.Seq <= after {
		return in, nonsense("event %d after event %d", in.Seq, after)
	}
	e := api.FileEvent{Seq: in.Seq, Type: in.Type}
	switch in.Type {
	case api.FileStarted:
		if guestapi.ValidID(in.WatchID) {
			e.WatchID = in.WatchID
		}
		return e, nil
	case api.FileEnded:
		e.Reason = api.WatchRemoved // the host knows all other ends
		return e, nil
	case api.FileOverflow:
		switch in.Reason {
		case api.OverflowQueue, api.OverflowSlow, api.OverflowFolders, api.OverflowLost:
		default:
			return e, nonsense("an overflow for %q", cut(in.Reason, maxName))
		}
		e.Reason, e.Dropped = in.Reason, atLeast0(in.Dropped)
		if in.Path == "" {
			return e, nil
		}
	case api.FileCreate, api.FileWrite, api.FileClose, api.FileRename, api.FileRemove, api.FileChmod:
	default:
		return e, nonsense("event type %q", cut(in.Type, maxName))
	}
	e.IsDir = in.IsDir
	e.Path, e.RawPath = in.Path, in.RawPath
	if in.Type == api.FileRename {
		e.From, e.RawFrom = in.From, in.RawFrom
		if err := checkPath(e.From, e.RawFrom); err != nil {
			return e, err
		}
	}
	return e, checkPath(e.Path, e.RawPath)
}

// maxWatched is the length of the longest path in an event: of what is watched,
// and of a path as long as any below it.
const maxWatched = 2 * maxPath

// checkPath refuses what cannot be the path of a file.
func checkPath(text string, raw []byte) error {
	p := text
	if raw != nil {
		p = string(raw)
	}
	if len(text) > 3*maxWatched || len(p) > maxWatched || !path.IsAbs(p) || path.Clean(p) != p || strings.Contains(p, "\x00") {
		return nonsense("an event of the path %q", cut(p, maxName))
	}
	return nil
}

// FollowWatch is Watch across links that break: whoever reads does not notice.
// A sandbox that is put to sleep in the middle stays asleep, which is an error,
// as is everything else that ends it but the event that does.
func FollowWatch(ctx context.Context, w Watch, after int64, link Link) iter.Seq2[api.FileEvent, error] {
	return func(yield func(api.FileEvent, error) bool) {
		err := stay(ctx, &after, func(linkCtx context.Context) error { return followWatchOnce(ctx, linkCtx, w, &after, link, yield) })
		if err != nil {
			yield(api.FileEvent{}, err)
		}
	}
}

func followWatchOnce(ctx, linkCtx context.Context, w Watch, after *int64, link Link, yield func(api.FileEvent, error) bool) error {
	client, done, err := link(linkCtx)
	if err != nil {
		return err
	}
	defer done()
	return client.watch(ctx, w, *after, func(e api.FileEvent, err error) bool {
		*after = e.Seq
		return yield(e, err)
	})
}
