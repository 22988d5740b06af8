package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Conform serves what h serves and fails the test when a request or a response
// is not as api/openapi.yaml has it: the status, the content type, every field
// of the body, and the data of every event.
func Conform(t testing.TB, h http.Handler) http.Handler {
	c, err := contractOnce()
	if err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent bytes.Buffer
		r.Body = readCloser{io.TeeReader(r.Body, &sent), r.Body}
		rec := &tee{ResponseWriter: w}
		aborted := true
		defer func() {
			if rec.status == 0 {
				return // the connection was cut before an answer
			}
			for _, problem := range c.check(r, sent.Bytes(), rec, aborted) {
				t.Errorf("%s %.200s, answered %d: not as api/openapi.yaml has it: %s", r.Method, r.URL.Path, rec.status, problem)
			}
		}()
		h.ServeHTTP(rec, r)
		aborted = false
	})
}

type readCloser struct {
	io.Reader
	io.Closer
}

// tee keeps what is sent.
type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (w *tee) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *tee) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *tee) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

// contract is the document, ready to be held against traffic.
type contract struct {
	mux *http.ServeMux // knows the document's paths; serves nothing
	doc map[string]any

	mu       sync.Mutex // the compiler is not safe for concurrent use
	compiler *jsonschema.Compiler
}

var contractOnce = sync.OnceValues(newContract)

func newContract() (*contract, error) {
	raw, err := openapiJSON()
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := &contract{mux: http.NewServeMux(), doc: value.(map[string]any), compiler: jsonschema.NewCompiler()}
	for path, item := range c.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				c.mux.HandleFunc(strings.ToUpper(method)+" "+path, func(http.ResponseWriter, *http.Request) {})
			}
		}
	}
	// Clients must bear new fields, so the document does not forbid them. The
	// server may not send one that the document does not have.
	for name, s := range at(c.doc, "components", "schemas") {
		schema := s.(map[string]any)
		_, open := schema["additionalProperties"]
		if schema["properties"] != nil && !open && !strings.HasSuffix(name, "Request") && !strings.HasSuffix(name, "Patch") {
			schema["additionalProperties"] = false
		}
	}
	c.compiler.AssertFormat()
	return c, c.compiler.AddResource("openapi.json", c.doc)
}

func at(v map[string]any, path ...string) map[string]any {
	for _, key := range path {
		v, _ = v[key].(map[string]any)
	}
	return v
}

