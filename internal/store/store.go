// Package store keeps what the daemon must know after a restart, in one SQLite
// file in the data directory: sandboxes, their events, and API keys. The
// domain and the key check call it. It decides nothing, and it never holds
// what a user's program said or read.
//
// A data directory belongs to one daemon at a time: Open takes a lock that
// ends with the process, however it ends.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

const (
	fileName = "pandastack.db"
	readers  = 4
)

// ErrNotFound is returned for a row that does not exist.
var ErrNotFound = errors.New("no such row")

// ErrStale is returned when a row is not in the state that a change expects.
var ErrStale = errors.New("the row has changed in between")

// Store is the database of one data directory.
type Store struct {
	lock  *lock
	write *sql.DB // one connection: SQLite has one writer, and here it never waits for another
	read  *sql.DB
}

// Open takes the data directory, makes it when missing, and brings the
// database up to date. A second daemon gets an error of kind fault.Conflict.
func Open(ctx context.Context, dir string) (s *Store, err error) {
	// Sandboxes' processes are nobody on the host: they must get through here.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	l, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	s = &Store{lock: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	file := filepath.Join(dir, fileName)
	if s.write, err = open(file, 1); err != nil {
		return s, err
	}
	if err := migrate(ctx, s.write); err != nil {
		return s, fmt.Errorf("bringing %s up to date: %w", file, err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		return s, fmt.Errorf("closing the database to others: %w", err)
	}
	if s.read, err = open(file, readers); err != nil {
		return s, err
	}
	return s, nil
}

// open opens the file. Commits survive the end of the process at once, and of
// the machine with the next checkpoint: running sandboxes do not outlive it, and
// for what does there is Sync.
func open(file string, conns int) (*sql.DB, error) {
	q := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(ON)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", file, err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// Close gives the data directory free.
func (s *Store) Close() error {
	var errs []error
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	return errors.Join(append(errs, s.lock.release())...)
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
