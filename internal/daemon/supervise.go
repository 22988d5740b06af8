package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells systemd something, when that started the daemon and asked to be
// told (Type=notify); otherwise it does nothing.
func notify(log *slog.Logger, state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told how the daemon does", "state", state, "error", err)
	}
}

// supervise tells systemd that the daemon is ready once the sandboxes of the
// last one are found again, and from then on that it is alive, as often as the
// unit's watchdog asks.
func supervise(ctx context.Context, ready func(context.Context) error, url string, log *slog.Logger) {
	if ready(ctx) != nil {
		return // it ends before it was ready, and says why itself
	}
	notify(log, systemd.SdNotifyReady+"\nSTATUS=listening on "+url)
	every, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("the watchdog that systemd asks for is not understood", "error", err)
	}
	if every == 0 {
		return
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		if err := alive(ctx, url, every/3); err == nil {
			notify(log, systemd.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			log.Error("the daemon does not answer itself", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// alive asks the daemon as a client would. It goes no deeper than that: a full
// disk or a broken sandbox is not mended by starting again.
func alive(ctx context.Context, url string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10)); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /healthz: %s", res.Status)
	}
	return nil
}
