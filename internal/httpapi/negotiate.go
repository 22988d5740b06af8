package httpapi

import (
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/internal/fault"
)

// ErrStopping is the cause with which the daemon cancels the context of every
// request when it ends.
var ErrStopping = errors.New("the server is stopping")

// wantsJSON tells whether a client that could have events asked for JSON.
func wantsJSON(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		t, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		switch t {
		case "text/event-stream":
			return false
		case "application/json":
			return true
		}
	}
	return false
}

// attachAfter is the number of the last event that a client has: ?after=, or
// what a browser's EventSource says when it takes up a broken stream.
func attachAfter(r *http.Request) (int64, error) {
	q, err := query(r)
	if err != nil {
		return 0, err
	}
	if after, err := natural(q, "after", 0); after != 0 || err != nil {
		return after, err
	}
	return lastEventID(r)
}

// lastEventID is where a browser's EventSource takes up a broken stream.
func lastEventID(r *http.Request) (int64, error) {
	s := r.Header.Get("Last-Event-ID")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.InvalidField("Last-Event-ID", "Last-Event-ID must be a whole number, but is %s", shown(s))
	}
	return n, nil
}
