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
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
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
	dir     string
	file    string
	steps   fs.FS // the migrations
	version int64 // of the tables
	lock    *lock
	write   conns // one connection: SQLite has one writer, and here it never waits for another
	read    conns

	failures atomic.Int64
}

// Probe writes something and reads it back.
func (s *Store) Probe(ctx context.Context, now time.Time) error {
	if _, err := s.write.ExecContext(ctx, "INSERT INTO probes (id, at) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at", millis(now)); err != nil {
		return fmt.Errorf("writing to the database: %w", err)
	}
	var at int64
	if err := s.read.QueryRowContext(ctx, "SELECT at FROM probes").Scan(&at); err != nil {
		return fmt.Errorf("reading from the database: %w", kind(err))
	}
	return nil
}

// Failures counts the errors of the database since it was opened.
func (s *Store) Failures() int64 { return s.failures.Load() }

// Open takes the data directory, makes it when missing, and brings the
// database up to date, after a backup. A second daemon gets an error of kind
// fault.Conflict, and so does one whose database is damaged or newer than the
// program: the hint says how to go on.
func Open(ctx context.Context, dir string) (*Store, error) {
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return openWith(ctx, dir, steps)
}

// openWith is Open with these migrations.
func openWith(ctx context.Context, dir string, steps fs.FS) (s *Store, err error) {
	// Sandboxes' processes are nobody on the host: they must get through here.
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, unusable(dir, err)
	}
	l, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	s = &Store{dir: dir, file: filepath.Join(dir, fileName), steps: steps, lock: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if err := s.look(l.crashed); err != nil {
		return s, err
	}
	if s.write, err = open(s.file, 1, &s.failures); err != nil {
		return s, err
	}
	if err := s.check(ctx); err != nil {
		return s, err
	}
	if err := s.migrate(ctx); err != nil {
		return s, err
	}
	if err := os.Chmod(s.file, 0o600); err != nil {
		return s, fmt.Errorf("closing the database to others: %w", err)
	}
	if err := s.purgeNetworkStates(ctx); err != nil && !errors.Is(err, fault.NoSpace) { // of what was not finished
		return s, s.opening(err)
	}
	// The next daemon must find in the log what this one wrote, and no rests of
	// the last one's. On a full disk they stay, which is better than no daemon.
	if _, err := s.write.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil && !errors.Is(err, fault.NoSpace) {
		return s, s.opening(err)
	}
	if s.read, err = open(s.file, readers, &s.failures); err != nil {
		return s, err
	}
	return s, nil
}

// unusable explains why a folder cannot be the data directory.
func unusable(dir string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC):
		return fault.Wrap(err, api.CodeNoSpace, "the disk of the data directory %s is full", dir).WithHint("free a few megabytes there")
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EEXIST):
		return fault.Wrap(err, api.CodeInvalid, "the data directory %s is not a folder", dir).
			WithHint("move what is there away, or choose another with --data-dir")
	default:
		return fault.Wrap(err, api.CodeInvalid, "the data directory %s cannot be written to", dir).
			WithHint("run as root, see that it is mounted for writing and belongs to root, or choose another with --data-dir")
	}
}

// found makes the database under another name, so that an unfinished one is
// never mistaken for the real one.
func (s *Store) found() (err error) {
	next := s.file + ".new"
	for _, f := range []string{next, next + "-wal", next + "-shm", next + "-journal"} {
		if err := ignoreGone(os.Remove(f)); err != nil {
			return unusable(s.dir, err)
		}
	}
	if s.write, err = open(next, 1, &s.failures); err != nil {
		return err
	}
	err = s.migrate(context.Background())
	if err = errors.Join(err, s.write.Close()); err != nil {
		return s.opening(err)
	}
	s.write = conns{}
	if err := os.Rename(next, s.file); err != nil {
		return unusable(s.dir, err)
	}
	return nil
}

// busyTime is how long a statement waits for another program to unlock the
// database. Tests have less patience.
var busyTime = 10 * time.Second

// open opens a file. Commits survive the end of the process at once, and of
// the machine with the next checkpoint: running sandboxes do not outlive it, and
// for what does there is Sync.
func open(file string, n int, failures *atomic.Int64) (conns, error) {
	q := url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTime.Milliseconds()), "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(ON)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String())
	if err != nil {
		return conns{}, fmt.Errorf("opening %s: %w", file, err)
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return conns{DB: db, failures: failures}, nil
}

// migrate brings the tables up to date, after a backup of what there was.
func (s *Store) migrate(ctx context.Context) error {
	p, err := goose.NewProvider(goose.DialectSQLite3, s.write.DB, s.steps)
	if err != nil {
		return err
	}
	if s.version, err = p.GetDBVersion(ctx); err != nil {
		return s.opening(err)
	}
	known := p.ListSources()
	newest := known[len(known)-1].Version
	switch {
	case s.version > newest:
		return s.tooNew(newest)
	case s.version == newest:
		return nil
	case s.version > 0:
		if _, err := s.Backup(ctx); err != nil {
			return fmt.Errorf("before it is brought up to date: %w", err)
		}
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("bringing %s up to date: %w", s.file, kind(err))
	}
	s.version = newest
	return nil
}

// tooNew refuses the database of a later program.
func (s *Store) tooNew(newest int64) error {
	e := fault.New(api.CodeConflict, "the database %s has version %d, and this program knows none above %d: a newer one has used it", s.file, s.version, newest)
	for _, b := range s.backups() {
		if b.version <= newest {
			return e.WithHint("run the newer program; or go back to the backup from before, without the sandboxes and keys made since: mv %s %s && rm -f %s %s && cp %s %s",
				quote(s.file), quote(s.file+".newer"), quote(s.file+"-wal"), quote(s.file+"-shm"), quote(b.path), quote(s.file))
		}
	}
	return e.WithHint("run the newer program, or give this one a data directory of its own with --data-dir")
}

// Close gives the data directory free.
func (s *Store) Close() error {
	var errs []error
	for _, c := range []conns{s.read, s.write} {
		if c.DB != nil {
			errs = append(errs, c.Close())
		}
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

// ignoreDone forgives the rollback of a transaction that is over.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}
