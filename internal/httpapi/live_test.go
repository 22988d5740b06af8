package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/agent"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/httpapi"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/preview"
	"github.com/pandastack/pandastack/internal/process"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// live is the whole server above the fake driver.
type live struct {
	t    *testing.T
	url  string
	host *fake.Host
	stop context.CancelCauseFunc
}

type oneKey struct{ *auth.Keys }

func (oneKey) Check(secret string) (auth.Identity, bool) {
	return auth.Identity{Owner: secret, Prefix: "pds_test", Scope: auth.Admin}, secret != "" // each key is a workspace
}

func (oneKey) Life(string) (context.Context, bool) { return context.Background(), true }

type oneTemplate string

func (dir oneTemplate) ByDigest(ctx context.Context, _ string) (sandbox.Template, error) {
	list, err := dir.Templates(ctx)
	return list[0], err
}

func (dir oneTemplate) Templates(context.Context) ([]sandbox.Template, error) {
	d := string(dir)
	return []sandbox.Template{{
		Info:   api.TemplateInfo{Name: "base", Digest: "d", CPU: 1, MemoryMB: 256, DiskMB: 256},
		Rootfs: d, Snapshot: d, Programs: d, PIDs: 64,
	}}, nil
}

func newLive(t *testing.T) *live { return newLiveWith(t, oneKey{}, nil) }

// newLiveWith is for tests that are about keys, about what is logged, or about what else a server is made of.
func newLiveWith(t *testing.T, keys httpapi.Keys, log *slog.Logger, more ...func(*httpapi.Options)) *live {
	t.Helper()
	// Short, because the path of a Unix socket holds 107 bytes.
	dir, err := os.MkdirTemp("", "ps")
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	host := fake.NewHost()
	m, err := sandbox.New(sandbox.Config{Driver: fake.New(host), Store: st, Templates: oneTemplate(dir), RunDir: dir + "/run"})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(running) }()

	requests, stop := context.WithCancelCause(context.Background())
	kernels, commands := kernel.New(m, kernel.Config{DisconnectWait: 20 * time.Millisecond}), process.New(m, process.Config{})
	agents := agent.New(agent.Config{Dir: dir + "/agents", Sandboxes: m, Kernels: kernels, Models: &llm.Catalog{}})
	options := httpapi.Options{
		Sandboxes: m, Kernels: kernels, Commands: commands, Agents: agents, Keys: keys, Log: log,
		Links: preview.NewSigner([]byte("of a test"), time.Now),
	}
	for _, set := range more {
		set(&options)
	}
	srv := httptest.NewUnstartedServer(httpapi.Conform(t, httpapi.New(options)))
	srv.Config.BaseContext = func(net.Listener) context.Context { return requests }
	srv.Start()
	t.Cleanup(func() {
		agents.Close()
		stop(httpapi.ErrStopping)
		srv.Close()
		kernels.Close()
		commands.Close()
		end()
		<-ended
		for _, id := range host.IDs() {
			inst, err := fake.New(host).Adopt(context.Background(), id)
			if err == nil {
				_ = inst.Stop(context.Background())
			}
		}
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return &live{t: t, url: srv.URL, host: host, stop: stop}
}

// request sends one and gives the response. A body of nil is none.
func (l *live) request(ctx context.Context, key, method, path string, body io.Reader, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, body)
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return http.DefaultClient.Do(req)
}

// do is a request of ann's that must be answered with a status.
func (l *live) do(want int, method, path, body string, header ...string) string {
	l.t.Helper()
	res, said := l.answered("ann", method, path, body, header...)
	if res.StatusCode != want {
		l.t.Fatalf("%s %s: %d, want %d: %s", method, path, res.StatusCode, want, said)
	}
	return said
}

