package pandastack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

func serve(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := NewClient(WithAPIURL(srv.URL), WithAPIKey("pds_k"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestErrorsHaveKinds(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer pds_k" || !strings.HasPrefix(r.URL.Path, "/v1/") {
			t.Errorf("request %s %v", r.URL, r.Header)
		}
		w.WriteHeader(404)
		fmt.Fprint(w, `{"error":"no sandbox","code":"not_found","hint":"look again","field":"id","request_id":"r1"}`)
	})
	_, err := c.Get(t.Context(), "x/y")
	var e *Error
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || !errors.As(err, &e) {
		t.Fatalf("error %v", err)
	}
	if e.StatusCode != 404 || e.Hint != "look again" || e.Field != "id" || e.RequestID != "r1" || !strings.Contains(err.Error(), "look again") {
		t.Errorf("%+v", e)
	}
}

func TestErrorsOfOtherServers(t *testing.T) {
	for status, want := range map[int]error{401: ErrUnauthenticated, 404: ErrNotFound, 400: ErrInvalid, 504: ErrTimeout, 502: ErrInternal} {
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", status) })
		if _, err := c.Me(t.Context()); !errors.Is(err, want) {
			t.Errorf("%d is %v, want %v", status, err, want)
		}
	}
}

func TestNoServer(t *testing.T) {
	c, err := NewClient(WithAPIURL("http://127.0.0.1:1"), WithAPIKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Sandbox("x").RunCode(t.Context(), "1"); !errors.Is(err, ErrConnection) {
		t.Errorf("run: %v", err)
	}
	for _, err := range c.Sandbox("x").Context("").Stream(t.Context(), "1") {
		if !errors.Is(err, ErrConnection) {
			t.Errorf("stream: %v", err)
		}
	}
}

// A run whose connection breaks is asked for again under the same id.
func TestRunAttachesAgain(t *testing.T) {
	var ids []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var req api.RunRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		if ids = append(ids, req.ExecutionID); len(ids) < 3 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"execution_id":%q,"end":"ok","results":[{"text/plain":"2"}]}`, req.ExecutionID)
	})
	ex, err := c.Sandbox("s").RunCode(t.Context(), "1+1")
	if err != nil {
		t.Fatal(err)
	}
	if ex.Text() != "2" || len(ids) != 3 || ids[0] == "" || ids[0] != ids[1] || ids[1] != ids[2] {
		t.Errorf("%+v, ids %q", ex, ids)
	}
}

// A create whose connection breaks is asked for again under the same key; two
// creates have two.
func TestCreateIsAskedForAgain(t *testing.T) {
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) < 3 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"id":"sb-1"}`)
	})
	for _, o := range []CreateOptions{{}, {}, {IdempotencyKey: "mine"}} {
		if sb, err := c.Create(t.Context(), o); err != nil || sb.ID != "sb-1" {
			t.Errorf("%+v, %v", sb, err)
		}
	}
	if len(keys) != 5 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] || keys[3] == keys[2] || keys[4] != "mine" {
		t.Errorf("keys %q", keys)
	}
}

// A call that came too soon waits and is sent again, with its body; one that
// has too much of something, or whose body is used up, is not.
func TestTooManyCallsWait(t *testing.T) {
	var bodies []string
	after := "1"
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if bodies = append(bodies, string(raw)); len(bodies) == 1 {
			w.Header().Set("Retry-After", after)
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":"slow down","code":"rate_limited"}`)
			return
		}
		fmt.Fprint(w, `{"ttl_seconds":9}`)
	})
	sb := c.Sandbox("s")
	if l, err := sb.SetTTL(t.Context(), 9*time.Second); err != nil || l.TTLSeconds != 9 || len(bodies) != 2 || bodies[0] != bodies[1] || bodies[0] == "" {
		t.Errorf("%+v, %v, bodies %q", l, err, bodies)
	}
	bodies = nil
	if _, err := sb.WriteFrom(t.Context(), "/x", io.MultiReader(strings.NewReader("once")), WriteOptions{}); !errors.Is(err, ErrRateLimited) || len(bodies) != 1 {
		t.Errorf("a body that is used up: %v, bodies %q", err, bodies)
	}
	for _, after = range []string{"10", "", "soon", "0"} {
		bodies = nil
		if _, err := sb.SetTTL(t.Context(), 9*time.Second); !errors.Is(err, ErrRateLimited) || len(bodies) != 1 {
			t.Errorf("Retry-After %q: %v, %d calls", after, err, len(bodies))
		}
	}
}

