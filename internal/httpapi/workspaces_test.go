package httpapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// fits is a body and a query that every route takes.
const (
	fits  = `{"cmd":"true","code":"1","language":"python","path":"/x","from":"/x","to":"/y","signal":"TERM","ttl_seconds":60,"name":"x","port":80}`
	query = "?path=/x"
)

// Another workspace's sandbox, alive or ended, and one that never was get the
// same answer on every route, to the letter.
func TestWorkspacesDoNotSeeEachOther(t *testing.T) {
	l := newLive(t)
	foreign := create(l, "ann")
	ended := create(l, "ann")
	l.as("ann", http.StatusNoContent, "DELETE", "/v1/sandboxes/"+ended, "")
	own := create(l, "bob")
	const never, noSnapshot = "sb-0000000000000000", "sn-0000000000000000"
	snapshot := take(l, "ann", foreign)
	const noRun = "ag-0000000000000000"
	var run api.AgentRun // which fails, since nobody is the model
	started := l.as("ann", http.StatusCreated, "POST", "/v1/agents", `{"task":"secret","model":"openai:x","base_url":"http://127.0.0.1:9/v1","sandbox_id":"`+foreign+`"}`)
	if err := json.Unmarshal([]byte(started), &run); err != nil {
		t.Fatal(err)
	}

	for _, pattern := range httpapi.New(httpapi.Options{}).Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		switch {
		case !strings.Contains(path, "{"), path == "/v1/templates/{name}", path == "/v1/me/tokens/{prefix}", strings.HasPrefix(path, "/v1/p/"), strings.HasPrefix(path, "/v1/f/"), strings.HasPrefix(path, "/v1/secrets/"), strings.HasPrefix(path, "/v1/approvals/"):
			continue // no resource in it, one that is everybody's, or one that a test of its own is about
		case strings.HasPrefix(path, "/v1/snapshots/{id}"):
			want := l.ask("bob", method, strings.Replace(path, "{id}", noSnapshot, 1), fits, noSnapshot)
			if got := l.ask("bob", method, strings.Replace(path, "{id}", snapshot, 1), fits, snapshot); want.status != http.StatusNotFound || got.body != want.body || got.status != want.status {
				t.Errorf("%s of a foreign one:\n%+v\none that never was:\n%+v", pattern, got, want)
			}
			continue
		case strings.HasPrefix(path, "/v1/agents/{id}"):
			at := func(id string) answer {
				return l.ask("bob", method, strings.NewReplacer("{id}", id, "{file}", "1-1-1.png").Replace(path), fits, id)
			}
			if got, want := at(run.ID), at(noRun); want.status != http.StatusNotFound || got.body != want.body || got.status != want.status {
				t.Errorf("%s of a foreign one:\n%+v\none that never was:\n%+v", pattern, got, want)
			}
			continue
		case !strings.HasPrefix(path, "/v1/sandboxes/{id}") && !strings.HasPrefix(path, "/jupyter/{id}/"):
			t.Errorf("%s: this test does not know what a foreign one of these is", pattern)
			continue
		}
		at := func(id string) answer {
			p := strings.NewReplacer("{id}", id, "{cid}", "default", "{eid}", "e-1", "{pid}", "7", "{port}", "80", "{path}", "x", "{kid}", "default", "{name}", "python3").Replace(path)
			return l.ask("bob", method, p+query, fits, id)
		}
		want := at(never)
		if want.status != http.StatusNotFound {
			t.Errorf("%s of one that never was: %d %s", pattern, want.status, want.body)
		}
		for name, id := range map[string]string{"foreign": foreign, "ended": ended} {
			if got := at(id); got.status != want.status || got.body != want.body || !maps.Equal(got.header, want.header) {
				t.Errorf("%s of a %s one:\n%+v\none that never was:\n%+v", pattern, name, got, want)
			}
		}
	}
	// Nor do they when they are named inside a body or a query.
	for _, r := range []struct{ method, path, body, id, never string }{
		{"POST", "/v1/sandboxes", `{"from_snapshot":"ID"}`, snapshot, noSnapshot},
		{"GET", "/v1/snapshots?sandbox_id=ID", "", foreign, never},
		{"POST", "/v1/agents", `{"task":"x","model":"openai:x","base_url":"http://127.0.0.1:9/v1","sandbox_id":"ID"}`, foreign, never},
		{"POST", "/v1/sandboxes/" + own + "/promote", `{"tree_id":"ID"}`, foreign, never},
	} {
		at := func(id string) answer {
			return l.ask("bob", r.method, strings.Replace(r.path, "ID", id, 1), strings.Replace(r.body, "ID", id, 1), id)
		}
		if got, want := at(r.id), at(r.never); got.status != want.status || got.body != want.body {
			t.Errorf("%s %s with a foreign one:\n%+v\nwith one that never was:\n%+v", r.method, r.path, got, want)
		}
	}
	if got := l.as("bob", http.StatusOK, "GET", "/v1/agents", ""); strings.Contains(got, run.ID) {
		t.Errorf("bob sees ann's run: %s", got)
	}
	// Nothing happened to them.
	for key, id := range map[string]string{"ann": foreign, "bob": own} {
		if got := l.as(key, http.StatusOK, "GET", "/v1/sandboxes", ""); strings.Count(got, `"id"`) != 1 || !strings.Contains(got, id) {
			t.Errorf("%s has %s", key, got)
		}
	}
}

func create(l *live, key string) string {
	var info api.SandboxInfo
	if err := json.Unmarshal([]byte(l.as(key, http.StatusCreated, "POST", "/v1/sandboxes", "")), &info); err != nil {
		l.t.Fatal(err)
	}
	return info.ID
}

func take(l *live, key, id string) string {
	var sn api.Snapshot
	if err := json.Unmarshal([]byte(l.as(key, http.StatusCreated, "POST", "/v1/sandboxes/"+id+"/snapshots", "")), &sn); err != nil {
		l.t.Fatal(err)
	}
	return sn.ID
}

// answer is all that a client can see.
type answer struct {
	status int
	body   string
	header map[string]string
}

// ask makes a request and takes out of the answer what is of one request only.
func (l *live) ask(key, method, path, body, id string) answer {
	l.t.Helper()
	res, said := l.answered(key, method, path, body, "X-Request-Id", "r")
	a := answer{res.StatusCode, strings.ReplaceAll(said, id, "ID"), map[string]string{}}
	for name, v := range res.Header {
		if name != "Date" {
			a.header[name] = strings.Join(v, ",")
		}
	}
	return a
}

// as is a request of somebody's that must be answered with a status.
func (l *live) as(key string, want int, method, path, body string) string {
	l.t.Helper()
	a := l.ask(key, method, path, body, "\x00")
	if a.status != want {
		l.t.Fatalf("%s %s by %s: %d, want %d: %s", method, path, key, a.status, want, a.body)
	}
	return a.body
}
