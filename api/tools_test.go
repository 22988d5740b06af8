package api

import "testing"

func TestAddressesAreShownWithoutWhatMayBeSecret(t *testing.T) {
	for address, want := range map[string]string{
		"":                                     "",
		"https://a.example/b/openapi.json":     "https://a.example/b/openapi.json",
		"https://a.example/?token=x&v=2&alone": "https://a.example/?token=[redacted]&v=[redacted]&[redacted]",
		"https://me:pw@a.example:8443/b?t=%2F": "https://[redacted]@a.example:8443/b?t=[redacted]",
		"https://a.example/b#token":            "https://a.example/b",
		"https://a.example/b?":                 "https://a.example/b",
		"http://a b.example/?token=x":          "[redacted]",
	} {
		if got := ShownURL(address); got != want {
			t.Errorf("%q is shown as %q, not %q", address, got, want)
		}
	}
}