func TestListsComePageByPage(t *testing.T) {
	const all = 1200
	var pages int
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		pages++
		q := r.URL.Query()
		start, _ := strconv.Atoi(q.Get("cursor"))
		size, err := strconv.Atoi(q.Get("limit"))
		if err != nil || q.Get("metadata.a b") != "c" || q.Get("template") != "base" {
			t.Errorf("query %s", r.URL.RawQuery)
		}
		end := min(all, start+size)
		if end < all {
			w.Header().Set("X-Next-Cursor", strconv.Itoa(end))
		}
		list := make([]api.SandboxInfo, end-start)
		for i := range list {
			list[i].ID = strconv.Itoa(start + i)
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	for limit, want := range map[int]struct{ n, pages int }{0: {1200, 3}, 1: {1, 1}, 500: {500, 1}, 501: {501, 2}, 5000: {1200, 3}} {
		pages = 0
		list, err := c.List(t.Context(), ListOptions{Metadata: map[string]string{"a b": "c"}, Template: "base", Limit: limit})
		if err != nil || len(list) != want.n || pages != want.pages || list[want.n-1].ID != strconv.Itoa(want.n-1) {
			t.Errorf("limit %d: %d in %d pages, %v", limit, len(list), pages, err)
		}
	}
}

// A stream that breaks goes on behind its last event, and gives nothing twice.
func TestStreamAttachesAgain(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		switch calls.Add(1) {
		case 1:
			if r.Method != "POST" {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			fmt.Fprint(w, "id: 1\nevent: started\ndata: {\"execution_id\":\"e\"}\n\n: still here\n\nid: 2\nevent: stdout\ndata: {\"text\":\"a\"}\n\nid: 3\nevent: std")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			if r.Method != "GET" || r.URL.Query().Get("after") != "2" || !strings.Contains(r.URL.Path, "/executions/") {
				t.Errorf("%s %s", r.Method, r.URL)
			}
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, "id: 3\nevent: stdout\ndata: {\"text\":\"b\"}\n\nid: 4\nevent: end\ndata: {\"execution_id\":\"e\",\"end\":\"ok\"}\n\n")
		}
	})
	var got []string
	for e, err := range c.Sandbox("s").Context("c").Stream(t.Context(), "x") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d %s %s", e.Seq, e.Type, e.Text))
	}
	if s := strings.Join(got, "|"); s != "1 started |2 stdout a|3 stdout b|4 end " {
		t.Errorf("events %s", s)
	}
}

// An execution that the server has forgotten ends the stream with its error.
func TestStreamEndsWithTheServersError(t *testing.T) {
	n := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			fmt.Fprint(w, "id: 1\nevent: started\ndata: {}\n\n")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(404)
		fmt.Fprint(w, `{"error":"the sandbox has ended","code":"not_found"}`)
	})
	var last error
	for _, err := range c.Sandbox("s").Context("c").Stream(t.Context(), "x") {
		last = err
	}
	if !errors.Is(last, ErrNotFound) {
		t.Errorf("ended with %v", last)
	}
}

func TestExecStream(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		exit int
		err  error
	}{
		"exit":  {"event: stdout\ndata: {\"chunk\":\"hi\"}\n\nevent: exit\ndata: {\"exit_code\":3}\n\n", 3, nil},
		"error": {"event: error\ndata: {\"error\":\"timeout\",\"code\":\"timeout\"}\n\n", 0, ErrTimeout},
		"cut":   {"event: stdout\ndata: {\"chunk\":\"hi\"}\n\n", 0, ErrConnection},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tc.body) })
			exit := 0
			var last error
			for _, err := range c.Sandbox("s").ExecStream(t.Context(), Shell("x"), ExecOptions{}, &exit) {
				last = err
			}
			if exit != tc.exit || !errors.Is(last, tc.err) {
				t.Errorf("exit %d, error %v", exit, last)
			}
		})
	}
}

