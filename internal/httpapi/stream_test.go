package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

var info404 = fault.New(api.CodeNotFound, "there is no such sandbox")

// start serves the stub over a real connection, whose requests end with stop.
func start(t *testing.T, st *stub) (url string, stop context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	srv := httptest.NewUnstartedServer(Conform(t, New(Options{Sandboxes: st, Kernels: st, Commands: st, Keys: stubKeys{}})))
	srv.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.Start()
	t.Cleanup(func() { cancel(nil); srv.Close() })
	return srv.URL, cancel
}

func post(t *testing.T, url, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testKey)
	return http.DefaultClient.Do(req)
}

const runPath = "/v1/sandboxes/sb-1/repl/sessions/c/run"

// A caller that waits for an execution it can name is cut off without an
// answer, so that it attaches again.
func TestStopCutsAWaitingRun(t *testing.T) {
	for path, body := range map[string]string{
		runPath: `{"code":"1","execution_id":"e"}`, "/v1/sandboxes/sb-1/exec": `{"cmd":"ls","execution_id":"e"}`,
	} {
		t.Run(path, func(t *testing.T) { testStopCuts(t, path, body) })
	}
}

func testStopCuts(t *testing.T, path, body string) {
	st := &stub{block: true}
	url, stop := start(t, st)
	go func() {
		for {
			st.mu.Lock()
			n := len(st.calls)
			st.mu.Unlock()
			if n > 0 {
				stop(ErrStopping)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	res, err := post(t, url+path, body)
	if err == nil {
		t.Fatalf("an answer: %s", res.Status)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want the connection to end", err)
	}
}

// Without an id there is nothing to attach to: the caller is told.
func TestStopAnswersARunWithoutID(t *testing.T) {
	st := &stub{block: true}
	url, stop := start(t, st)
	time.AfterFunc(20*time.Millisecond, func() { stop(ErrStopping) })
	res, err := post(t, url+runPath, `{"code":"1"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Fatalf("status %s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
}

// A stream that fails in the middle ends in a broken connection, not in an end
// that could be taken for the whole.
func TestBrokenStreamBreaksTheConnection(t *testing.T) {
	st := &stub{events: []api.Event{{Seq: 1, Type: api.EventStarted}}, fail: errors.New("link lost")}
	url, _ := start(t, st)
	res, err := post(t, url+runPath+"/stream", `{"code":"1"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("error %v after %q, want an unexpected end", err, body)
	}
	if !strings.Contains(string(body), "event: started") {
		t.Fatalf("the events before are lost: %q", body)
	}
}

// A command's stream that the daemon's end cuts short says so: published
// clients take a stream without an exit for success.
func TestStopTellsAnExecStream(t *testing.T) {
	st := &stub{events: []api.Event{{Seq: 1, Type: api.EventStdout, Text: "x"}}, block: true}
	url, stop := start(t, st)
	res, err := post(t, url+"/v1/sandboxes/sb-1/exec/stream", `{"cmd":"ls"}`)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r := bufio.NewReader(res.Body)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	stop(ErrStopping)
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), "event: error") {
		t.Fatalf("rest %q, error %v", rest, err)
	}
}

// flushes counts what reaches the client, as a connection would.
type flushes struct{ httptest.ResponseRecorder }

func (*flushes) SetWriteDeadline(time.Time) error { return nil }

func TestSilentStreamsBreathe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &flushes{ResponseRecorder: *httptest.NewRecorder()}
		out := newSSE(w, keepAlive)
		if err := out.send(1, "started", struct{}{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*keepAlive + time.Second)
		out.close()
		if n := strings.Count(w.Body.String(), ": still here\n\n"); n != 2 {
			t.Errorf("%d comments in three spans of silence, of which the first had an event: %q", n, w.Body.String())
		}
	})
}
