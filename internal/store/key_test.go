package store

import (
	"context"
	"reflect"
	"testing"
	"time"
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
