package tools

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// A token in the address of a service is in no error: who gave the tools is not
// always who reads what became of them, and logs and transcripts stay.
func TestErrorsHaveNoTokensOfAddresses(t *testing.T) {
	const token = "tk%2F5c1f0e7a9b3d4862"
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not with "+r.URL.String()+" and "+r.URL.Query().Get("token"), http.StatusForbidden)
	}))
	defer refuses.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	s, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, base := range map[string]string{"refused": refuses.URL, "gone": gone.URL, "no address": "http://127.0.0.1:x"} {
		address := strings.Replace(base, "//", "//me:pass-5c1f0e7a@", 1) + "/x?token=" + token
		for kind, given := range map[string]api.Tools{
			"a document": {HTTP: map[string]api.ToolHTTP{"crm": {URL: address}}}, "an MCP server": {MCP: map[string]api.ToolMCP{"crm": {URL: address}}},
		} {
			_, err := s.Plan(t.Context(), "me", &given)
			if err == nil || !strings.Contains(err.Error(), "crm") {
				t.Errorf("%s %s: %v", kind, name, err)
				continue
			}
			for _, secret := range []string{token, "tk/5c1f0e7a9b3d4862", "pass-5c1f0e7a"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s %s: %v", kind, name, err)
				}
			}
		}
	}
}
