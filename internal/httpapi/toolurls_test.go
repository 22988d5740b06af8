package httpapi

import (
	"strings"
	"testing"
)

// A key that may have addresses below one called must not get above it.
func TestOnlyAddressesBelowThoseAllowedAreCallable(t *testing.T) {
	s := &Server{Options: Options{ToolURLs: []string{"https://api.example.com/public/"}}}
	for u, want := range map[string]bool{
		"https://api.example.com/public/":                true,
		"https://api.example.com/public/openapi.json":    true,
		"https://api.example.com/public/a%20b":           true,
		"https://api.example.com/publicity":              false,
		"https://api.example.com/public/../admin":        false,
		"https://api.example.com/public/%2e%2e/admin":    false,
		"https://api.example.com/public/%2E./admin":      false,
		"https://api.example.com/public/..%2fadmin":      false,
		"https://api.example.com/public/%zz":             false,
		"https://api.example.com@evil.example/public/":   false,
		"https://evil.example/https://api.example.com/p": false,
	} {
		if got := s.callable(u); got != want {
			t.Errorf("%s: %v", u, got)
		}
	}
}

// A refusal is written to the log.
func TestARefusedAddressIsShownWithoutItsToken(t *testing.T) {
	if said := errAddress("tools.mcp.x.url", "https://a.example/mcp?token=tk-5c1f").Error(); !strings.Contains(said, "https://a.example/mcp?token=[redacted]") {
		t.Error(said)
	}
}
