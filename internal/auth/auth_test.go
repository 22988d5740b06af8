package auth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// memory is a store; writes counts the times that use was written.
type memory struct {
	keys   map[string]Key
	writes int
}

func (m *memory) Keys(context.Context) ([]Key, error) {
	return slices.Collect(maps.Values(m.keys)), nil
}
func (m *memory) AddKey(_ context.Context, k Key) error {
	m.keys[k.Prefix] = k
	return nil
}
func (m *memory) DeleteKey(_ context.Context, prefix string) error {
	delete(m.keys, prefix)
	return nil
}
func (m *memory) TouchKeys(_ context.Context, used map[string]time.Time) error {
	m.writes++
	for prefix, at := range used {
		k := m.keys[prefix]
		k.UsedAt = at
		m.keys[prefix] = k
	}
	return nil
}

func open(t *testing.T, m *memory) *Keys {
	t.Helper()
	if m.keys == nil {
		m.keys = map[string]Key{}
	}
	k, err := Open(t.Context(), m, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// of makes a key and gives its secret and whom it stands for.
func of(t *testing.T, k *Keys, by Identity, g Grant) (string, Identity) {
	t.Helper()
	secret, _, err := k.Create(t.Context(), by, g)
	if err != nil {
		t.Fatal(err)
	}
	who, ok := k.Check(secret)
	if !ok {
		t.Fatal("a new key does not work")
	}
	return secret, who
}

func TestKeyLife(t *testing.T) {
	m := &memory{}
	k := open(t, m)
	secret, who := of(t, k, Host, Grant{Workspace: "ann", Label: "laptop"})
	if !regexp.MustCompile(`^pds_[0-9a-f]{32}$`).MatchString(secret) {
		t.Errorf("key %q", secret)
	}
	for prefix, kept := range m.keys {
		if strings.Contains(fmt.Sprintf("%q", kept), secret) || prefix != secret[:12] {
			t.Errorf("kept %+v", kept)
		}
	}
	// Also a daemon that starts anew knows it.
	for name, keys := range map[string]*Keys{"same": k, "reopened": open(t, m)} {
		if who, ok := keys.Check(secret); !ok || who.Owner != "ann" || who.Prefix != secret[:12] || who.Label != "laptop" || who.Scope != Run || who.Life.Err() != nil {
			t.Errorf("%s: %+v %v", name, who, ok)
		}
	}
	_, bob := of(t, k, Host, Grant{Workspace: "bob", Scope: Admin})
	if err := k.Revoke(t.Context(), bob, who.Prefix); !errors.Is(err, fault.NotFound) {
		t.Errorf("another workspace's revocation: %v", err)
	}
	if err := k.Revoke(t.Context(), Host, who.Prefix); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Check(secret); ok || m.keys[who.Prefix].Prefix != "" {
		t.Error("a revoked key still works")
	}
	if context.Cause(who.Life) != ErrEnded {
		t.Errorf("what was begun with it goes on: %v", context.Cause(who.Life))
	}
}

func TestWhatIsNoKey(t *testing.T) {
	k := open(t, &memory{})
	secret, _ := of(t, k, Host, Grant{})
	for _, s := range []string{"", "pds_", secret[:35], secret + "0", strings.ToUpper(secret), secret[:35] + "x", strings.Repeat("x", 36), "pds_" + strings.Repeat("0", 32)} {
		if _, ok := k.Check(s); ok {
			t.Errorf("%q is accepted", s)
		}
	}
}

// Nobody gives more than they have: not more scope, not another workspace, not
// a longer life.
func TestNobodyGivesMoreThanTheyHave(t *testing.T) {
	k := open(t, &memory{})
	soon := time.Now().Add(time.Hour).UTC()
	_, server := of(t, k, Host, Grant{Scope: Admin})
	_, admin := of(t, k, server, Grant{Scope: Admin, Workspace: "ann"})
	_, passing := of(t, k, admin, Grant{Scope: Admin, ExpiresAt: soon})
	_, runner := of(t, k, admin, Grant{})
	_, reader := of(t, k, admin, Grant{Scope: Read})
	_, homeRunner := of(t, k, server, Grant{})
	if reader.Owner != "ann" || runner.Scope != Run || server.Owner != Home {
		t.Fatalf("%+v %+v %+v", reader, runner, server)
	}
	for name, c := range map[string]struct {
		by Identity
		g  Grant
		ok bool
	}{
		"reader, anything":            {reader, Grant{Scope: Read}, false},
		"runner, the same":            {runner, Grant{Scope: Run}, false},
		"runner at home, elsewhere":   {homeRunner, Grant{Workspace: "ann"}, false},
		"admin, everything":           {admin, Grant{Scope: Admin}, true},
		"admin, another workspace":    {admin, Grant{Workspace: "bob"}, false},
		"admin, the home workspace":   {admin, Grant{Workspace: Home}, false},
		"admin for a while, for ever": {passing, Grant{}, true}, // it ends with its giver
		"admin for a while, longer":   {passing, Grant{ExpiresAt: soon.Add(time.Second)}, false},
		"admin for a while, shorter":  {passing, Grant{ExpiresAt: soon.Add(-time.Second)}, true},
		"server, another workspace":   {server, Grant{Scope: Admin, Workspace: "bob"}, true},
	} {
		_, key, err := k.Create(t.Context(), c.by, c.g)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, fault.Denied) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !c.by.ExpiresAt.IsZero() && (key.ExpiresAt.IsZero() || key.ExpiresAt.After(c.by.ExpiresAt)) {
			t.Errorf("%s: it outlives its giver: %s", name, key.ExpiresAt)
		}
	}

	for name, c := range map[string]struct {
		by        Identity
		workspace string
		want      bool
	}{
		"own": {admin, "", true}, "own by name": {admin, "ann", true}, "another's": {admin, "bob", false}, "all": {admin, "*", false},
		"the server's, all": {server, "*", true}, "the server's, another's": {server, "ann", true},
	} {
		list, err := k.List(c.by, c.workspace)
		if c.want != (err == nil) || c.want && len(list) == 0 {
			t.Errorf("list of %s: %d, %v", name, len(list), err)
		}
	}
	if own, err := k.List(admin, ""); err != nil || slices.ContainsFunc(own, func(key Key) bool { return key.Owner != "ann" }) {
		t.Errorf("ann's list: %+v, %v", own, err)
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		k := open(t, m)
		secret, who := of(t, k, Host, Grant{ExpiresAt: time.Now().Add(time.Hour)})
		again := open(t, m)
		reborn, _ := again.Check(secret)
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		if _, ok := k.Check(secret); !ok || who.Life.Err() != nil {
			t.Error("it expires before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if _, ok := k.Check(secret); ok {
			t.Error("it outlives its time")
		}
		if context.Cause(who.Life) != ErrEnded || context.Cause(reborn.Life) != ErrEnded {
			t.Error("what was begun with it goes on")
		}
		// It is listed for a while, so that one can see why it fails.
		for _, left := range []int{1, 0} {
			if err := k.Tidy(t.Context()); err != nil {
				t.Error(err)
			}
			if list, err := k.List(Host, ""); err != nil || len(list) != left || len(m.keys) != left {
				t.Errorf("listed %+v, kept %d, %v", list, len(m.keys), err)
			}
			time.Sleep(keepExpired)
		}
		for _, by := range k.byPrefix {
			by.end(nil)
		}
	})
}

// A clock that is set forward ends keys too: new calls at once, what is open at
// the next Tidy.
func TestExpiryByAClockThatIsSet(t *testing.T) {
	var ahead time.Duration
	k, err := Open(t.Context(), &memory{keys: map[string]Key{}}, func() time.Time { return time.Now().Add(ahead) })
	if err != nil {
		t.Fatal(err)
	}
	secret, who := of(t, k, Host, Grant{ExpiresAt: time.Now().Add(time.Hour)})
	ahead = 2 * time.Hour
	if _, ok := k.Check(secret); ok {
		t.Error("it outlives its time")
	}
	if err := k.Tidy(t.Context()); err != nil || context.Cause(who.Life) != ErrEnded {
		t.Errorf("what was begun with it goes on: %v, %v", context.Cause(who.Life), err)
	}
}

// When a key was used is written by Tidy, once for all uses since.
func TestLastUseIsWrittenLazily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		k := open(t, m)
		secret, who := of(t, k, Host, Grant{})
		of(t, k, Host, Grant{})
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			k.Check(secret)
		}
		want := time.Now().UTC().Truncate(time.Second)
		if m.writes != 0 {
			t.Errorf("%d writes by checks", m.writes)
		}
		for range 2 {
			if err := k.Tidy(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if m.writes != 1 || !m.keys[who.Prefix].UsedAt.Equal(want) {
			t.Errorf("%d writes, used at %s, want %s", m.writes, m.keys[who.Prefix].UsedAt, want)
		}
	})
}

