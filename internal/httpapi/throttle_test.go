package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A workspace has its burst, then its rate, and takes nothing from another;
// what is refused was not done.
func TestEveryWorkspaceIsHeldToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := &stub{}
		srv := New(Options{Sandboxes: behind, Kernels: behind, Commands: behind, Keys: keysOfAll{}, Rate: Rate{PerSecond: 10, Burst: 20}})
		call := func(key string) *httptest.ResponseRecorder {
			req := httptest.NewRequest("DELETE", "/v1/sandboxes/sb-1", nil)
			req.Host = "localhost"
			req.Header.Set("Authorization", "Bearer "+key)
			res := httptest.NewRecorder()
			srv.ServeHTTP(res, req)
			return res
		}
		for i := range 20 {
			if res := call("ann"); res.Code != http.StatusNoContent {
				t.Fatalf("call %d: %d", i, res.Code)
			}
		}
		res := call("ann")
		if res.Code != http.StatusTooManyRequests || res.Header().Get("Retry-After") != "1" || !strings.Contains(res.Body.String(), `"code":"rate_limited"`) || !strings.Contains(res.Body.String(), "rate_limit") {
			t.Errorf("one too many: %d %v %s", res.Code, res.Header(), res.Body)
		}
		if len(behind.calls) != 20 {
			t.Errorf("%d calls were made", len(behind.calls))
		}
		if res := call("bob"); res.Code != http.StatusNoContent {
			t.Errorf("another workspace: %d", res.Code)
		}
		if res := call(""); res.Code != http.StatusUnauthorized {
			t.Errorf("no key: %d", res.Code)
		}
		time.Sleep(time.Second) // as the answer said
		for i := range 11 {
			want := http.StatusNoContent
			if i == 10 {
				want = http.StatusTooManyRequests
			}
			if res := call("ann"); res.Code != want {
				t.Errorf("call %d a second later: %d, want %d", i, res.Code, want)
			}
		}
	})
}

func TestNoRateIsNoLimit(t *testing.T) {
	behind := &stub{}
	srv := New(Options{Sandboxes: behind, Kernels: behind, Commands: behind, Keys: stubKeys{}})
	for range 5000 {
		if err := srv.calls.take("ann"); err != nil {
			t.Fatal(err)
		}
	}
}
