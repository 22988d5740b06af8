package httpapi_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/httpapi"
)

// buffer is written to by many.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Keys, valid ones and others, in every place of a request to every route that
// could end up in a log: none does.
func TestNoKeyGetsIntoTheLog(t *testing.T) {
	keys := realKeys(t)
	var log buffer
	l := newLiveWith(t, keys, slog.New(slog.NewJSONHandler(auth.HideKeys(&log), &slog.HandlerOptions{Level: slog.LevelDebug})))
	valid, _ := newKey(t, keys, auth.Grant{Scope: auth.Admin})
	const other = "pds_ffeeddccbbaa99887766554433221100"
	for _, pattern := range httpapi.New(httpapi.Options{}).Routes() {
		method, path, _ := strings.Cut(pattern, " ")
		for _, with := range []string{valid, other} {
			for _, inside := range []string{valid, other} {
				at := path
				for at != "" && strings.Contains(at, "{") {
					before, rest, _ := strings.Cut(at, "{")
					_, after, _ := strings.Cut(rest, "}")
					at = before + inside + after
				}
				res, err := l.request(t.Context(), with, method, at+"?access_token="+url.QueryEscape(inside)+"&path="+inside+"&cursor="+inside,
					strings.NewReader(`{"label":"`+inside+`","template":"`+inside+`","cmd":["`+inside+`"]}`),
					"X-Request-Id", inside, "User-Agent", inside, "Idempotency-Key", inside+method)
				if err != nil {
					continue // a connection that was cut says nothing either
				}
				res.Body.Close()
			}
		}
	}
	seen := log.String()
	if lines := strings.Count(seen, "\n"); lines < 100 {
		t.Errorf("the log has %d lines only", lines)
	}
	for _, secret := range []string{valid[12:], other[12:]} {
		if at := strings.Index(seen, secret); at >= 0 {
			t.Errorf("a key is in the log: …%s…", seen[max(0, at-300):at+40])
		}
	}
}
