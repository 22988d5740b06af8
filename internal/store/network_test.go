package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/pressly/goose/v3"
)

// A name more is a row more, and what is kept already is not written again.
func TestNetworkNames(t *testing.T) {
	ctx := context.Background()
	s := open0(t, t.TempDir())
	if _, err := s.NetworkState(ctx, "sb-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	st := NetworkState{}
	for _, name := range []string{"c.example", "a.example", "b.example"} {
		st.Names = append(st.Names, name)
		st.Bytes += 100
		before := changes(t, s)
		if err := s.KeepNetworkState(ctx, "sb-1", st); err != nil {
			t.Fatal(err)
		}
		if n := changes(t, s) - before; n > 3 { // the name, and the row that is replaced
			t.Errorf("the %d. name changes %d rows", len(st.Names), n)
		}
		if got, err := s.NetworkState(ctx, "sb-1"); err != nil || !reflect.DeepEqual(got, st) {
			t.Errorf("kept is %+v, %v", got, err)
		}
	}
	if err := s.purgeNetworkStates(ctx); err != nil { // there is no such sandbox
		t.Fatal(err)
	}
	var left int
	if err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM network_names").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d names are left, %v", left, err)
	}
}

func changes(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.write.QueryRowContext(context.Background(), "SELECT total_changes()").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// What a network remembered before each name had a row of its own.
func TestNamesFromBefore(t *testing.T) {
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
	if _, err := p.UpTo(ctx, 10); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO network_states (id, names, bytes) VALUES ('sb-1', '["b.example","a.example"]', 7), ('sb-2', '[]', 8)`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(`INSERT INTO snapshots (id, owner, sandbox_id, template, digest, driver, cpu, memory_mb, disk_mb, pids, generation, size_bytes, created_at)
		SELECT id, 'ann', 'sb', 'base', 'd', 'fake', 1, 512, 1024, 256, 1, 1, 1 FROM network_states`); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.DownTo(ctx, 10); err != nil { // and back, and forth again
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := open0(t, dir)
	for id, want := range map[string]NetworkState{"sb-1": {Names: []string{"b.example", "a.example"}, Bytes: 7}, "sb-2": {Bytes: 8}} {
		if got, err := s.NetworkState(ctx, id); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s remembers %+v, %v", id, got, err)
		}
	}
}

// What a snapshot remembers is kept before its row is, and goes with it.
func TestNetworkStatesOfSnapshots(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	s := open0(t, dir)
	kept := func(id string) bool {
		t.Helper()
		st, err := s.NetworkState(ctx, id)
		if err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		var names int
		if err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM network_names WHERE id = ?", id).Scan(&names); err != nil {
			t.Fatal(err)
		}
		if (len(st.Names) > 0) != (names > 0) {
			t.Errorf("of %s there are %d names, and %d are kept", id, len(st.Names), names)
		}
		return err == nil
	}
	add(t, s, running("sb-1", epoch), running("sb-2", epoch))
	for _, id := range []string{"sb-1", "sb-2", "sn-1", "sn-2", "sn-3"} {
		if err := s.KeepNetworkState(ctx, id, NetworkState{Names: []string{"a.example"}, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
	}
	ended := running("sb-2", epoch)
	ended.State, ended.EndedAt = Deleted, epoch
	if err := s.ReplaceSandbox(ctx, ended, Running); err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(ctx, epoch.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if !kept("sn-1") || !kept("sb-1") || kept("sb-2") {
		t.Errorf("sn-1 %v, sb-1 %v, sb-2 %v", kept("sn-1"), kept("sb-1"), kept("sb-2"))
	}
	for _, id := range []string{"sn-1", "sn-2"} {
		if err := s.AddSnapshot(ctx, Snapshot{ID: id, Owner: "ann", CreatedAt: epoch, ExpiresAt: epoch.Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveSnapshot(ctx, "sn-1"); err != nil || kept("sn-1") {
		t.Errorf("sn-1 is kept, %v", err)
	}
	if err := s.ExpireSnapshot(ctx, "sn-2", epoch); !errors.Is(err, ErrStale) || !kept("sn-2") {
		t.Errorf("before its time: %v", err)
	}
	if err := s.ExpireSnapshot(ctx, "sn-2", epoch.Add(time.Minute)); err != nil || kept("sn-2") {
		t.Errorf("sn-2 is kept, %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = open0(t, dir); kept("sn-3") || !kept("sb-1") {
		t.Error("what was not finished is kept, or what runs is not")
	}
}
