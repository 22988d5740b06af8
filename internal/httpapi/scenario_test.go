package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// scenario is a request, its answer, and what must have happened behind it.
type scenario struct {
	name   string
	method string
	path   string
	body   string
	header map[string]string // "-Authorization" takes the key away
	stub   stub
	ready  func(context.Context) api.Readiness

	status int
	want   []string // in the body
	not    []string // not in the body
	field  string   // of the error
	code   api.Code // of the error
	calls  []string // exactly these; nil: none
	check  func(t *testing.T, res *httptest.ResponseRecorder)
}

func (sc *scenario) run(t *testing.T) {
	var log bytes.Buffer
	srv := New(Options{
		Sandboxes: &sc.stub, Kernels: &sc.stub, Commands: &sc.stub, Agents: stubAgents{&sc.stub}, Keys: stubKeys{}, Events: &sc.stub, Ready: sc.ready,
		ModelURLs: []string{"http://models.example/v1"},
		Log:       slog.New(slog.NewTextHandler(&log, nil)), Hosts: []string{"panda.example"},
	})
	req := httptest.NewRequest(sc.method, sc.path, strings.NewReader(sc.body))
	req.Host = "127.0.0.1:8080"
	req.Header.Set("Authorization", "Bearer "+testKey)
	for k, v := range sc.header {
		switch {
		case k == "Host":
			req.Host = v
		case strings.HasPrefix(k, "-"):
			req.Header.Del(k[1:])
		default:
			req.Header.Set(k, v)
		}
	}
	res := httptest.NewRecorder()
	Conform(t, srv).ServeHTTP(res, req)

	body := res.Body.String()
	if res.Code != sc.status {
		t.Errorf("status %d, want %d; body %s\nlog %s", res.Code, sc.status, body, log.String())
	}
	for _, w := range sc.want {
		if !strings.Contains(body, w) {
			t.Errorf("the body lacks %q: %s", w, body)
		}
	}
	for _, w := range sc.not {
		if strings.Contains(body, w) {
			t.Errorf("the body holds %q: %s", w, body)
		}
	}
	if sc.code != "" {
		var e api.Error
		if err := json.Unmarshal(res.Body.Bytes(), &e); err != nil {
			t.Fatalf("the error is not JSON: %v: %s", err, body)
		}
		if e.Code != sc.code || e.Field != sc.field || e.Message == "" {
			t.Errorf("code %q field %q message %q, want code %q field %q", e.Code, e.Field, e.Message, sc.code, sc.field)
		}
		if e.RequestID == "" || e.RequestID != res.Header().Get("X-Request-Id") {
			t.Errorf("request id %q in the body, %q in the header", e.RequestID, res.Header().Get("X-Request-Id"))
		}
		if !strings.Contains(log.String(), e.RequestID) {
			t.Errorf("the log does not have request id %q:\n%s", e.RequestID, log.String())
		}
	}
	if !slices.Equal(sc.stub.calls, sc.calls) {
		t.Errorf("calls %q, want %q", sc.stub.calls, sc.calls)
	}
	if h := res.Header().Get("Access-Control-Allow-Origin"); h != "" {
		t.Errorf("a CORS header %q", h)
	}
	if strings.Contains(log.String(), testKey) {
		t.Error("the key is in the log")
	}
	if sc.check != nil {
		sc.check(t, res)
	}
}

func runAll(t *testing.T, list []scenario) {
	t.Helper()
	for i := range list {
		t.Run(list[i].name, list[i].run)
	}
}

