package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/store"
)

// serveMetrics serves the page at an address of its own, to everybody, until
// the process ends. Nothing is served when there is no address.
func serveMetrics(addr string, page http.Handler, own *listening, log *slog.Logger) error {
	if addr == "" {
		return nil
	}
	ln, err := listen("metrics_listen", addr)
	if err != nil {
		return err
	}
	own.add(ln)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	go func() {
		if err := srv.Serve(ln); err != nil {
			log.Error("metrics are not served any more", "error", err)
		}
	}()
	log.Info("metrics are served without a key", "url", "http://"+reachable(ln.Addr())+"/metrics")
	return nil
}

// lifeOfDaemon is an event of no sandbox.
func lifeOfDaemon(kind string, payload map[string]any) store.Event {
	if payload == nil {
		payload = map[string]any{}
	}
	payload["version"] = version
	return store.Event{At: time.Now(), Type: kind, Payload: payload}
}

// cleanly tells whether the last daemon was told to stop; the first has none
// before it.
func cleanly(ctx context.Context, events *journal.Journal) bool {
	list, err := events.Last(ctx, journal.Of{}, 100)
	if err != nil {
		return false
	}
	for _, e := range slices.Backward(list) {
		switch e.Type {
		case api.LifeDaemonStopped:
			return true
		case api.LifeDaemonStarted:
			return false
		}
	}
	return true
}
