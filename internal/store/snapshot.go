package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Snapshot is what is kept of a snapshot beside its files.
type Snapshot struct {
	ID         string
	Owner      string
	Name       string
	SandboxID  string
	ParentID   string
	Template   string
	Digest     string // of the template
	Driver     string
	CPU        float64
	MemoryMB   int
	DiskMB     int
	PIDs       int
	Metadata   map[string]string
	Generation int // of the sandbox when it was taken
	SizeBytes  int64
	DurationMS float64
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: it stays
	Network    Network
	Tools      *api.Tools          // nil: none
	Contexts   []string            // ids of the code contexts in it, as far as known
	Origin     *api.SnapshotOrigin // nil: it was taken here
}

const snapshotColumns = `id, owner, name, sandbox_id, parent_id, template, digest, driver, cpu, memory_mb, disk_mb, pids,
	metadata, generation, size_bytes, duration_ms, created_at, expires_at, network, tools, origin, contexts`

// AddSnapshot writes the row of a snapshot whose files are whole, and sees that
// it survives the end of the machine, as they do.
func (s *Store) AddSnapshot(ctx context.Context, sn Snapshot) error {
	meta, err := json.Marshal(sn.Metadata)
	if err != nil {
		return fmt.Errorf("encoding metadata: %w", err)
	}
	network, err := networkValue(sn.Network)
	if err != nil {
		return err
	}
	tools, err := toolsValue(sn.Tools)
	if err != nil {
		return err
	}
	origin := ""
	if sn.Origin != nil {
		raw, err := json.Marshal(sn.Origin)
		if err != nil {
			return fmt.Errorf("encoding an origin: %w", err)
		}
		origin = string(raw)
	}
	contexts, err := json.Marshal(sn.Contexts)
	if err != nil {
		return fmt.Errorf("encoding contexts: %w", err)
	}
	v := []any{
		sn.ID, sn.Owner, sn.Name, sn.SandboxID, sn.ParentID, sn.Template, sn.Digest, sn.Driver, sn.CPU, sn.MemoryMB, sn.DiskMB, sn.PIDs,
		string(meta), sn.Generation, sn.SizeBytes, sn.DurationMS, millis(sn.CreatedAt), millis(sn.ExpiresAt), network, tools, origin, string(contexts),
	}
	if _, err := s.write.ExecContext(ctx, "INSERT INTO snapshots ("+snapshotColumns+") VALUES ("+marks(len(v))+")", v...); err != nil {
		return fmt.Errorf("adding snapshot %s: %w", sn.ID, err)
	}
	return s.Sync(ctx)
}

// flush is what tests look at.
var flush = (*os.File).Sync

// Sync sees that what was written so far survives the end of the machine.
func (s *Store) Sync(ctx context.Context) error {
	// A checkpoint would not do: while somebody reads it may leave the log as it is.
	f, err := os.Open(s.file + "-wal")
	if err == nil {
		err = errors.Join(flush(f), f.Close())
	}
	if err != nil {
		return fmt.Errorf("writing the database to the disk: %w", err)
	}
	return nil
}

// Snapshot reads a row.
func (s *Store) Snapshot(ctx context.Context, id string) (Snapshot, error) {
	sn, err := scanSnapshot(s.read.QueryRowContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE id = ?", id).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return sn, ErrNotFound
	case err != nil:
		return sn, fmt.Errorf("reading snapshot %s: %w", id, err)
	}
	return sn, nil
}

// SnapshotsOf lists an owner's snapshots, the newest first, of one sandbox when
// it is named; an owner of "" means everybody's.
func (s *Store) SnapshotsOf(ctx context.Context, owner, sandboxID string) ([]Snapshot, error) {
	return s.snapshots(ctx, "(?1 = '' OR owner = ?1) AND (?2 = '' OR sandbox_id = ?2) ORDER BY created_at DESC, rowid DESC", owner, sandboxID)
}