// answered is a request of somebody's, with all of its answer.
func (l *live) answered(key, method, path, body string, header ...string) (res *http.Response, said string) {
	l.t.Helper()
	res, err := l.request(l.t.Context(), key, method, path, strings.NewReader(body), header...)
	if err != nil {
		l.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		l.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, string(raw)
}

func (l *live) into(v any, want int, method, path, body string, header ...string) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.do(want, method, path, body, header...)), v); err != nil {
		l.t.Fatal(err)
	}
}

// sandbox makes one and gives the path of its routes.
func (l *live) sandbox() (path, id string) {
	l.t.Helper()
	var info api.SandboxInfo
	l.into(&info, 201, "POST", "/v1/sandboxes", `{"template":"base","metadata":{"a":"b"}}`)
	return "/v1/sandboxes/" + info.ID, info.ID
}

func TestSandboxLife(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	var list []api.SandboxInfo
	l.into(&list, 200, "GET", "/v1/sandboxes?metadata.a=b&status=running", "")
	if len(list) != 1 || list[0].ID != id {
		t.Errorf("listed %+v", list)
	}
	var life api.Lifecycle
	l.into(&life, 200, "PATCH", path+"/lifecycle", `{"ttl_seconds":1000}`)
	if life.TTLSeconds != 1000 {
		t.Errorf("%+v", life)
	}
	l.do(204, "POST", path+"/pause", "")
	l.do(409, "POST", path+"/exec", `{"cmd":"echo hi"}`)
	l.do(204, "POST", path+"/resume", "")
	l.do(200, "POST", path+"/exec", `{"cmd":"echo hi"}`)

	l.do(204, "DELETE", path, "")
	l.do(404, "GET", path, "")
	if ids := l.host.IDs(); len(ids) != 0 {
		t.Errorf("left on the host: %q", ids)
	}
	l.do(404, "POST", "/v1/sandboxes", `{"template":"bas"}`)
	l.do(400, "POST", "/v1/sandboxes", `{"ttl_seconds":999999999}`)
}

func TestFiles(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	content := bytes.Repeat([]byte{0, 1, 254, 255, '\n'}, 1<<20) // 5 MiB, not text
	var res api.WriteResult
	l.into(&res, 200, "PUT", path+"/fs?path=/workspace/a/b.bin", string(content), "Content-Type", "application/octet-stream")
	if res.Path != "/workspace/a/b.bin" || res.Bytes != int64(len(content)) {
		t.Errorf("%+v", res)
	}
	if got := l.do(200, "GET", path+"/fs?path=/workspace/a/b.bin", ""); got != string(content) {
		t.Errorf("%d bytes came back", len(got))
	}
	if got := l.do(206, "GET", path+"/fs?path=/workspace/a/b.bin", "", "Range", "bytes=1-3"); got != "\x01\xfe\xff" {
		t.Errorf("range %q", got)
	}
	if got := l.do(206, "GET", path+"/fs?path=/workspace/a/b.bin", "", "Range", "bytes=-2"); got != "\xff\n" {
		t.Errorf("the last bytes are %q", got)
	}
	res416, err := l.request(t.Context(), "ann", "GET", path+"/fs?path=/workspace/a/b.bin", nil, "Range", "bytes=5242880-")
	if err != nil {
		t.Fatal(err)
	}
	defer res416.Body.Close()
	if res416.StatusCode != 416 || res416.Header.Get("Content-Range") != "bytes */5242880" {
		t.Errorf("a range behind the end: %s, %q", res416.Status, res416.Header.Get("Content-Range"))
	}
	if got := l.do(200, "HEAD", path+"/fs?path=/workspace/a/b.bin", ""); got != "" {
		t.Errorf("HEAD has a body of %d bytes", len(got))
	}
	if got := l.do(200, "GET", path+"/fs?path=/workspace/a/../a/b.bin", ""); len(got) != len(content) {
		t.Error("a path with .. is not the file's")
	}
	l.do(200, "PUT", path+"/fs?path=/empty", "")
	if got := l.do(200, "GET", path+"/fs?path=/empty", ""); got != "" {
		t.Errorf("the empty file holds %q", got)
	}
	var info api.FileInfo
	l.into(&info, 200, "GET", path+"/fs/stat?path=/workspace/a/b.bin", "")
	if info.Size != int64(len(content)) || info.IsDir || info.Mode != "f" {
		t.Errorf("%+v", info)
	}
	l.do(404, "GET", path+"/fs/stat?path=/none", "")
	l.do(404, "GET", path+"/fs?path=/none", "")
	l.do(204, "POST", path+"/fs/dir", `{"path":"/workspace/new"}`)
	l.do(204, "POST", path+"/fs/move", `{"from":"/workspace/a/b.bin","to":"/workspace/new/c.bin"}`)
	var dir api.DirListing
	l.into(&dir, 200, "GET", path+"/fs/dir?path=/workspace/new", "")
	if dir.Path != "/workspace/new" || len(dir.Entries) != 1 || dir.Entries[0].Name != "c.bin" {
		t.Errorf("%+v", dir)
	}
	l.do(200, "GET", path+"/fs/dir", "")
	l.do(200, "PUT", path+"/fs?path=/log", "one\n")
	l.do(200, "POST", path+"/fs?path=/log", "two\n", "Content-Type", "application/octet-stream")
	if got := l.do(200, "GET", path+"/fs?path=/log", ""); got != "one\ntwo\n" {
		t.Errorf("appended: %q", got)
	}
	for _, name := range []string{"a", "b", "c%ff"} {
		l.do(200, "PUT", path+"/fs?path=/pages/"+name, "")
	}
	seen, after := "", ""
	for more := true; more; {
		l.into(&dir, 200, "GET", path+"/fs/dir?path=/pages&limit=2&after="+after, "")
		for _, e := range dir.Entries {
			seen += " " + e.Name
			after = e.Name
		}
		more = dir.Truncated
		dir = api.DirListing{}
	}
	if seen != " a b c\uFFFD" {
		t.Errorf("in pages:%q", seen)
	}
	l.do(204, "DELETE", path+"/fs?path=/workspace/new&recursive=1", "")
	l.do(404, "GET", path+"/fs/stat?path=/workspace/new/c.bin", "")
}

