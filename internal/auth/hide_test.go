package auth

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// Whatever is logged, and however, no key is in it.
func TestNoKeyIsLogged(t *testing.T) {
	const key, prefix = "pds_00112233445566778899aabbccddeeff", "pds_00112233"
	for _, make := range []func(*bytes.Buffer) slog.Handler{
		func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(HideKeys(b), nil) },
		func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(HideKeys(b), nil) },
	} {
		var b bytes.Buffer
		log := slog.New(make(&b)).With("key", key)
		log.Info("with "+key, "path", "/v1/me/tokens/"+key, "error", errors.New("no "+key+key), "list", []string{key}, slog.Group("g", "upper", strings.ToUpper(key)), "half", key[:20])
		out := strings.ToLower(b.String())
		if strings.Contains(out, key[12:20]) || strings.Contains(out, key[20:]) {
			t.Errorf("it is there: %s", out)
		}
		if strings.Count(out, prefix+"…") != 8 {
			t.Errorf("prefixes are missing: %s", out)
		}
	}
}