// ExpiredSnapshots lists those whose time was over by now.
func (s *Store) ExpiredSnapshots(ctx context.Context, now time.Time) ([]Snapshot, error) {
	return s.snapshots(ctx, "expires_at > 0 AND expires_at <= ? ORDER BY expires_at", millis(now))
}

func (s *Store) snapshots(ctx context.Context, where string, args ...any) ([]Snapshot, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+snapshotColumns+" FROM snapshots WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading snapshots: %w", err)
	}
	defer rows.Close()
	var out []Snapshot
	for rows.Next() {
		sn, err := scanSnapshot(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("reading snapshots: %w", err)
		}
		out = append(out, sn)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading snapshots: %w", err)
	}
	return out, nil
}

// DescribeSnapshot changes name, metadata and expiry, or returns ErrStale when
// the snapshot is gone.
func (s *Store) DescribeSnapshot(ctx context.Context, sn Snapshot) error {
	meta, err := json.Marshal(sn.Metadata)
	if err != nil {
		return fmt.Errorf("encoding metadata: %w", err)
	}
	res, err := s.write.ExecContext(ctx, "UPDATE snapshots SET name = ?, metadata = ?, expires_at = ? WHERE id = ?",
		sn.Name, string(meta), millis(sn.ExpiresAt), sn.ID)
	return changed(res, err, "changing snapshot "+sn.ID)
}

// RemoveSnapshot removes a row, or returns ErrStale when it is gone.
func (s *Store) RemoveSnapshot(ctx context.Context, id string) error {
	return s.removeSnapshot(ctx, id, "")
}

// ExpireSnapshot removes a row whose time is over, or returns ErrStale when it
// is gone or was given more time.
func (s *Store) ExpireSnapshot(ctx context.Context, id string, now time.Time) error {
	return s.removeSnapshot(ctx, id, " AND expires_at > 0 AND expires_at <= ?", millis(now))
}

// removeSnapshot removes a row, if it is as is said, and what the network of the
// snapshot remembers.
func (s *Store) removeSnapshot(ctx context.Context, id, where string, args ...any) error {
	what := "removing snapshot " + id
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	res, err := tx.ExecContext(ctx, "DELETE FROM snapshots WHERE id = ?"+where, append([]any{id}, args...)...)
	if err := changed(res, kind(err), what); err != nil {
		return err
	}
	for _, table := range []string{"network_states", "network_names"} {
		if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE id = ?", id); err != nil {
			return fmt.Errorf("%s: %w", what, kind(err))
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%s: %w", what, kind(err))
	}
	return nil
}

func scanSnapshot(scan func(...any) error) (Snapshot, error) {
	var (
		sn       Snapshot
		meta     string
		network  string
		tools    string
		origin   string
		contexts string
		created  int64
		expires  int64
	)
	err := scan(&sn.ID, &sn.Owner, &sn.Name, &sn.SandboxID, &sn.ParentID, &sn.Template, &sn.Digest, &sn.Driver, &sn.CPU, &sn.MemoryMB,
		&sn.DiskMB, &sn.PIDs, &meta, &sn.Generation, &sn.SizeBytes, &sn.DurationMS, &created, &expires, &network, &tools, &origin, &contexts)
	if err != nil {
		return sn, err
	}
	if err := json.Unmarshal([]byte(meta), &sn.Metadata); err != nil {
		return sn, fmt.Errorf("metadata of %s: %w", sn.ID, err)
	}
	sn.CreatedAt, sn.ExpiresAt = fromMillis(created), fromMillis(expires)
	if sn.Network, err = scanNetwork(network, sn.ID); err != nil {
		return sn, err
	}
	if err := json.Unmarshal([]byte(contexts), &sn.Contexts); err != nil {
		return sn, fmt.Errorf("contexts of %s: %w", sn.ID, err)
	}
	if origin != "" {
		if err := json.Unmarshal([]byte(origin), &sn.Origin); err != nil {
			return sn, fmt.Errorf("origin of %s: %w", sn.ID, err)
		}
	}
	sn.Tools, err = scanTools(tools, sn.ID)
	return sn, err
}
