package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
)

// logs gives the last lines of a sandbox's console (stdout) and of its agent's
// log (stderr), ?stream= one of them or both. With ?follow=1 more come as they
// are written.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	stream := q.Get("stream")
	switch stream {
	case "", "both", "stdout", "stderr":
	default:
		return fault.InvalidField("stream", "stream must be stdout, stderr or both, but is %s", shown(stream))
	}
	wanted := func(name string) bool { return stream == "" || stream == "both" || stream == name }
	follows, err := boolean(q, "follow")
	if err != nil {
		return err
	}
	after, err := lastEventID(r)
	if err != nil {
		return err
	}
	if follows {
		return s.followLogs(w, r, after, wanted)
	}
	var text bytes.Buffer
	err = s.withGuest(r, func(ctx context.Context, g *guest.Client) error {
		text.Reset()
		for l, err := range g.Log(ctx, 0, false) {
			if err != nil {
				return err
			}
			if wanted(l.Stream) {
				fmt.Fprintln(&text, l.Line)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(text.Bytes()) // a client that is gone is noticed by the server
	return nil
}

// followLogs ends when the sandbox does, and when it is put to sleep.
func (s *Server) followLogs(w http.ResponseWriter, r *http.Request, after int64, wanted func(stream string) bool) error {
	link := func(ctx context.Context) (*guest.Client, func(), error) {
		return s.Sandboxes.Guest(ctx, owner(r), r.PathValue("id"))
	}
	out := newSSE(w, keepAlive)
	defer out.close()
	for l, err := range guest.FollowLog(r.Context(), after, link) {
		if err != nil && out.started() && s.notReachable(r, err) != "" {
			return nil
		}
		if err == nil && wanted(l.Stream) {
			err = out.send(l.Seq, "line", api.LogLine{Line: l.Line, Stream: l.Stream, Time: l.Time})
		}
		if err != nil {
			return err // once the response has begun, fail cuts the connection
		}
	}
	return nil
}