// valid holds a JSON value against the schema at a place in the document.
func (c *contract) valid(body []byte, place ...string) error {
	for i, p := range place {
		place[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~", "~0"), "/", "~1")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	schema, err := c.compiler.Compile("openapi.json#/" + strings.Join(place, "/"))
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (c *contract) check(r *http.Request, sent []byte, rec *tee, aborted bool) (problems []string) {
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	kind, _, _ := mime.ParseMediaType(rec.Header().Get("Content-Type"))

	probe := r.Clone(r.Context())
	if r.Method == http.MethodHead {
		probe.Method = http.MethodGet
	}
	if strings.HasPrefix(r.URL.Path, "/v1/p/") || strings.Contains(r.URL.Path, "/proxy/") || strings.Contains(r.Host, "-sb-") {
		return nil // the answer is a sandbox's
	}
	_, pattern := c.mux.Handler(probe)
	method, route, found := strings.Cut(pattern, " ")
	if !found || r.URL.Path != path.Clean(r.URL.Path) { // the mux would redirect
		if rec.status < 400 {
			problem("there is no such route in it")
		} else if err := c.valid(rec.body.Bytes(), "components", "schemas", "Error"); err != nil {
			problem("%v", err)
		}
		return problems
	}
	method = strings.ToLower(method)
	place := []string{"paths", route, method, "responses", fmt.Sprint(rec.status)}
	response := at(c.doc, place...)
	if ref, ok := response["$ref"].(string); ok {
		place = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		response = at(c.doc, place...)
	}
	if response == nil {
		problem("the route has no such status; body %.300s", rec.body.String())
		return problems
	}
	content := at(response, "content")
	switch {
	case content == nil && rec.body.Len() > 0:
		problem("the route has no body with this status, but sent %.300s", rec.body.String())
	case content == nil || r.Method == http.MethodHead:
	case content[kind] == nil:
		problem("the route has no content type %q with this status", kind)
	case kind == "application/json" && !aborted:
		if err := c.valid(rec.body.Bytes(), append(place, "content", kind, "schema")...); err != nil {
			problem("%v\nbody %.1000s", err, rec.body.String())
		}
	case kind == "text/event-stream":
		for name, data := range sentEvents(rec.body.String()) {
			if at(content, kind, "x-events")[name] == nil {
				problem("the route has no event %q", name)
			} else if err := c.valid(data, append(append([]string(nil), place...), "content", kind, "x-events", name)...); err != nil {
				problem("event %s: %v\ndata %.1000s", name, err, data)
			}
		}
	}
	// What is accepted must be what the document asks for.
	body := at(c.doc, "paths", route, method, "requestBody", "content")
	if body["application/json"] != nil && rec.status < 300 && len(bytes.TrimSpace(sent)) > 0 {
		if err := c.valid(sent, "paths", route, method, "requestBody", "content", "application/json", "schema"); err != nil {
			problem("a body was accepted that it refuses: %v\nbody %.1000s", err, sent)
		}
	}
	return problems
}

// sentEvents iterates over the whole events of a stream.
func sentEvents(stream string) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		whole := strings.Split(stream, "\n\n")
		for _, event := range whole[:len(whole)-1] { // the last is empty or broken off
			var name, data string
			for line := range strings.SplitSeq(event, "\n") {
				if v, ok := strings.CutPrefix(line, "event: "); ok {
					name = v
				}
				if v, ok := strings.CutPrefix(line, "data: "); ok {
					data = v
				}
			}
			if name != "" && !yield(name, []byte(data)) {
				return
			}
		}
	}
}

// The document is served as it is meant, to people and to machines.
func TestTheDocumentIsServed(t *testing.T) {
	runAll(t, []scenario{
		{name: "as JSON", method: "GET", path: "/openapi.json", header: map[string]string{"-Authorization": ""}, status: 200, want: []string{`"openapi":"3.1`, `"/v1/sandboxes/{id}"`}, not: []string{"x-failures"}, check: header("Content-Type", "application/json")},
		{name: "as a page", method: "GET", path: "/docs", header: map[string]string{"-Authorization": ""}, status: 200, want: []string{
			`<span class="path">/v1/sandboxes/{id}/exec</span>`, `<h3 id="SandboxInfo">`, `<a href="#CreateSandboxRequest">`, "no_capacity",
		}, not: []string{"<script", "http://", "https://", "ZgotmplZ", "&lt;nil"}, check: func(t *testing.T, res *httptest.ResponseRecorder) {
			if p := res.Header().Get("Content-Security-Policy"); !strings.HasPrefix(p, "default-src 'none'") {
				t.Errorf("the page may load something: %q", p)
			}
		}},
	})
}

// A check that lets everything pass would be worth nothing.
func TestConformSeesWhatIsWrong(t *testing.T) {
	c, err := contractOnce()
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"id":"a","workspace":"a","auth_method":"api_key","key_prefix":"p","scopes":["read"]}`
	for _, tc := range []struct {
		name, method, path, body, kind string
		status                         int
		want                           string // in the problem; "" for none
	}{
		{"as it should be", "GET", "/v1/me", good, "application/json", 200, ""},
		{"a field too many", "GET", "/v1/me", strings.Replace(good, "{", `{"x":1,`, 1), "application/json", 200, "additional properties 'x'"},
		{"a field too few", "GET", "/v1/me", `{"id":"a"}`, "application/json", 200, "missing properties"},
		{"a wrong type", "GET", "/v1/me", strings.Replace(good, `"p"`, "7", 1), "application/json", 200, "got number"},
		{"another status", "GET", "/v1/me", good, "application/json", 201, "no such status"},
		{"another content type", "GET", "/v1/me", good, "text/plain", 200, "no content type"},
		{"a code of another status", "GET", "/v1/me", `{"error":"x","code":"conflict"}`, "application/json", 401, "unauthenticated"},
		{"a route that is not in it", "GET", "/v1/none", good, "application/json", 200, "no such route"},
		{"a body where none is", "DELETE", "/v1/sandboxes/x", good, "application/json", 204, "has no body"},
		{"an unknown event", "POST", "/v1/sandboxes/x/exec/stream", "event: x\ndata: {}\n\n", "text/event-stream", 200, `no event "x"`},
		{"an event with other data", "POST", "/v1/sandboxes/x/exec/stream", "event: stdout\ndata: {\"text\":\"\"}\n\n", "text/event-stream", 200, "chunk"},
	} {
		rec := &tee{ResponseWriter: httptest.NewRecorder(), status: tc.status}
		rec.Header().Set("Content-Type", tc.kind)
		rec.body.WriteString(tc.body)
		got := strings.Join(c.check(httptest.NewRequest(tc.method, tc.path, nil), nil, rec, false), "\n")
		if got != tc.want && (tc.want == "" || !strings.Contains(got, tc.want)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	rec := &tee{ResponseWriter: httptest.NewRecorder(), status: 201}
	rec.Header().Set("Content-Type", "application/json")
	got := c.check(httptest.NewRequest("POST", "/v1/me/tokens", nil), []byte(`{"label":7}`), rec, true)
	if len(got) != 1 || !strings.Contains(got[0], "a body was accepted") {
		t.Errorf("a request that the document refuses: %q", got)
	}
}
