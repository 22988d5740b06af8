package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
)

// running is a daemon on the fake driver.
type running struct {
	*testing.T
	dir, url, key string
	log           *lines
	stop          func() error
}

// lines is a log that is written to by many.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func serve(t *testing.T, dir string, settings map[string]string) *running {
	t.Helper()
	flags := map[string]string{"driver": "fake", "listen": "127.0.0.1:0", "data_dir": filepath.Join(dir, "data"), "pool_ready": "0", "pool_prepared": "0"}
	for k, v := range settings {
		flags[k] = v
	}
	cfg, err := config.Load(func(string) (string, bool) { return "", false }, os.DevNull, flags)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{T: t, dir: dir, log: &lines{}}
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan Started, 1), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, cfg, Surroundings{
			ClientFile: filepath.Join(dir, "client.json"), Log: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Started: func(s Started) { started <- s },
		})
	}()
	select {
	case s := <-started:
		r.url = s.URL
	case err := <-ended:
		t.Fatal(err)
	}
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	entry, ok := config.EntryOf(filepath.Join(dir, "client.json"), cfg.DataDir)
	if !ok {
		t.Fatal("there is no key")
	}
	r.key = entry.APIKey
	for {
		res, err := http.Get(r.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return r
		}
	}
}

// shortDir is short, because the path of a Unix socket holds 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// do makes a request and gives the body of an answer with a status.
func (r *running) do(want int, method, path, body string, header ...string) string {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		r.Fatalf("%s %s: %d, want %d: %s, %v", method, path, res.StatusCode, want, raw, err)
	}
	return string(raw)
}

func (r *running) create() string {
	r.Helper()
	var info api.SandboxInfo
	if err := json.Unmarshal([]byte(r.do(201, "POST", "/v1/sandboxes", `{"template":"base"}`)), &info); err != nil {
		r.Fatal(err)
	}
	return info.ID
}

