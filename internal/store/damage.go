package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// conns is a database whose errors have their kind: a full disk is not an
// error of the daemon.
type conns struct {
	*sql.DB
	failures *atomic.Int64
}

func (c conns) BeginTx(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
	tx, err := c.DB.BeginTx(ctx, o)
	return tx, c.count(err)
}

// count counts an error that is SQLite's, and gives it its kind.
func (c conns) count(err error) error {
	if err != nil && primary(err) != 0 {
		c.failures.Add(1)
	}
	return kind(err)
}

func (c conns) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	res, err := c.DB.ExecContext(ctx, query, args...)
	return res, c.count(err)
}

func (c conns) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := c.DB.QueryContext(ctx, query, args...)
	return rows, c.count(err)
}

// primary is SQLite's code of an error, 0 for one that is not SQLite's.
func primary(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// kind gives an error of SQLite its kind.
func kind(err error) error {
	switch code := primary(err); {
	case code == sqlite3.SQLITE_FULL, errors.Is(err, unix.ENOSPC):
		return fault.Wrap(err, api.CodeNoSpace, "the disk of the server's database is full").
			WithHint("the operator has to free space; killing sandboxes frees some")
	case code == sqlite3.SQLITE_BUSY, code == sqlite3.SQLITE_LOCKED:
		return fault.Wrap(err, api.CodeNoCapacity, "another program has held the server's database locked for %s", busyTime).
			WithHint("the operator has to end it; then try again")
	}
	return err
}

// look refuses what is not a whole database before SQLite sees it, which takes
// an empty file for a new one and drops a damaged log without a word.
func (s *Store) look(crashed bool) error {
	f, err := os.Open(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		if old := s.backups(); len(old) > 0 {
			return s.damaged("is gone, though it has been backed up before", nil)
		}
		return s.found()
	}
	if err != nil {
		return fmt.Errorf("opening the database: %w", err)
	}
	defer f.Close()
	const magic = "SQLite format 3\x00"
	head := make([]byte, len(magic))
	switch n, err := io.ReadFull(f, head); {
	case n == 0 && errors.Is(err, io.EOF):
		return s.damaged("is empty", nil)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("reading the database: %w", err)
	case !bytes.Equal(head, []byte(magic)):
		return s.damaged("is not a database", nil)
	}
	if !crashed {
		return nil // the machine itself went down: a torn log is what that leaves
	}
	return checkWAL(s.file + "-wal")
}

// check has SQLite look at every page, and sees that it can be written to.
func (s *Store) check(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil) // takes the lock for writing
	if err != nil {
		return s.opening(err)
	}
	if err := tx.Rollback(); err != nil {
		return s.opening(err)
	}
	rows, err := s.write.DB.QueryContext(ctx, "PRAGMA integrity_check(3)")
	if err != nil {
		return s.opening(err)
	}
	defer rows.Close()
	var said []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return s.opening(err)
		}
		said = append(said, strings.ReplaceAll(line, "\n", "; "))
	}
	if err := rows.Err(); err != nil {
		return s.opening(err)
	}
	if len(said) != 1 || said[0] != "ok" {
		return s.damaged("is damaged", errors.New(strings.Join(said, "; ")))
	}
	return nil
}

// opening explains an error from before the database was known to be whole.
func (s *Store) opening(err error) error {
	switch primary(err) {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return s.damaged("is damaged", err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fault.Wrap(err, api.CodeConflict, "another program holds the database %s locked", s.file).
			WithHint("end it; this names it: fuser -v %s", quote(s.file))
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		var st unix.Statfs_t
		if unix.Statfs(s.dir, &st) == nil && st.Bavail*uint64(st.Bsize) < 1<<20 {
			return fault.Wrap(err, api.CodeNoSpace, "the disk is full under the database %s", s.file).
				WithHint("free a few megabytes at %s", s.dir)
		}
	}
	return fmt.Errorf("opening the database %s: %w", s.file, kind(err))
}

// damaged says what is wrong with the database and how to go on.
func (s *Store) damaged(what string, err error) error {
	e := fault.Wrap(err, api.CodeConflict, "the database %s %s", s.file, what)
	away := ""
	if _, err := os.Lstat(s.file); err == nil {
		away = fmt.Sprintf("mv %s %s && ", quote(s.file), quote(s.file+".damaged"))
	}
	logs := fmt.Sprintf("rm -f %s %s", quote(s.file+"-wal"), quote(s.file+"-shm"))
	if old := s.backups(); len(old) > 0 {
		return e.WithHint("restore the last backup; sandboxes and keys that are newer are lost: %s%s && cp %s %s", away, logs, quote(old[0].path), quote(s.file))
	}
	return e.WithHint("there is no backup in %s; restore one of your own, or begin anew, without the sandboxes and keys there were: %s%s", s.backupDir(), away, logs)
}

// quote makes a path one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
