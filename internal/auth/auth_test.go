package auth

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
)

type memory map[string]Key

func (m memory) Keys(context.Context) ([]Key, error) {
	var out []Key
	for _, k := range m {
		out = append(out, k)
	}
	return out, nil
}
func (m memory) AddKey(_ context.Context, k Key) error            { m[k.Prefix] = k; return nil }
func (m memory) DeleteKey(_ context.Context, prefix string) error { delete(m, prefix); return nil }

func open(t *testing.T, m memory) *Keys {
	t.Helper()
	k, err := Open(t.Context(), m, func() time.Time { return time.Unix(1700000000, 5) })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeyLife(t *testing.T) {
	m := memory{}
	k := open(t, m)
	secret, key, err := k.Create(t.Context(), "ann", "laptop")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^pds_[0-9a-f]{32}$`).MatchString(secret) {
		t.Errorf("key %q", secret)
	}
	for prefix, kept := range m {
		if strings.Contains(string(kept.Hash[:]), secret) || prefix != secret[:12] || kept != key {
			t.Errorf("kept %+v", kept)
		}
	}
	// Also a daemon that starts anew knows it.
	for name, keys := range map[string]*Keys{"same": k, "reopened": open(t, m)} {
		if who, ok := keys.Check(secret); !ok || who != (Identity{"ann", key.Prefix, "laptop"}) {
			t.Errorf("%s: %+v %v", name, who, ok)
		}
	}
	if err := k.Revoke(t.Context(), "bob", key.Prefix); !errors.Is(err, fault.NotFound) {
		t.Errorf("another owner's revocation: %v", err)
	}
	if len(k.List("bob")) != 0 || len(k.List("ann")) != 1 {
		t.Error("lists mix owners")
	}
	if err := k.Revoke(t.Context(), "ann", key.Prefix); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Check(secret); ok || len(m) != 0 {
		t.Error("a revoked key still works")
	}
}

func TestWhatIsNoKey(t *testing.T) {
	k := open(t, memory{})
	secret, _, err := k.Create(t.Context(), "ann", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"", "pds_", secret[:35], secret + "0", strings.ToUpper(secret), secret[:35] + "x", strings.Repeat("x", 36), "pds_" + strings.Repeat("0", 32)} {
		if _, ok := k.Check(s); ok {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestLabels(t *testing.T) {
	k := open(t, memory{})
	for _, label := range []string{strings.Repeat("x", 101), "a\nb", "\x1b[31m"} {
		if _, _, err := k.Create(t.Context(), "ann", label); !errors.Is(err, fault.Invalid) {
			t.Errorf("label %q: %v", label, err)
		}
	}
}