func TestExecTimeoutKeepsTheOutput(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(504)
		fmt.Fprint(w, `{"error":"timeout","code":"timeout","stdout":"so far","stderr":"","exit_code":137}`)
	})
	_, err := c.Sandbox("s").Exec(t.Context(), Shell("sleep 9"), ExecOptions{})
	var late *TimeoutError
	if !errors.As(err, &late) || late.Result.Stdout != "so far" || !errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Sandbox("s").RunCode(ctx, "1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestWhereTheServerIs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("PANDASTACK_API", "")
	t.Setenv("PANDASTACK_API_URL", "")
	t.Setenv("PANDASTACK_API_KEY", "")
	check := func(url, key string, opts ...Option) {
		t.Helper()
		c, err := NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		if c.root != url || c.key != key || c.base != url+"/v1" {
			t.Errorf("%s %s %s, want %s %s", c.root, c.base, c.key, url, key)
		}
	}
	kept := systemFile
	t.Cleanup(func() { systemFile = kept })
	systemFile = filepath.Join(dir, "client.json")
	check("http://127.0.0.1:8080", "")
	if err := os.WriteFile(systemFile, []byte(`{"api_url":"http://s:1","api_key":"ks"}`), 0o640); err != nil {
		t.Fatal(err)
	}
	check("http://s:1", "ks")
	if err := os.MkdirAll(filepath.Join(dir, "pandastack"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := `{"api_url":"http://f:1","api_key":"kf","profiles":{"local":{"api_url":"http://p:2/v1/","api_key":"kp"}}}`
	if err := os.WriteFile(filepath.Join(dir, "pandastack", "config.json"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	check("http://f:1", "kf")
	t.Setenv("PANDASTACK_API_URL", "http://e:3")
	t.Setenv("PANDASTACK_API_KEY", "ke")
	check("http://e:3", "ke")
	check("http://p:2", "kp", WithProfile("local"))
	check("http://a:4", "ka", WithAPIURL("http://a:4/"), WithAPIKey("ka"))
	for _, opts := range [][]Option{{WithProfile("none")}, {WithAPIURL("a:4")}, {WithAPIURL("ftp://x")}} {
		if _, err := NewClient(opts...); err == nil {
			t.Error("a client that cannot work was made")
		}
	}
}

func TestFailedCommandKeepsItsOutput(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(409)
		fmt.Fprint(w, `{"error":"the sandbox has ended","code":"conflict","stdout":"so far","stderr":"and this"}`)
	})
	_, err := c.Sandbox("s").Exec(t.Context(), Shell("x"), ExecOptions{})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	if stdout, stderr := e.Output(); stdout != "so far" || stderr != "and this" {
		t.Errorf("%q %q", stdout, stderr)
	}
}

// A process's output is taken up where it broke, byte for byte, and its input
// goes piece by piece.
func TestProcess(t *testing.T) {
	var input bytes.Buffer
	closed, streams := false, 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1/sandboxes/s/processes") {
		case "POST ":
			var req api.StartProcessRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil || !req.Stdin || req.TimeoutMS != 1500 {
				t.Errorf("%+v %v", req, err)
			}
			fmt.Fprint(w, `{"pid":7,"running":true}`)
		case "POST /7/stdin":
			_, _ = io.Copy(&input, r.Body)
		case "DELETE /7/stdin":
			closed = true
		case "GET /7/stream":
			switch after := r.URL.Query().Get("after"); {
			case streams == 0 && after == "0":
				fmt.Fprint(w, "id: 1\nevent: started\ndata: {\"pid\":7}\n\nid: 2\nevent: stdout\ndata: {\"text\":\"a\"}\n\n")
			case streams == 1 && after == "2":
				fmt.Fprint(w, "id: 3\nevent: stdout\ndata: {\"raw\":\"/wA=\"}\n\nid: 4\nevent: gap\ndata: {\"stream\":\"stderr\",\"dropped\":5}\n\n"+
					"id: 5\nevent: exit\ndata: {\"exit_code\":3,\"reason\":\"exited\",\"stderr_dropped\":9}\n\n")
			default:
				t.Errorf("stream %d after %q", streams, after)
			}
			streams++
		default:
			t.Errorf("%s %s", r.Method, r.URL)
		}
	})
	p, err := c.Sandbox("s").Start(t.Context(), Shell("x"), StartOptions{Stdin: true, TimeoutSeconds: 1.5})
	if err != nil || p.PID != 7 || !p.Info.Running {
		t.Fatalf("%+v %v", p, err)
	}
	if err := p.Feed(t.Context(), strings.NewReader(strings.Repeat("x", 2*feedPiece+1))); err != nil || input.Len() != 2*feedPiece+1 || !closed {
		t.Errorf("%d bytes, closed %v, %v", input.Len(), closed, err)
	}
	var stdout, stderr bytes.Buffer
	x, err := p.Wait(t.Context(), 0, &stdout, &stderr)
	if err != nil || x.Code != 3 || x.StderrDropped != 5 || stdout.String() != "a\xff\x00" {
		t.Errorf("%+v %v %q", x, err, stdout.String())
	}
}