func header(name, want string) func(*testing.T, *httptest.ResponseRecorder) {
	return func(t *testing.T, res *httptest.ResponseRecorder) {
		if got := res.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestAdmission(t *testing.T) {
	const path = "/v1/sandboxes/sb-1"
	runAll(t, []scenario{
		{name: "no key", method: "GET", path: path, header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated, check: header("WWW-Authenticate", "Bearer")},
		{name: "wrong key", method: "GET", path: path, header: map[string]string{"Authorization": "Bearer pds_x"}, status: 401, code: api.CodeUnauthenticated, want: []string{`"error":"unauthorized"`}},
		{name: "key of nobody", method: "GET", path: path, header: map[string]string{"Authorization": "Bearer pds_nobody"}, status: 401, code: api.CodeUnauthenticated},
		{name: "other scheme", method: "GET", path: path, header: map[string]string{"Authorization": "Basic " + testKey}, status: 401, code: api.CodeUnauthenticated},
		{name: "key in the query", method: "GET", path: path + "?access_token=" + testKey, header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},
		{name: "lower-case scheme", method: "GET", path: path, header: map[string]string{"Authorization": "bearer " + testKey}, status: 200},
		{name: "unknown sandbox without a key tells nothing", method: "GET", path: "/v1/sandboxes/none", header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},

		{name: "localhost", method: "GET", path: path, header: map[string]string{"Host": "localhost:1"}, status: 200},
		{name: "IPv6", method: "GET", path: path, header: map[string]string{"Host": "[::1]:1"}, status: 200},
		{name: "allowed name", method: "GET", path: path, header: map[string]string{"Host": "Panda.example"}, status: 200},
		{name: "rebound name", method: "GET", path: path, header: map[string]string{"Host": "evil.example:8080"}, status: 403, code: api.CodeDenied},
		{name: "rebound name on an open route", method: "GET", path: "/healthz", header: map[string]string{"Host": "evil.example"}, status: 403, code: api.CodeDenied},
		{name: "name that only begins like ours", method: "GET", path: path, header: map[string]string{"Host": "localhost.evil.example"}, status: 403, code: api.CodeDenied},
		{name: "empty host", method: "GET", path: path, header: map[string]string{"Host": ""}, status: 403, code: api.CodeDenied},
		{name: "own origin", method: "GET", path: path, header: map[string]string{"Host": "localhost:8080", "Origin": "http://localhost:8080"}, status: 200},
		{name: "foreign origin", method: "POST", path: "/v1/sandboxes", header: map[string]string{"Origin": "https://evil.example"}, status: 403, code: api.CodeDenied},
		{name: "origin on another port", method: "POST", path: "/v1/sandboxes", header: map[string]string{"Host": "localhost:8080", "Origin": "http://localhost:3000"}, status: 403, code: api.CodeDenied},
		{name: "null origin", method: "POST", path: "/v1/sandboxes", header: map[string]string{"Origin": "null"}, status: 403, code: api.CodeDenied},
		{name: "cross-site without an origin", method: "GET", path: path, header: map[string]string{"Sec-Fetch-Site": "cross-site"}, status: 403, code: api.CodeDenied},
		{name: "preflight", method: "OPTIONS", path: "/v1/sandboxes", status: 405, code: api.CodeInvalid},

		{name: "request id taken over", method: "GET", path: path, header: map[string]string{"X-Request-Id": "abc-1"}, status: 200, check: header("X-Request-Id", "abc-1")},
		{name: "request id not fit for a log", method: "GET", path: path, header: map[string]string{"X-Request-Id": "a b\"c"}, status: 200, check: func(t *testing.T, res *httptest.ResponseRecorder) {
			if id := res.Header().Get("X-Request-Id"); len(id) != 16 {
				t.Errorf("request id %q", id)
			}
		}},
	})
}

func TestRoutesThatDoNotExist(t *testing.T) {
	runAll(t, []scenario{
		{name: "unknown", method: "GET", path: "/v1/nonsense", status: 404, code: api.CodeNotFound},
		{name: "root", method: "GET", path: "/", status: 404, code: api.CodeNotFound},
		{name: "unclean path", method: "GET", path: "/v1//sandboxes", status: 404, code: api.CodeNotFound},
		{name: "long path", method: "GET", path: "/" + strings.Repeat("x", 5000), status: 404, code: api.CodeNotFound, want: []string{"…"}},
		{name: "method", method: "PUT", path: "/v1/sandboxes", status: 405, code: api.CodeInvalid, check: header("Allow", "GET, POST")},
	})
}

// What published clients call and is not here says so, whoever asks with a key.
func TestAbsentRoutes(t *testing.T) {
	list := []scenario{
		{name: "no key", method: "GET", path: "/v1/volumes", header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},
		{name: "builds", method: "GET", path: "/v1/templates/builds", status: 501, code: api.CodeUnsupported},
		{name: "deep inside", method: "PUT", path: "/v1/apps/a/env/KEY", body: `{"value":""}`, status: 501, code: api.CodeUnsupported, want: []string{`"hint"`}},
	}
	routes := New(Options{}).mux
	for _, a := range absent {
		for _, pattern := range a.patterns {
			method, path, found := strings.Cut(pattern, " ")
			if !found {
				method, path = "GET", pattern
			}
			path = strings.NewReplacer("{", "", "}", "").Replace(path)
			if strings.HasSuffix(path, "/") { // of everything below
				path += "x"
			}
			list = append(list, scenario{
				name: pattern, method: method, path: path, status: 501, code: api.CodeUnsupported, want: []string{a.what, `"hint"`},
			})
			if _, served := routes.Handler(httptest.NewRequest(method, path, nil)); served != "" {
				t.Errorf("%s is served as %s: take it off the list of absent routes and out of docs/published-clients.md", pattern, served)
			}
		}
	}
	runAll(t, list)
}

func TestSandboxes(t *testing.T) {
	runAll(t, []scenario{
		{name: "create", method: "POST", path: "/v1/sandboxes", body: `{"template":"base","ttl_seconds":60}`, status: 201, want: []string{`"id":"sb-1"`, `"status":"running"`}, calls: []string{"create ann template=base ttl=60"}},
		{name: "create with an empty body and no content type", method: "POST", path: "/v1/sandboxes", status: 201, calls: []string{"create ann template= ttl=-1"}},
		{name: "create with fields of other servers", method: "POST", path: "/v1/sandboxes", body: `{"volumes":[],"anything":{"x":1}}`, status: 201, calls: []string{"create ann template= ttl=-1"}},
		{name: "create once", method: "POST", path: "/v1/sandboxes", header: map[string]string{"Idempotency-Key": "k-1"}, status: 201, calls: []string{"create ann once=k-1 template= ttl=-1"}},
		{name: "create with an empty key", method: "POST", path: "/v1/sandboxes", header: map[string]string{"Idempotency-Key": ""}, status: 400, code: api.CodeInvalid, field: "Idempotency-Key"},
		{name: "create with a volume", method: "POST", path: "/v1/sandboxes", body: `{"volumes":[{"name":"v","read_only":false}]}`, status: 501, code: api.CodeUnsupported, field: "volumes"},
		{name: "create with a network", method: "POST", path: "/v1/sandboxes", body: `{"network":{"allow":["example.org",{"host":"x.example","ports":[443]}]},"secrets":{"example.org":{"header":"Authorization","ref":"r"}}}`, status: 201, calls: []string{"create ann template= ttl=-1"}},
		{name: "create with a network that is none", method: "POST", path: "/v1/sandboxes", body: `{"network":{"allow":[7]}}`, status: 400, code: api.CodeInvalid, field: "network"},
		{name: "create without a network", method: "POST", path: "/v1/sandboxes", body: `{"network":null,"secrets":null}`, status: 201, calls: []string{"create ann template= ttl=-1"}},
		{name: "create with a tool whose schema has a null", method: "POST", path: "/v1/sandboxes", body: `{"tools":{"functions":[{"name":"f","parameters":{"type":"object","properties":{"a":{"default":null}}}}]}}`, status: 201, calls: []string{"create ann template= ttl=-1"}},
		{name: "create with a tool whose name is null", method: "POST", path: "/v1/sandboxes", body: `{"tools":{"functions":[{"name":null}]}}`, status: 400, code: api.CodeInvalid, field: "tools", want: []string{"holds a null"}},
		{name: "create with a null for a tool", method: "POST", path: "/v1/sandboxes", body: `{"tools":{"functions":[null]}}`, status: 400, code: api.CodeInvalid, field: "tools", want: []string{"holds a null"}},
		{name: "create with a variable that is null", method: "POST", path: "/v1/sandboxes", body: `{"envs":{"A":null}}`, status: 400, code: api.CodeInvalid, field: "envs", want: []string{"holds a null"}},
		{name: "create with a network that has a null", method: "POST", path: "/v1/sandboxes", body: `{"network":{"allow":[null]}}`, status: 400, code: api.CodeInvalid, field: "network"},
		{name: "create with broken JSON", method: "POST", path: "/v1/sandboxes", body: `{"template":`, status: 400, code: api.CodeInvalid, want: []string{"at byte"}},
		{name: "create with two values", method: "POST", path: "/v1/sandboxes", body: `{} {}`, status: 400, code: api.CodeInvalid},
		{name: "create with an array", method: "POST", path: "/v1/sandboxes", body: `[]`, status: 400, code: api.CodeInvalid},
		{name: "create with a wrong type", method: "POST", path: "/v1/sandboxes", body: `{"ttl_seconds":"60"}`, status: 400, code: api.CodeInvalid, field: "ttl_seconds", want: []string{"a whole number, not string"}},
		{name: "create with a fraction", method: "POST", path: "/v1/sandboxes", body: `{"ttl_seconds":1.5}`, status: 400, code: api.CodeInvalid, field: "ttl_seconds"},
		{name: "create with a wrong type inside", method: "POST", path: "/v1/sandboxes", body: `{"metadata":{"a":1}}`, status: 400, code: api.CodeInvalid, field: "metadata"},
		{name: "create with a negative limit", method: "POST", path: "/v1/sandboxes", body: `{"memory_mb":-1}`, status: 400, code: api.CodeInvalid, field: "memory_mb"},
		{name: "create with a negative core", method: "POST", path: "/v1/sandboxes", body: `{"cpu":-0.5}`, status: 400, code: api.CodeInvalid, field: "cpu"},
		{name: "create with a bad variable", method: "POST", path: "/v1/sandboxes", body: `{"envs":{"A=B":"c"}}`, status: 400, code: api.CodeInvalid, field: "envs"},
		{name: "create with no room", method: "POST", path: "/v1/sandboxes", body: `{"template":"full"}`, status: 503, code: api.CodeNoCapacity, calls: []string{"create ann template=full ttl=-1"}, check: header("Retry-After", "1")},
		{name: "create with too large a body", method: "POST", path: "/v1/sandboxes", body: `{"template":"` + strings.Repeat("x", maxBody) + `"}`, status: 413, code: api.CodeTooLarge},

		{name: "list is a bare array", method: "GET", path: "/v1/sandboxes", status: 200, want: []string{"[]\n"}, calls: []string{"list ann map[]   0 "}, check: header("X-Next-Cursor", "")},
		{name: "list filtered", method: "GET", path: "/v1/sandboxes?metadata.team=a&status=running&template=base&limit=3&cursor=x", status: 200, calls: []string{"list ann map[team:a] running base 3 x"}},
		{name: "list a page that is not the last", method: "GET", path: "/v1/sandboxes?limit=1&metadata.a%20b=%26", status: 200, want: []string{`[{"id":"sb-1"`}, calls: []string{"list ann map[a b:&]   1 "}, check: func(t *testing.T, res *httptest.ResponseRecorder) {
			header("X-Next-Cursor", "next")(t, res)
			header("Link", `</v1/sandboxes?cursor=next&limit=1&metadata.a+b=%26>; rel="next"`)(t, res)
		}},
		{name: "list too long a page", method: "GET", path: "/v1/sandboxes?limit=1001", status: 400, code: api.CodeInvalid, field: "limit"},
		{name: "list with a pair twice", method: "GET", path: "/v1/sandboxes?metadata.a=1&metadata.a=2", status: 400, code: api.CodeInvalid, field: "metadata"},
		{name: "list with a bad limit", method: "GET", path: "/v1/sandboxes?limit=-3", status: 400, code: api.CodeInvalid, field: "limit"},
		{name: "list with a bad status", method: "GET", path: "/v1/sandboxes?status=asleep", status: 400, code: api.CodeInvalid, field: "status"},
		{name: "list with a broken query", method: "GET", path: "/v1/sandboxes?limit=%zz", status: 400, code: api.CodeInvalid, field: "query"},

		{name: "get", method: "GET", path: "/v1/sandboxes/sb-1", status: 200, want: []string{`"created_at":"2023-11-14T22:13:20Z"`}},
		{name: "get unknown", method: "GET", path: "/v1/sandboxes/sb-2", status: 404, code: api.CodeNotFound, want: []string{"the nearest is sb-1"}},
		{name: "get with an internal error", method: "GET", path: "/v1/sandboxes/breaks", status: 500, code: api.CodeInternal, not: []string{"secret"}},
		{name: "get with a panic", method: "GET", path: "/v1/sandboxes/panics", status: 500, code: api.CodeInternal, not: []string{"a bug"}},
		{name: "kill", method: "DELETE", path: "/v1/sandboxes/sb-1", status: 204, calls: []string{"kill sb-1"}},
		{name: "lifecycle", method: "GET", path: "/v1/sandboxes/sb-1/lifecycle", status: 200, want: []string{`"ttl_seconds":300`}},
		{name: "metrics", method: "GET", path: "/v1/sandboxes/sb-1/metrics", status: 200, want: []string{`"pid":7`, `"limits":{"cpu":1`, `"limit_hits"`}, calls: []string{"metrics sb-1"}},
		{name: "metrics of nothing", method: "GET", path: "/v1/sandboxes/sb-2/metrics", status: 404, code: api.CodeNotFound, calls: []string{"metrics sb-2"}},
		{name: "create with negative pids", method: "POST", path: "/v1/sandboxes", body: `{"pids":-1}`, status: 400, code: api.CodeInvalid, field: "pids"},
		{name: "create with words for pids", method: "POST", path: "/v1/sandboxes", body: `{"pids":"many"}`, status: 400, code: api.CodeInvalid, field: "pids"},
		{name: "set lifetime", method: "PATCH", path: "/v1/sandboxes/sb-1/lifecycle", body: `{"ttl_seconds":9}`, status: 200, want: []string{`"ttl_seconds":9`}, calls: []string{"patch sb-1"}},
		{name: "set negative lifetime", method: "PATCH", path: "/v1/sandboxes/sb-1/lifecycle", body: `{"ttl_seconds":-9}`, status: 400, code: api.CodeInvalid, field: "ttl_seconds"},
		{name: "pause with an empty body", method: "POST", path: "/v1/sandboxes/sb-1/pause", status: 204},

		{name: "templates", method: "GET", path: "/v1/templates", status: 200, want: []string{`[{"name":"base"`}},
		{name: "template by alias", method: "GET", path: "/v1/templates/ubuntu-24.04", status: 200, want: []string{`"name":"base"`}},
		{name: "unknown template", method: "GET", path: "/v1/templates/x", status: 404, code: api.CodeNotFound, want: []string{"there are: base"}},
		{name: "health needs no key", method: "GET", path: "/healthz", header: map[string]string{"-Authorization": ""}, status: 200},
		{name: "version", method: "GET", path: "/v1/version", status: 200},
	})
}

func TestExec(t *testing.T) {
	const path = "/v1/sandboxes/sb-1/exec"
	out := []api.Event{
		{Seq: 1, Type: api.EventStarted, PID: 7},
		{Seq: 2, Type: api.EventStdout, Text: "hi\n"},
		{Seq: 3, Type: api.EventStderr, Raw: []byte("a\xffb")},
	}
	exit := func(code int, reason string) []api.Event {
		return append(slices.Clone(out), api.Event{Seq: 4, Type: api.EventExit, Exit: &api.Exit{Code: code, Reason: reason}})
	}
	runAll(t, []scenario{
		{name: "shell", method: "POST", path: path, body: `{"cmd":"ls"}`, stub: stub{exec: api.ExecResult{Stdout: "x", ExitCode: 2}}, status: 200, want: []string{`"stdout":"x"`, `"stderr":""`, `"exit_code":2`}, calls: []string{`exec "ls" []`}},
		{name: "fields that are null are left out", method: "POST", path: path, body: `{"cmd":"ls","cwd":null,"envs":null,"stdin":null,"unknown":[null]}`, status: 200, calls: []string{`exec "ls" []`}},
		{name: "arguments", method: "POST", path: path, body: `{"cmd":["ls","-l"]}`, status: 200, calls: []string{`exec "" ["ls" "-l"]`}},
		{name: "nothing to run", method: "POST", path: path, body: `{}`, status: 400, code: api.CodeInvalid, field: "cmd"},
		{name: "neither", method: "POST", path: path, body: `{"cmd":7}`, status: 400, code: api.CodeInvalid, field: "cmd"},
		{name: "empty program", method: "POST", path: path, body: `{"cmd":["",""]}`, status: 400, code: api.CodeInvalid, field: "cmd"},
		{name: "NUL", method: "POST", path: path, body: `{"cmd":"a\u0000b"}`, status: 400, code: api.CodeInvalid, field: "cmd"},
		{name: "bad id", method: "POST", path: path, body: `{"cmd":"ls","execution_id":"../x"}`, status: 400, code: api.CodeInvalid, field: "execution_id"},
		{name: "negative timeout", method: "POST", path: path, body: `{"cmd":"ls","timeout_seconds":-1}`, status: 400, code: api.CodeInvalid, field: "timeout_seconds"},
		{name: "endless timeout", method: "POST", path: path, body: `{"cmd":"ls","timeout_seconds":1e300}`, status: 400, code: api.CodeInvalid, field: "timeout_seconds"},
		{name: "relative folder", method: "POST", path: path, body: `{"cmd":"ls","cwd":"data"}`, status: 400, code: api.CodeInvalid, field: "cwd", want: []string{"/workspace/data"}},
		{name: "deadline", method: "POST", path: path, body: `{"cmd":"sleep 9"}`, stub: stub{exec: api.ExecResult{Stdout: "so far", ExitCode: 137, TimedOut: true}}, status: 504, code: api.CodeTimeout, want: []string{`"error":"timeout`, `"stdout":"so far"`, `"stderr":""`, `"exit_code":137`, `"timed_out":true`}, calls: []string{`exec "sleep 9" []`}},

		{name: "a sandbox that dies meanwhile", method: "POST", path: path, body: `{"cmd":"ls"}`, stub: stub{exec: api.ExecResult{Stdout: "so far"}, fail: info404}, status: 404, code: api.CodeNotFound, want: []string{`"stdout":"so far"`, `"stderr":""`}, not: []string{"exit_code"}, calls: []string{`exec "ls" []`}},
		{name: "a sandbox that is not there", method: "POST", path: path, body: `{"cmd":"ls"}`, stub: stub{fail: info404}, status: 404, code: api.CodeNotFound, not: []string{"stdout"}, calls: []string{`exec "ls" []`}},

		{name: "stream", method: "POST", path: path + "/stream", body: `{"cmd":"ls"}`, stub: stub{events: exit(3, "exited")}, status: 200, calls: []string{`exec "ls" []`}, want: []string{
			"id: 2\nevent: stdout\ndata: {\"chunk\":\"hi\\n\"}\n\n",
			"event: stderr\ndata: {\"chunk\":\"a\uFFFDb\"}\n\n",
			"event: exit\ndata: {\"exit_code\":3",
		}, check: header("Content-Type", "text/event-stream; charset=utf-8")},
		{name: "stream of what some clients take for the end of a line", method: "POST", path: path + "/stream", body: `{"cmd":"ls"}`, stub: stub{events: append([]api.Event{{Seq: 1, Type: api.EventStdout, Text: "a\u0085b\u2028c"}}, exit(0, "exited")...)}, status: 200, calls: []string{`exec "ls" []`}, want: []string{
			`data: {"chunk":"a\u0085b\u2028c"}`,
		}},
		{name: "stream to its deadline", method: "POST", path: path + "/stream", body: `{"cmd":"ls"}`, stub: stub{events: exit(137, "timeout")}, status: 200, calls: []string{`exec "ls" []`}, want: []string{"event: error\ndata: {\"error\":\"timeout"}, not: []string{"event: exit"}},
		{name: "stream that fails before it begins", method: "POST", path: path + "/stream", body: `{"cmd":"ls"}`, stub: stub{fail: info404}, status: 404, code: api.CodeNotFound, calls: []string{`exec "ls" []`}},
		{name: "stream that breaks is no success", method: "POST", path: path + "/stream", body: `{"cmd":"ls"}`, stub: stub{events: out}, status: 200, calls: []string{`exec "ls" []`}, want: []string{"event: error"}, not: []string{"event: exit"}},
	})
}

func TestContexts(t *testing.T) {
	const path = "/v1/sandboxes/sb-1/repl/sessions"
	end := api.Event{Seq: 4, Type: api.EventEnd, Execution: &api.Execution{ExecutionID: "e", End: api.EndOK}}
	events := []api.Event{
		{Seq: 1, Type: api.EventStarted, ExecutionID: "e", ExecutionCount: 1},
		{Seq: 2, Type: api.EventStdout, Text: "two\nlines"},
		{Seq: 3, Type: api.EventResult, Data: api.Bundle{"text/plain": "7"}, IsLastExpression: true},
		end,
	}
	runAll(t, []scenario{
		{name: "create", method: "POST", path: path, body: `{"language":"python"}`, status: 201, want: []string{`"id":"c-1"`, `"sandbox_id":"sb-1"`, `"language":"python"`}, calls: []string{"context sb-1 python"}},
		{name: "create with a bad id", method: "POST", path: path, body: `{"id":"a/b"}`, status: 400, code: api.CodeInvalid, field: "id"},
		{name: "list", method: "GET", path: path, status: 200, want: []string{"[]\n"}},
		{name: "get", method: "GET", path: path + "/c-1", status: 200},
		{name: "close", method: "DELETE", path: path + "/c-1", status: 204},
		{name: "interrupt", method: "POST", path: path + "/c-1/interrupt", status: 204},
		{name: "restart", method: "POST", path: path + "/c-1/restart", status: 200, want: []string{`"incarnation":2`}},

		{name: "run", method: "POST", path: path + "/c-1/run", body: `{"code":"1+1","timeout_ms":500}`, status: 200, want: []string{`"results":[]`, `"results_meta":[]`, `"stdout":""`, `"exit":0`, `"exit_code":0`}, calls: []string{`run c-1 "1+1" 500`}},
		{name: "run nothing", method: "POST", path: path + "/c-1/run", body: `{}`, status: 400, code: api.CodeInvalid, field: "code"},
		{name: "run an empty cell", method: "POST", path: path + "/c-1/run", body: `{"code":" \n"}`, status: 400, code: api.CodeInvalid, field: "code"},
		{name: "run with a negative deadline", method: "POST", path: path + "/c-1/run", body: `{"code":"1","timeout_ms":-5}`, status: 400, code: api.CodeInvalid, field: "timeout_ms"},
		{name: "run with an execution id that is a number", method: "POST", path: path + "/c-1/run", body: `{"code":"1","execution_id":5}`, status: 400, code: api.CodeInvalid, field: "execution_id"},
		{name: "run with a bad execution id", method: "POST", path: path + "/c-1/run", body: `{"code":"1","execution_id":"../x"}`, status: 400, code: api.CodeInvalid, field: "execution_id"},
		{name: "stream", method: "POST", path: path + "/c-1/run/stream", body: `{"code":"7"}`, stub: stub{events: events}, status: 200, calls: []string{`stream c-1 "7"`}, want: []string{
			"id: 1\nevent: started\ndata: {\"execution_id\":\"e\",\"execution_count\":1}\n\n",
			"id: 2\nevent: stdout\ndata: {\"text\":\"two\\nlines\"}\n\n",
			"id: 3\nevent: result\ndata: {\"data\":{\"text/plain\":\"7\"},\"metadata\":{},\"is_last_expression\":true}\n\n",
			"id: 4\nevent: end\ndata: {\"execution_id\":\"e\"",
		}, not: []string{`"results"`, `"stderr"`}},
		{name: "attach", method: "GET", path: path + "/c-1/executions/e?after=3", stub: stub{events: []api.Event{end}}, status: 200, calls: []string{"attach c-1 e 3"}, want: []string{"id: 4"}},
		{name: "attach as a browser does", method: "GET", path: path + "/c-1/executions/e", header: map[string]string{"Last-Event-ID": "3"}, stub: stub{events: []api.Event{end}}, status: 200, calls: []string{"attach c-1 e 3"}},
		{name: "attach for JSON", method: "GET", path: path + "/c-1/executions/e", header: map[string]string{"Accept": "application/json"}, status: 200, calls: []string{"wait c-1 e"}, want: []string{`"execution_id":"e"`}},
		{name: "attach with a bad number", method: "GET", path: path + "/c-1/executions/e?after=x", status: 400, code: api.CodeInvalid, field: "after"},

		{name: "one shot", method: "POST", path: "/v1/sandboxes/sb-1/repl", body: `{"language":"bash","code":"ls","timeout_ms":1000}`, status: 200, want: []string{`"language":"bash"`}, calls: []string{`oneshot bash "ls" 1s`}},
		{name: "languages", method: "GET", path: "/v1/sandboxes/sb-1/repl/languages", status: 200, want: []string{`"python"`}},
		{name: "languages of no sandbox", method: "GET", path: "/v1/sandboxes/sb-2/repl/languages", status: 404, code: api.CodeNotFound},
	})
}

func TestPathsAreChecked(t *testing.T) {
	const fs = "/v1/sandboxes/sb-1/fs"
	var list []scenario
	for _, bad := range []struct{ name, query string }{
		{"missing", ""},
		{"relative", "?path=a.txt"},
		{"NUL", "?path=/a%00b"},
		{"long", "?path=/" + strings.Repeat("x", maxPath)},
	} {
		for _, route := range []struct{ method, path string }{
			{"GET", fs}, {"PUT", fs}, {"POST", fs}, {"DELETE", fs}, {"GET", fs + "/stat"},
		} {
			list = append(list, scenario{
				name: bad.name + " " + route.method + " " + route.path, method: route.method, path: route.path + bad.query,
				status: 400, code: api.CodeInvalid, field: "path",
			})
		}
	}
	list = append(list,
		scenario{name: "mkdir", method: "POST", path: fs + "/dir", body: `{"path":"x"}`, status: 400, code: api.CodeInvalid, field: "path"},
		scenario{name: "move from", method: "POST", path: fs + "/move", body: `{"from":"x","to":"/y"}`, status: 400, code: api.CodeInvalid, field: "from"},
		scenario{name: "move to", method: "POST", path: fs + "/move", body: `{"from":"/x","to":""}`, status: 400, code: api.CodeInvalid, field: "to"},
		scenario{name: "mode", method: "PUT", path: fs + "?path=/x&mode=rw", status: 400, code: api.CodeInvalid, field: "mode"},
		scenario{name: "listing after a path", method: "GET", path: fs + "/dir?path=/x&after=a/b", status: 400, code: api.CodeInvalid, field: "after"},
		scenario{name: "listing of too many", method: "GET", path: fs + "/dir?path=/x&limit=10001", status: 400, code: api.CodeInvalid, field: "limit"},
		scenario{name: "recursive", method: "DELETE", path: fs + "?path=/x&recursive=yes", status: 400, code: api.CodeInvalid, field: "recursive"},
		scenario{name: "pid", method: "GET", path: "/v1/sandboxes/sb-1/processes/zero", status: 400, code: api.CodeInvalid, field: "pid"},
		scenario{name: "signal", method: "POST", path: "/v1/sandboxes/sb-1/processes/7/signal", body: `{}`, status: 400, code: api.CodeInvalid, field: "signal"},
		scenario{name: "a good path reaches the guest", method: "GET", path: fs + "/stat?path=/x", status: 409, code: api.CodeConflict, calls: []string{"guest sb-1"}},
	)
	runAll(t, list)
}

// BadRequest is one of testdata/bad_requests.json: what is malformed is refused
// in the same way by this stub, above the fake driver, and by the real thing
// (test/test_bad_input.py reads the same file).
type BadRequest struct {
	Name, Method, Path, Body, Field string
	Status                          int
	Code                            api.Code
}

// BadRequests reads them for a sandbox and a context.
func BadRequests(t *testing.T, sandbox, cid string) []BadRequest {
	t.Helper()
	raw, err := os.ReadFile("testdata/bad_requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []BadRequest
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].Path = strings.NewReplacer("{sandbox}", sandbox, "{context}", cid).Replace(list[i].Path)
	}
	return list
}

func TestBadRequests(t *testing.T) {
	var list []scenario
	for _, b := range BadRequests(t, "sb-1", "c-1") {
		list = append(list, scenario{name: b.Name, method: b.Method, path: b.Path, body: b.Body, status: b.Status, code: b.Code, field: b.Field})
	}
	runAll(t, list)
}

// Every code of the contract has a status.
func TestEveryCodeHasAStatus(t *testing.T) {
	for _, c := range []api.Code{
		api.CodeInvalid, api.CodeUnauthenticated, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeTooLarge,
		api.CodeRateLimited, api.CodeInternal, api.CodeUnsupported, api.CodeUnreachable, api.CodeNoCapacity, api.CodeTimeout, api.CodeNoSpace,
	} {
		if statusOf[c] == 0 {
			t.Errorf("%s has none", c)
		}
	}
	if len(statusOf) != 13 || statusOf[api.CodeNoSpace] != http.StatusInsufficientStorage {
		t.Error("the table is not the contract's")
	}
}

func TestSnapshots(t *testing.T) {
	const path = "/v1/sandboxes/sb-1"
	runAll(t, []scenario{
		{name: "take with an empty body", method: "POST", path: path + "/snapshots", status: 201, want: []string{`"id":"sn-1"`, `"sandbox_id":"sb-1"`, `"size_bytes":5`}, calls: []string{`snapshot sb-1 "" map[] false`}},
		{name: "take", method: "POST", path: path + "/snapshots", body: `{"name":"n","metadata":{"a":"b"},"carry_running":true}`, status: 201, calls: []string{`snapshot sb-1 "n" map[a:b] true`}},
		{name: "take with a bad name", method: "POST", path: path + "/snapshots", body: `{"name":7}`, status: 400, code: api.CodeInvalid, field: "name"},
		{name: "take of nothing", method: "POST", path: "/v1/sandboxes/sb-9/snapshots", status: 404, code: api.CodeNotFound, calls: []string{`snapshot sb-9 "" map[] false`}},
		{name: "list", method: "GET", path: "/v1/snapshots", status: 200, want: []string{`{"snapshots":[{"id":"sn-1"`, `"workspace":"ann"`}, calls: []string{"snapshots ann "}},
		{name: "list none", method: "GET", path: "/v1/snapshots?sandbox_id=none", status: 200, want: []string{`{"snapshots":[]}`}, calls: []string{"snapshots ann none"}},
		{name: "get", method: "GET", path: "/v1/snapshots/sn-1", status: 200, want: []string{`"id":"sn-1"`}},
		{name: "get none", method: "GET", path: "/v1/snapshots/sn-2", status: 404, code: api.CodeNotFound},
		{name: "rename", method: "PATCH", path: "/v1/snapshots/sn-1", body: `{"name":"x"}`, status: 200, calls: []string{"rename sn-1 x"}},
		{name: "delete", method: "DELETE", path: "/v1/snapshots/sn-1", status: 204, calls: []string{"delete sn-1"}},
		{name: "delete none", method: "DELETE", path: "/v1/snapshots/sn-2", status: 404, code: api.CodeNotFound, calls: []string{"delete sn-2"}},
		{name: "export", method: "GET", path: "/v1/snapshots/sn-1/export", status: 200, want: []string{"an archive"}, calls: []string{"export sn-1"}},
		{name: "export none", method: "GET", path: "/v1/snapshots/sn-2/export", status: 404, code: api.CodeNotFound, calls: []string{"export sn-2"}},
		{name: "import", method: "POST", path: "/v1/snapshots?name=n", body: "an archive", status: 201, want: []string{`{"snapshot":{"id":"sn-1"`, `"missing":[]}`}, calls: []string{"import ann {Name:n Admin:true} an archive"}},
		{name: "import what is none", method: "POST", path: "/v1/snapshots", body: "bad", status: 400, code: api.CodeInvalid, calls: []string{"import ann {Name: Admin:true} bad"}},
		{name: "import under a bad name", method: "POST", path: "/v1/snapshots?name=%00", body: "an archive", status: 400, code: api.CodeInvalid, field: "name"},
		{name: "no key", method: "GET", path: "/v1/snapshots", header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},
	})
}

func TestHibernation(t *testing.T) {
	const path = "/v1/sandboxes/sb-1"
	runAll(t, []scenario{
		{name: "hibernate with an empty body", method: "POST", path: path + "/hibernate", status: 200, want: []string{`{"status":"hibernated"}`}, calls: []string{"hibernate sb-1 false"}},
		{name: "hibernate", method: "POST", path: path + "/hibernate", body: `{"carry_running":true}`, status: 200, calls: []string{"hibernate sb-1 true"}},
		{name: "hibernate badly", method: "POST", path: path + "/hibernate", body: `{"carry_running":1}`, status: 400, code: api.CodeInvalid, field: "carry_running"},
		{name: "by its older name", method: "POST", path: path + "/stop", status: 200, calls: []string{"hibernate sb-1 false"}},
		{name: "wake", method: "POST", path: path + "/wake", status: 200, want: []string{`{"status":"running"}`}, calls: []string{"wake sb-1"}},
		{name: "wake by its older name", method: "POST", path: path + "/start", status: 200, calls: []string{"wake sb-1"}},
		{name: "wake nothing", method: "POST", path: "/v1/sandboxes/sb-9/wake", status: 404, code: api.CodeNotFound, calls: []string{"wake sb-9"}},
	})
}

func TestForks(t *testing.T) {
	const path = "/v1/sandboxes/sb-1"
	runAll(t, []scenario{
		{name: "fork with an empty body", method: "POST", path: path + "/fork", status: 201, want: []string{`"parent_id":"sb-1"`, `"children":[{"id":"sb-1"`}, calls: []string{"fork sb-1 1 false"}},
		{name: "fork", method: "POST", path: path + "/fork", body: `{"count":3,"carry_running":true}`, status: 201, calls: []string{"fork sb-1 3 true"}},
		{name: "fork a negative number of times", method: "POST", path: path + "/fork", body: `{"count":-1}`, status: 400, code: api.CodeInvalid, field: "count"},
		{name: "fork nothing", method: "POST", path: "/v1/sandboxes/sb-9/fork", status: 404, code: api.CodeNotFound, calls: []string{"fork sb-9 1 false"}},
		{name: "fork a tree", method: "POST", path: path + "/fork-tree", body: `{"count":2,"metadata":{"a":"b"}}`, status: 201, want: []string{`"tree_id":"tr-1"`, `"errors":[{"index":1,"error":"no room","code":"no_capacity"}]`}, calls: []string{"fork-tree sb-1 map[a:b]"}},
		{name: "promote", method: "POST", path: path + "/promote", body: `{"cleanup_siblings":true}`, status: 200, want: []string{`{"winner":"sb-1","tree_id":"tr-1","deleted":[],"failures":{}}`}, calls: []string{"promote sb-1 true"}},
	})
}