func TestBadGrants(t *testing.T) {
	k := open(t, &memory{})
	for field, grants := range map[string][]Grant{
		"label":      {{Label: strings.Repeat("x", 101)}, {Label: "a\nb"}, {Label: "\x1b[31m"}},
		"workspace":  {{Workspace: "a/b"}, {Workspace: "*"}, {Workspace: strings.Repeat("x", 65)}, {Workspace: "a\x00"}},
		"expires_at": {{ExpiresAt: time.Now().Add(-time.Second)}, {ExpiresAt: time.Now().AddDate(11, 0, 0)}},
	} {
		for _, g := range grants {
			_, _, err := k.Create(t.Context(), Host, g)
			var f *fault.Error
			if !errors.As(err, &f) || f.Field != field || !errors.Is(err, fault.Invalid) {
				t.Errorf("%+v: %v", g, err)
			}
		}
	}
	if _, err := ParseScopes([]api.Scope{"read", "write"}, Run); !errors.Is(err, fault.Invalid) {
		t.Errorf("an unknown scope: %v", err)
	}
}

func TestAWorkspaceHasOnlySoManyKeys(t *testing.T) {
	k := open(t, &memory{})
	for range maxKeys {
		if _, _, err := k.Create(t.Context(), Host, Grant{Workspace: "ann"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := k.Create(t.Context(), Host, Grant{Workspace: "ann"}); !errors.Is(err, fault.Conflict) {
		t.Errorf("one more: %v", err)
	}
	if _, _, err := k.Create(t.Context(), Host, Grant{Workspace: "bob"}); err != nil {
		t.Errorf("in another workspace: %v", err)
	}
}