// numbers reads a page of metrics.
func numbers(t *testing.T, page string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for s := bufio.NewScanner(strings.NewReader(page)); s.Scan(); {
		i := strings.LastIndexByte(s.Text(), ' ')
		if strings.HasPrefix(s.Text(), "#") || i < 0 {
			continue
		}
		v, err := strconv.ParseFloat(s.Text()[i+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		out[s.Text()[:i]] = v
	}
	return out
}

// What the daemon did is in its counts.
func TestMetricsCountWhatHappened(t *testing.T) {
	r := serve(t, shortDir(t), map[string]string{"metrics_listen": "127.0.0.1:0"})
	before := numbers(t, r.do(200, "GET", "/metrics", ""))
	one, two := r.create(), r.create()
	r.do(404, "POST", "/v1/sandboxes", `{"template":"nothing"}`)
	r.do(200, "POST", "/v1/sandboxes/"+one+"/repl/sessions/default/run", `{"code":"x = 1"}`)
	r.do(200, "POST", "/v1/sandboxes/"+one+"/repl/sessions/default/run", `{"code":"raise"}`)
	r.do(204, "POST", "/v1/sandboxes/"+two+"/pause", "")
	r.do(404, "GET", "/v1/nothing/"+one, "")
	after := numbers(t, r.do(200, "GET", "/metrics", ""))
	for name, want := range map[string]float64{
		`pandastack_sandbox_create_seconds_count{path="cold"}`:                 2,
		`pandastack_sandbox_create_failures_total{code="not_found"}`:           1,
		`pandastack_sandboxes{state="running"}`:                                1,
		`pandastack_sandboxes{state="paused"}`:                                 1,
		`pandastack_sandboxes_memory_bytes`:                                    2 << 20,
		`pandastack_cell_seconds_count{end="ok"}`:                              1,
		`pandastack_cell_seconds_count{end="error"}`:                           1,
		`pandastack_api_requests_total{code="201",route="POST /v1/sandboxes"}`: 2,
		`pandastack_api_requests_total{code="404",route="POST /v1/sandboxes"}`: 1,
		`pandastack_api_requests_total{code="404",route="none"}`:               1,
		`pandastack_api_request_seconds_count{route="POST /v1/sandboxes"}`:     3,
		`pandastack_store_errors_total`:                                        0,
		`pandastack_ready`:                                                     0, // nothing of it was before
	} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s went up by %v, want %v", name, got, want)
		}
	}
	if after["pandastack_ready"] != 1 || after["process_resident_memory_bytes"] == 0 {
		t.Errorf("ready %v, memory %v", after["pandastack_ready"], after["process_resident_memory_bytes"])
	}
	for name := range after {
		if strings.Contains(name, one) || strings.Contains(name, two) {
			t.Errorf("%s has an id in it", name)
		}
	}
	r.do(204, "DELETE", "/v1/sandboxes/"+one, "")
	// The address of its own needs no key.
	_, addr, ok := strings.Cut(r.log.String(), `"msg":"metrics are served without a key","url":"`)
	if !ok {
		t.Fatalf("no address in the log: %s", r.log)
	}
	addr, _, _ = strings.Cut(addr, `"`)
	res, err := http.Get(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if got := numbers(t, string(raw))[`pandastack_sandbox_ends_total{reason="killed"}`]; err != nil || got != 1 {
		t.Errorf("%d: %v ends, %v", res.StatusCode, got, err)
	}
	r.do(401, "GET", "/metrics", "", "Authorization", "Bearer nobody's")
	if !strings.Contains(r.log.String(), one) {
		t.Error("the log says nothing of the sandbox")
	}
}

// A stream of events outlives a restart of the daemon by its Last-Event-ID, and
// the daemon's own coming and going is in it.
func TestEventsGoOnAfterARestart(t *testing.T) {
	dir := shortDir(t)
	r := serve(t, dir, nil)
	id := r.create()
	r.do(200, "POST", "/v1/sandboxes/"+id+"/repl/sessions/default/run", `{"code":"raise"}`, "X-Request-Id", "the-cell")
	var list api.LifeEvents
	read := func(path string) []string {
		t.Helper()
		list = api.LifeEvents{}
		if err := json.Unmarshal([]byte(r.do(200, "GET", path, "")), &list); err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, e := range list.Events {
			types = append(types, e.Type)
		}
		return types
	}
	if got := fmt.Sprint(read("/v1/sandboxes/" + id + "/events")); got != "[created ready context_started cell_ended]" {
		t.Errorf("its events: %s", got)
	}
	last := list.Events[len(list.Events)-1]
	if last.Payload["end"] != "error" || last.Payload["context_id"] != "default" {
		t.Errorf("the cell: %+v", last)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = serve(t, dir, nil)
	if got := fmt.Sprint(read(fmt.Sprintf("/v1/events?after=%d", last.ID))); got != "[daemon_stopped daemon_started ended]" && got != "[daemon_stopped daemon_started]" {
		t.Errorf("after the restart: %s", got)
	}
	if p := list.Events[1].Payload; p["clean"] != true {
		t.Errorf("the start says %v", p)
	}
	// A stream is cut when the daemon stops and does not hold it up.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/events?follow=1&tail=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := bufio.NewReader(res.Body)
	if line, err := stream.ReadString('\n'); err != nil || !strings.HasPrefix(line, "id: ") {
		t.Fatalf("%q, %v", line, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.stop() }()
	if _, err := io.Copy(io.Discard, stream); err == nil && ctx.Err() != nil {
		t.Error("the stream was not cut")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "waiting for") {
		t.Errorf("%s", r.log)
	}
}

// The id of a request is in the answer, in an error's body and in every line of
// the log that it caused.
func TestRequestIDIsEverywhere(t *testing.T) {
	r := serve(t, shortDir(t), nil)
	if body := r.do(404, "GET", "/v1/sandboxes/none", "", "X-Request-Id", "my-id.1"); !strings.Contains(body, `"request_id":"my-id.1"`) {
		t.Errorf("the body: %s", body)
	}
	r.do(201, "POST", "/v1/sandboxes", `{"template":"base"}`, "X-Request-Id", "my-id.2")
	r.do(200, "GET", "/v1/me", "", "X-Request-Id", "not fit for a log")
	seen := map[string]int{}
	for line := range strings.Lines(r.log.String()) {
		var l struct {
			Msg       string `json:"msg"`
			RequestID string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen[l.Msg+" "+l.RequestID]++
		if strings.Count(line, "request_id") > 1 {
			t.Errorf("twice in one line: %s", line)
		}
		if strings.Contains(l.RequestID, " ") || l.Msg == "request" && l.RequestID == "" {
			t.Errorf("%s", line)
		}
	}
	for _, want := range []string{"request my-id.1", "request my-id.2", "sandbox created my-id.2", "guest assigned my-id.2"} {
		if seen[want] != 1 {
			t.Errorf("%q is %d times in the log: %v", want, seen[want], seen)
		}
	}
}

// A key that is none is said before anything is served.
func TestTrustedKeys(t *testing.T) {
	good := "ed25519:" + strings.Repeat("A", 43)
	if keys, err := trustedKeys([]string{good}); err != nil || len(keys) != 1 || string(keys[0]) != good {
		t.Errorf("%v, %v", keys, err)
	}
	_, err := trustedKeys([]string{good, "ed25519:AAAA"})
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != api.CodeInvalid || f.Field != "snapshot_trusted_keys" || !strings.Contains(f.Message, "ed25519:AAAA") {
		t.Errorf("a key that is none: %v", err)
	}
}
