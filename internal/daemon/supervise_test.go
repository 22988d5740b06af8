package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// hear listens as systemd does, and gives what it is told.
func hear(t *testing.T, watchdog time.Duration) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	return func() string {
		if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1024)
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestSystemdHearsWhenItIsReadyAndAlive(t *testing.T) {
	told := hear(t, 60*time.Millisecond)
	var sick atomic.Bool
	asked := make(chan bool, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sick.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		select {
		case asked <- sick.Load():
		default:
		}
	}))
	defer srv.Close()

	adopted := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		supervise(ctx, func(ctx context.Context) error { <-adopted; return nil }, srv.URL, slog.New(slog.DiscardHandler))
	}()
	notify(slog.Default(), "STATUS=before") // it must come first: nothing is said before the sandboxes are found again
	close(adopted)
	for _, want := range []string{"STATUS=before", "READY=1\nSTATUS=listening on " + srv.URL, "WATCHDOG=1", "WATCHDOG=1"} {
		if got := told(); got != want {
			t.Fatalf("systemd was told %q, want %q", got, want)
		}
	}

	// A daemon that does not answer itself stays silent.
	sick.Store(true)
	for n := 0; n < 6; {
		if <-asked {
			n++
		}
	}
	stop()
	<-done
	notify(slog.Default(), "STATUS=after")
	for range 4 { // what was said before it fell sick
		if told() == "STATUS=after" {
			return
		}
	}
	t.Error("systemd was told that a sick daemon is alive")
}

func TestSystemdHearsNothingOfADaemonThatNeverGetsReady(t *testing.T) {
	told := hear(t, 0)
	supervise(context.Background(), func(context.Context) error { return errors.New("ends") }, "http://127.0.0.1:1", slog.Default())
	notify(slog.Default(), "STATUS=after")
	if got := told(); got != "STATUS=after" {
		t.Errorf("systemd was told %q", got)
	}
}
