package httpapi

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// Every route says what it needs, and nothing is said of a route that is not.
func TestEveryRouteSaysWhatItNeeds(t *testing.T) {
	patterns := New(Options{}).Routes()
	for _, p := range patterns {
		if _, ok := needs[p]; !ok {
			t.Errorf("%s: the table of scopes lacks it", p)
		}
	}
	for p := range needs {
		if !slices.Contains(patterns, p) {
			t.Errorf("%s: there is no such route", p)
		}
	}
}

// What a key lacks the scope for is refused before anything is looked up, on
// every route; what it has the scope for is not.
func TestScopesAreKept(t *testing.T) {
	for pattern, need := range needs {
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{id}", "sb-1", "{cid}", "c", "{eid}", "e", "{pid}", "7", "{name}", "base", "{prefix}", "pds_00112233", "{port}", "80", "{token}", "no.token", "{path}", "x", "{kid}", "default").Replace(path)
		for _, has := range []auth.Scope{"", auth.Read, auth.Run, auth.Admin} {
			behind := &stub{}
			srv := New(Options{Sandboxes: behind, Kernels: behind, Commands: behind, Keys: stubKeys{}})
			req := httptest.NewRequest(method, path, nil)
			req.Host = "localhost"
			if has != "" {
				req.Header.Set("Authorization", "Bearer pds_only_"+string(has))
			}
			res := httptest.NewRecorder()
			serve(srv, res, req)
			want := 0
			switch {
			case need == anyone:
			case has == "":
				want = http.StatusUnauthorized
			case !has.Covers(need):
				want = http.StatusForbidden
			}
			if strings.HasPrefix(path, linkPrefix) || strings.HasPrefix(path, fileLinkPrefix) {
				continue // whose door is the link; see TestLinks and TestFileLinks
			}
			refused := res.Code == http.StatusUnauthorized || res.Code == http.StatusForbidden
			if want != 0 && res.Code != want || want == 0 && refused {
				t.Errorf("%s with scope %q: %d, want %d: %s", pattern, has, res.Code, want, res.Body)
			}
			if want != 0 && len(behind.calls) > 0 {
				t.Errorf("%s with scope %q: refused, but %q happened", pattern, has, behind.calls)
			}
			if want == http.StatusForbidden && !strings.Contains(res.Body.String(), string(need)) {
				t.Errorf("%s: the refusal does not name the scope: %s", pattern, res.Body)
			}
		}
	}
}

// serve lets a handler cut the connection.
func serve(srv *Server, res http.ResponseWriter, req *http.Request) {
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a panic value, not an error chain
			panic(p)
		}
	}()
	srv.ServeHTTP(res, req)
}

// The order of reading, running and managing.
func TestMethodsThatOnlyLookNeedRead(t *testing.T) {
	for pattern, need := range needs {
		if need == anyone || need == auth.Admin || strings.HasSuffix(pattern, "/mcp") { // of which each tool needs what it does
			continue
		}
		uses := slices.ContainsFunc([]string{"/ws", "/pty", "/attach", "/connect", "/channels", "/export", proxyRoute}, func(end string) bool { return strings.HasSuffix(pattern, end) })
		if get := strings.HasPrefix(pattern, "GET ") && !uses; get != (need == auth.Read) { // a WebSocket begins as a GET, and an export has more in it than can be read otherwise
			t.Errorf("%s needs %s", pattern, need)
		}
	}
}

func TestKeys(t *testing.T) {
	const path = "/v1/me/tokens"
	runAll(t, []scenario{
		{name: "me", method: "GET", path: "/v1/me", status: 200, want: []string{`"id":"ann"`, `"workspace":"ann"`, `"key_prefix":"pds_00112233"`, `"scopes":["read","run","admin"]`}, not: []string{"expires_at"}},
		{name: "create as published clients do", method: "POST", path: path, body: `{"label":"ci"}`, status: 201, want: []string{`"token":"` + testKey, `"prefix":"pds_00112233"`, `"created_at"`, `"scopes":["read","run"]`}},
		{name: "create with nothing", method: "POST", path: path, status: 201, want: []string{`"workspace":"ann"`}},
		{name: "create for reading", method: "POST", path: path, body: `{"scopes":["read"],"workspace":"bob"}`, status: 201, want: []string{`"scopes":["read"]`, `"workspace":"bob"`}},
		{name: "create with all scopes", method: "POST", path: path, body: `{"scopes":["admin","read"]}`, status: 201, want: []string{`"scopes":["read","run","admin"]`}},
		{name: "create with an unknown scope", method: "POST", path: path, body: `{"scopes":["write"]}`, status: 400, code: api.CodeInvalid, field: "scopes", want: []string{"read, run, admin"}},
		{name: "create with an end", method: "POST", path: path, body: `{"expires_at":"2100-01-02T03:04:05+01:00"}`, status: 201, want: []string{`"expires_at":"2100-01-02T02:04:05Z"`}},
		{name: "create with days", method: "POST", path: path, body: `{"expires_in_days":7}`, status: 201, want: []string{`"expires_at"`}},
		{name: "create with no days", method: "POST", path: path, body: `{"expires_in_days":0}`, status: 400, code: api.CodeInvalid, field: "expires_in_days"},
		{name: "create with two ends", method: "POST", path: path, body: `{"expires_in_days":7,"expires_at":"2100-01-02T03:04:05Z"}`, status: 400, code: api.CodeInvalid, field: "expires_in_days"},
		{name: "create with an end that is no time", method: "POST", path: path, body: `{"expires_at":"soon"}`, status: 400, code: api.CodeInvalid, field: "expires_at"},
		{name: "list", method: "GET", path: path, status: 200, want: []string{"[]"}},
		{name: "revoke one that is not", method: "DELETE", path: path + "/pds_ffffffff", status: 404, code: api.CodeNotFound},
	})
}