// A client that sends all of an upload before it reads gets the answer of one
// that was refused at once.
func TestRefusedUploadIsAnswered(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const size = 64 << 20
	fmt.Fprintf(conn, "PUT %s/fs?path=relative HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ann\r\nContent-Length: %d\r\n\r\n", path, size)
	block := make([]byte, 1<<20)
	for sent := 0; sent < size; sent += len(block) {
		if _, err := conn.Write(block); err != nil {
			t.Fatalf("after %d bytes: %v", sent, err)
		}
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("status %s", res.Status)
	}
}

func TestCommands(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	var out api.ExecResult
	l.into(&out, 200, "POST", path+"/exec", `{"cmd":"echo hi; warn no; exit 4"}`)
	if out.Stdout != "hi\n" || out.Stderr != "no\n" || out.ExitCode != 4 {
		t.Errorf("%+v", out)
	}
	l.into(&out, 200, "POST", path+"/exec", `{"cmd":["cat"],"stdin":"in"}`)
	if out.Stdout != "in" {
		t.Errorf("%+v", out)
	}
	late := l.do(504, "POST", path+"/exec", `{"cmd":"echo first; sleep 60","timeout_seconds":0.05}`)
	if !strings.Contains(late, `"stdout":"first\n"`) || !strings.Contains(late, `"error":"timeout`) {
		t.Error(late)
	}
	stream := l.do(200, "POST", path+"/exec/stream", `{"cmd":"echo hi; exit 2"}`)
	if !strings.Contains(stream, "event: stdout\ndata: {\"chunk\":\"hi\\n\"}\n\n") || !strings.HasSuffix(stream, "\n\n") || !strings.Contains(stream, `"exit_code":2`) {
		t.Error(stream)
	}
}

