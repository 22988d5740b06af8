package httpapi

import (
	"net/http/httptest"
	"testing"
)

// A page of an origin that the operator has named may call; those of others are
// refused as ever, and get no header by which they could read an answer.
func TestOrigins(t *testing.T) {
	const mine, path = "https://app.example.com", "/v1/sandboxes/sb-1"
	for _, tc := range []struct {
		name, method, origin string
		header               map[string]string
		status               int
		allow                string // Access-Control-Allow-Origin
	}{
		{name: "named", method: "GET", origin: mine, header: map[string]string{"Sec-Fetch-Site": "cross-site", "Authorization": "Bearer " + testKey}, status: 200, allow: mine},
		{name: "named, in other letters", method: "GET", origin: "https://App.Example.com", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 200, allow: "https://App.Example.com"},
		{name: "named, without a key", method: "GET", origin: mine, status: 401, allow: mine},
		{name: "named, by a foreign name of ours", method: "GET", origin: mine, header: map[string]string{"Host": "evil.example"}, status: 403},
		{name: "preflight", method: "OPTIONS", origin: mine, header: map[string]string{"Access-Control-Request-Method": "DELETE", "Sec-Fetch-Site": "cross-site"}, status: 204, allow: mine},
		{name: "options that are no preflight", method: "OPTIONS", origin: mine, status: 405, allow: mine},
		{name: "another", method: "GET", origin: "https://evil.example", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 403},
		{name: "one that only ends like it", method: "GET", origin: "https://evil-app.example.com", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 403},
		{name: "without TLS", method: "GET", origin: "http://app.example.com", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 403},
		{name: "on another port", method: "GET", origin: mine + ":8443", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 403},
		{name: "null", method: "GET", origin: "null", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 403},
		{name: "preflight of another", method: "OPTIONS", origin: "https://evil.example", header: map[string]string{"Access-Control-Request-Method": "DELETE"}, status: 403},
		{name: "cross-site without an origin", method: "GET", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Authorization": "Bearer " + testKey}, status: 403},
		{name: "a program", method: "GET", header: map[string]string{"Authorization": "Bearer " + testKey}, status: 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s stub
			srv := New(Options{Sandboxes: &s, Kernels: &s, Commands: &s, Keys: stubKeys{}, Events: &s, Origins: []string{mine}})
			req := httptest.NewRequest(tc.method, path, nil)
			req.Host = "127.0.0.1:8080"
			if tc.origin != "" {
				req.Header.Set("Origin", tc.origin)
			}
			for k, v := range tc.header {
				req.Header.Set(k, v)
			}
			if h := tc.header["Host"]; h != "" {
				req.Host = h
			}
			res := httptest.NewRecorder()
			srv.ServeHTTP(res, req)
			h := res.Header()
			if res.Code != tc.status || h.Get("Access-Control-Allow-Origin") != tc.allow {
				t.Errorf("status %d, allow %q, want %d, %q: %s", res.Code, h.Get("Access-Control-Allow-Origin"), tc.status, tc.allow, res.Body)
			}
			if h.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("cookies are let through")
			}
			if tc.status == 204 && (h.Get("Access-Control-Allow-Methods") == "" || h.Get("Access-Control-Allow-Headers") == "") {
				t.Errorf("the preflight allows nothing: %v", h)
			}
			if tc.status != 403 && h.Get("Vary") != "Origin" {
				t.Errorf("Vary is %q: a cache would give one origin's answer to another", h.Get("Vary"))
			}
		})
	}
}
