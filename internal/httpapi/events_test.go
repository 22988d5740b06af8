package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

func TestEvents(t *testing.T) {
	const one = `{"id":7,"time":"2023-11-14T22:13:20Z","sandbox_id":"sb-1","type":"ready","payload":{"path":"pool"}}`
	runAll(t, []scenario{
		{name: "of a sandbox", method: "GET", path: "/v1/sandboxes/sb-1/events", status: 200, want: []string{`{"events":[` + one + `]}`}, calls: []string{"events ann sb-1 last 50"}},
		{name: "some", method: "GET", path: "/v1/sandboxes/sb-1/events?tail=3&follow=0", status: 200, calls: []string{"events ann sb-1 last 3"}},
		{name: "after a number", method: "GET", path: "/v1/events?after=9", status: 200, want: []string{`{"events":[]}`}, calls: []string{"events ann  after 9"}},
		{name: "followed", method: "GET", path: "/v1/events?follow=1&tail=0", status: 200, want: []string{"id: 7\nevent: event\ndata: " + one + "\n\n"}, calls: []string{"follow ann  after -1 tail 0"}, check: header("Content-Type", "text/event-stream; charset=utf-8")},
		{name: "taken up again", method: "GET", path: "/v1/sandboxes/sb-1/events?follow=1", header: map[string]string{"Last-Event-ID": "12"}, status: 200, calls: []string{"follow ann sb-1 after 12 tail 50"}},
		{name: "too many", method: "GET", path: "/v1/events?tail=1001", status: 400, code: api.CodeInvalid, field: "tail"},
		{name: "no number", method: "GET", path: "/v1/events?after=-1", status: 400, code: api.CodeInvalid, field: "after"},
		{name: "no yes or no", method: "GET", path: "/v1/events?follow=maybe", status: 400, code: api.CodeInvalid, field: "follow"},
		{name: "no id", method: "GET", path: "/v1/events?follow=1", header: map[string]string{"Last-Event-ID": "x"}, status: 400, code: api.CodeInvalid, field: "Last-Event-ID"},
		{name: "of nobody", method: "GET", path: "/v1/sandboxes/sb-9/events", status: 404, code: api.CodeNotFound},
		{name: "without a key", method: "GET", path: "/v1/events", header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},
	})
}

func TestReadiness(t *testing.T) {
	state := func(s api.Readiness) func(context.Context) api.Readiness {
		return func(context.Context) api.Readiness { return s }
	}
	full := api.Reason{ID: "disk_full", Detail: "no space", Fix: "free some"}
	runAll(t, []scenario{
		{name: "ready", method: "GET", path: "/readyz", header: map[string]string{"-Authorization": ""}, status: 200, want: []string{`"status":"ready","reasons":[],"warnings":[`, "template_stale"},
			ready: state(api.Readiness{Status: "ready", Reasons: []api.Reason{}, Warnings: []api.Reason{{ID: "template_stale"}}})},
		{name: "unready", method: "GET", path: "/v1/readyz", header: map[string]string{"-Authorization": ""}, status: 503, code: api.CodeNoCapacity,
			want:  []string{`"reasons":[{"id":"disk_full","detail":"no space","fix":"free some"}]`, `"hint":"free some"`},
			ready: state(api.Readiness{Status: "unready", Reasons: []api.Reason{full}, Warnings: []api.Reason{}}), check: header("Retry-After", "1")},
		{name: "healthy all the same", method: "GET", path: "/healthz", header: map[string]string{"-Authorization": ""}, status: 200, want: []string{`"status":"ok"`},
			ready: state(api.Readiness{Status: "unready", Reasons: []api.Reason{full}})},
	})
}

// The counts are shown to those with a key, and only if there are any.
func TestMetricsNeedAKey(t *testing.T) {
	runAll(t, []scenario{
		{name: "no page", method: "GET", path: "/metrics", status: 501, code: api.CodeUnsupported},
		{name: "no key", method: "GET", path: "/metrics", header: map[string]string{"-Authorization": ""}, status: 401, code: api.CodeUnauthenticated},
	})
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte("a_total 1\n"))
	})
	// They are about all workspaces, so one's own administrators do not see them.
	for workspace, want := range map[string]int{auth.Home: 200, "ann": 403} {
		req := httptest.NewRequest("GET", "/metrics", nil)
		req.Host = "127.0.0.1:1"
		req.Header.Set("Authorization", "Bearer "+workspace)
		res := httptest.NewRecorder()
		Conform(t, New(Options{Keys: keysOfAll{}, MetricsPage: page})).ServeHTTP(res, req)
		if res.Code != want || strings.Contains(res.Body.String(), "a_total") != (want == 200) {
			t.Errorf("%s: %d %s", workspace, res.Code, res.Body)
		}
	}
}