func TestProcesses(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	var p api.Process
	l.into(&p, 201, "POST", path+"/processes", `{"cmd":"echo up; cat; wait go; echo down","tag":"web","stdin":true}`)
	if !p.Running || p.Tag != "web" || p.PID == 0 {
		t.Fatalf("%+v", p)
	}
	at := fmt.Sprintf("%s/processes/%d", path, p.PID)
	l.do(204, "POST", at+"/stdin", "some input")
	l.do(204, "DELETE", at+"/stdin", "")
	var list []api.Process
	l.into(&list, 200, "GET", path+"/processes", "")
	if len(list) != 1 || list[0].PID != p.PID {
		t.Errorf("%+v", list)
	}
	res, err := l.request(t.Context(), "ann", "GET", at+"/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	seen := ""
	buf := make([]byte, 4096)
	for !strings.Contains(seen, "some input") {
		n, err := res.Body.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
	// The link breaks and the stream goes on, with nothing twice.
	g := l.host.Guest(strings.TrimPrefix(path, "/v1/sandboxes/"))
	g.BreakLink()
	g.Signal("go")
	rest, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	seen += string(rest)
	for _, once := range []string{`"text":"up\n"`, `"text":"some input"`, `"text":"down\n"`, "event: exit"} {
		if strings.Count(seen, once) != 1 {
			t.Errorf("%s is there %d times: %s", once, strings.Count(seen, once), seen)
		}
	}
	l.into(&p, 200, "GET", at, "")
	if p.Running || p.Exit == nil || p.Exit.Code != 0 {
		t.Errorf("%+v", p)
	}
	if again := l.do(200, "GET", at+"/stream?after=2", ""); strings.Contains(again, `"up\n"`) || !strings.Contains(again, "event: exit") {
		t.Error(again)
	}

	l.into(&p, 201, "POST", path+"/processes", `{"cmd":"sleep 60"}`)
	at = fmt.Sprintf("%s/processes/%d", path, p.PID)
	l.do(204, "POST", at+"/signal", `{"signal":"SIGTERM"}`)
	if end := l.do(200, "GET", at+"/stream", ""); !strings.Contains(end, "SIGTERM") {
		t.Error(end)
	}
	l.into(&p, 201, "POST", path+"/processes", `{"cmd":"sleep 60"}`)
	at = fmt.Sprintf("%s/processes/%d", path, p.PID)
	l.do(204, "DELETE", at, "")
	if end := l.do(200, "GET", at+"/stream", ""); !strings.Contains(end, `"reason":"killed"`) {
		t.Error(end)
	}
	l.do(404, "GET", path+"/processes/99999", "")
	l.do(404, "DELETE", path+"/processes/99999", "")
}

func TestCells(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	var c api.Context
	l.into(&c, 201, "POST", path+"/repl/sessions", `{"language":"py"}`)
	if c.ID == "" || c.Language != "python" {
		t.Errorf("%+v", c)
	}
	at := path + "/repl/sessions/" + c.ID
	var ex api.Execution
	l.into(&ex, 200, "POST", at+"/run", `{"code":"x = 40\nprint('hé')\nx + 2","execution_id":"e1"}`)
	if ex.End != api.EndOK || ex.Stdout != "hé\n" || len(ex.Results) != 1 || ex.Results[0]["text/plain"] != "42" || ex.ExecutionID != "e1" {
		t.Errorf("%+v", ex)
	}

	// The same id with the same code is the same execution; with other code a conflict.
	l.into(&ex, 200, "POST", at+"/run", `{"code":"x = 40\nprint('hé')\nx + 2","execution_id":"e1"}`)
	if ex.ExecutionCount != 1 {
		t.Errorf("it ran again: %+v", ex)
	}
	l.do(409, "POST", at+"/run", `{"code":"x","execution_id":"e1"}`)

	// A cell that raises or runs out of time is an answer.
	ex = api.Execution{}
	l.into(&ex, 200, "POST", at+"/run", `{"code":"raise('KeyError', 'k')"}`)
	if ex.End != api.EndError || ex.Error == nil || !strings.Contains(*ex.Error, "KeyError") || ex.Exit != 1 || ex.ExitCode != 1 {
		t.Errorf("%+v", ex)
	}
	l.into(&ex, 200, "POST", at+"/run", `{"code":"sleep(60)","timeout_ms":50}`)
	if ex.End != api.EndTimeout || ex.Error == nil || !ex.StateSurvived {
		t.Errorf("%+v", ex)
	}

	// Events, from the start and from a number.
	stream := l.do(200, "POST", at+"/run/stream", `{"code":"print('a')\nwarn('b')\nx","execution_id":"e2"}`)
	for _, want := range []string{"event: started\n", "data: {\"text\":\"a\\n\"}\n", "event: stderr\n", "event: result\n", "event: end\n"} {
		if !strings.Contains(stream, want) {
			t.Errorf("the stream lacks %q: %s", want, stream)
		}
	}
	if tail := l.do(200, "GET", at+"/executions/e2?after=3", ""); strings.Contains(tail, "id: 3\n") || !strings.Contains(tail, "id: 4\n") {
		t.Error(tail)
	}
	l.into(&ex, 200, "GET", at+"/executions/e2", "", "Accept", "application/json")
	if ex.Stdout != "a\n" || ex.Stderr != "b\n" || len(ex.Results) != 1 {
		t.Errorf("%+v", ex)
	}
	l.do(404, "GET", at+"/executions/none", "", "Accept", "application/json")

	l.do(204, "DELETE", at, "")
	l.do(204, "DELETE", at, "") // idempotent
	l.do(404, "POST", at+"/run", `{"code":"1"}`)

	// "default" is made on first use.
	l.into(&ex, 200, "POST", path+"/repl/sessions/default/run", `{"code":"1 + 1"}`)
	if ex.Results[0]["text/plain"] != "2" {
		t.Errorf("%+v", ex)
	}
	l.do(400, "POST", path+"/repl/sessions", `{"language":"cobol"}`)
	l.do(200, "POST", path+"/repl", `{"language":"python","code":"1 + 1"}`)
}

// A client that goes away has its cell interrupted, unless it said otherwise.
func TestClientThatGoesAway(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	at := path + "/repl/sessions/default"
	g := func() *fake.Guest { return l.host.Guest(id) }
	for _, tc := range []struct {
		name, detach string
		want         api.End
	}{{"attached", "false", api.EndInterrupted}, {"detached", "true", api.EndOK}} {
		ctx, leave := context.WithCancel(t.Context())
		res, err := l.request(ctx, "ann", "POST", at+"/run/stream",
			strings.NewReader(fmt.Sprintf(`{"code":"wait('%s')","execution_id":"%s","detach":%s}`, tc.name, tc.name, tc.detach)))
		if err != nil {
			t.Fatal(err)
		}
		leave()
		res.Body.Close()
		if tc.detach == "true" {
			time.AfterFunc(100*time.Millisecond, func() { g().Signal(tc.name) })
		}
		// Not attached again: waiting for it in JSON would keep it alive, so look at the context.
		var c api.Context
		for c.State = "busy"; c.State != "idle"; time.Sleep(2 * time.Millisecond) {
			l.into(&c, 200, "GET", at, "")
		}
		var ex api.Execution
		l.into(&ex, 200, "GET", at+"/executions/"+tc.name, "", "Accept", "application/json")
		if ex.End != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, ex.End, tc.want)
		}
	}
}

// What is malformed is refused as the stub of the scenarios refuses it.
func TestLiveBadRequests(t *testing.T) {
	l := newLive(t)
	_, id := l.sandbox()
	for _, b := range httpapi.BadRequests(t, id, "default") {
		var e api.Error
		if err := json.Unmarshal([]byte(l.do(b.Status, b.Method, b.Path, b.Body)), &e); err != nil || e.Code != b.Code || e.Field != b.Field {
			t.Errorf("%s: %+v, want code %s field %q", b.Name, e, b.Code, b.Field)
		}
	}
}
