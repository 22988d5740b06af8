package store

import (
	"context"
	"database/sql"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
)

func TestKeysSurvive(t *testing.T) {
	dir := t.TempDir()
	s := open0(t, dir)
	ctx := context.Background()
	a := Key{Prefix: "pds_a", Owner: "ann", Label: "l", Scope: "run", Hash: []byte{1, 2}, CreatedAt: epoch, ExpiresAt: epoch.Add(time.Hour)}
	b := Key{Prefix: "pds_b", Owner: "bob", Scope: "read", Hash: []byte{3}, CreatedAt: epoch.Add(time.Second)}
	for _, k := range []Key{b, a} {
		if err := s.AddKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddKey(ctx, a); err == nil {
		t.Error("a prefix twice")
	}
	if err := s.TouchKeys(ctx, map[string]time.Time{"pds_a": epoch.Add(time.Minute), "pds_none": epoch}); err != nil {
		t.Fatal(err)
	}
	a.UsedAt = epoch.Add(time.Minute)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open0(t, dir)
	if got, err := s.Keys(ctx); err != nil || !reflect.DeepEqual(got, []Key{a, b}) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, []Key{a, b})
	}
	if err := s.DeleteKey(ctx, "pds_a"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Keys(ctx); err != nil || len(got) != 1 {
		t.Errorf("left %+v, %v", got, err)
	}
}

// Keys from before there were scopes can do what they could: everything.
func TestKeysFromBeforeScopes(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	db, err := sql.Open("sqlite", filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sub)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO api_keys (prefix, owner, label, hash, created_at) VALUES ('pds_a', 'ann', 'old', x'01', 5)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := open0(t, dir).Keys(ctx)
	want := []Key{{Prefix: "pds_a", Owner: "ann", Label: "old", Scope: "admin", Hash: []byte{1}, CreatedAt: time.UnixMilli(5).UTC()}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