func TestFoldersAreReadPageByPage(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch after := r.URL.Query().Get("after"); after {
		case "":
			fmt.Fprint(w, `{"path":"/d","entries":[{"name":"a","path":"/d/a"},{"name":"b�","raw_name":"Yv8=","path":"/d/b�"}],"truncated":true}`)
		case "b\xff":
			fmt.Fprint(w, `{"path":"/d","entries":[{"name":"c","path":"/d/c"}]}`)
		default:
			t.Errorf("after %q", after)
		}
	})
	list, err := c.Sandbox("s").ReadDir(t.Context(), "/d")
	if err != nil || len(list) != 3 || list[1].Path != "/d/b\xff" {
		t.Errorf("%+v %v", list, err)
	}
}

// A call takes as long as its context allows, however long the server is silent:
// a create may be, for minutes.
func TestNoPatienceButThatOfTheContext(t *testing.T) {
	c, err := NewClient(WithAPIURL("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	if patience := c.http.Transport.(*http.Transport).ResponseHeaderTimeout; patience != 0 || c.http.Timeout != 0 {
		t.Errorf("it waits %s for an answer, and %s in all", patience, c.http.Timeout)
	}
}

// A proxy before the server may ask for headers of its own: calls, streams and
// sockets have them, and what the SDK says itself stands.
func TestHeadersForAProxy(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]http.Header{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen[r.Method+" "+r.URL.Path] = r.Header.Clone()
		mu.Unlock()
		switch {
		case r.URL.Path == "/v1/sandboxes":
			fmt.Fprint(w, `{"id":"sb-1"}`)
		case r.Header.Get("Upgrade") != "":
			w.WriteHeader(409)
			fmt.Fprint(w, `{"error":"nothing listens","code":"conflict"}`)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	t.Cleanup(srv.Close)
	c, err := NewClient(WithAPIURL(srv.URL), WithAPIKey("pds_k"), WithHeader("X-Proxy-Token", "let me in"), WithHeader("Authorization", "Basic x"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	sb, err := c.Create(ctx, CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Version(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := sb.Dial(ctx, 80); err == nil {
		t.Error("it dialled")
	}
	if len(seen) != 3 {
		t.Errorf("%d requests", len(seen))
	}
	for path, h := range seen {
		if got := h.Values("X-Proxy-Token"); len(got) != 1 || got[0] != "let me in" || h.Get("Authorization") != "Bearer pds_k" || h.Get("User-Agent") != userAgent {
			t.Errorf("%s: %v", path, h)
		}
	}
}
