package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Network is what is kept of the network of a sandbox or a snapshot.
type Network struct {
	Policy *api.NetworkPolicy `json:"policy,omitempty"` // nil: closed
	Sealed []byte             `json:"sealed,omitempty"` // its secrets, encrypted
}

// scanNetwork reads the JSON of a Network.
func scanNetwork(raw, of string) (Network, error) {
	var n Network
	if err := json.Unmarshal([]byte(raw), &n); err != nil {
		return n, fmt.Errorf("network of %s: %w", of, err)
	}
	return n, nil
}

func networkValue(n Network) (string, error) {
	raw, err := json.Marshal(n)
	if err != nil {
		return "", fmt.Errorf("encoding a network: %w", err)
	}
	return string(raw), nil
}

// NetworkState is what the network of a sandbox remembers.
type NetworkState struct {
	Names []string // in the order of their addresses
	Bytes int64
}

// NetworkState reads what was kept under the id of a sandbox or a snapshot, or
// returns ErrNotFound.
func (s *Store) NetworkState(ctx context.Context, id string) (NetworkState, error) {
	var st NetworkState
	err := s.read.QueryRowContext(ctx, "SELECT bytes FROM network_states WHERE id = ?", id).Scan(&st.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		return st, ErrNotFound
	}
	if err == nil {
		st.Names, err = s.networkNames(ctx, id)
	}
	if err != nil {
		return st, fmt.Errorf("reading what the network of %s remembers: %w", id, err)
	}
	return st, nil
}

func (s *Store) networkNames(ctx context.Context, id string) ([]string, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT name FROM network_names WHERE id = ? ORDER BY place", id)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// KeepNetworkState writes it. Names that are kept already stay as they are: one
// has its place for good.
func (s *Store) KeepNetworkState(ctx context.Context, id string, st NetworkState) error {
	if err := s.keepNetworkState(ctx, id, st); err != nil {
		return fmt.Errorf("keeping what the network of %s remembers: %w", id, kind(err))
	}
	return nil
}

func (s *Store) keepNetworkState(ctx context.Context, id string, st NetworkState) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	var kept int
	if err := tx.QueryRowContext(ctx, "SELECT coalesce(max(place) + 1, 0) FROM network_names WHERE id = ?", id).Scan(&kept); err != nil {
		return err
	}
	for place := kept; place < len(st.Names); place++ {
		if _, err := tx.ExecContext(ctx, "INSERT INTO network_names (id, place, name) VALUES (?, ?, ?)", id, place, st.Names[place]); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO network_states (id, bytes) VALUES (?, ?)", id, st.Bytes); err != nil {
		return err
	}
	return tx.Commit()
}

// purgeNetworkStates forgets those of sandboxes and snapshots that are no more.
// What a snapshot remembers is there before its row, so this is done before
// there can be any new ones.
func (s *Store) purgeNetworkStates(ctx context.Context) error {
	_, err := s.write.ExecContext(ctx, `DELETE FROM network_states WHERE id NOT IN (SELECT id FROM snapshots)
		AND id NOT IN (SELECT id FROM sandboxes WHERE state NOT IN ('deleted', 'failed'))`)
	if err == nil {
		_, err = s.write.ExecContext(ctx, "DELETE FROM network_names WHERE id NOT IN (SELECT id FROM network_states)")
	}
	if err != nil {
		return fmt.Errorf("forgetting the networks of old sandboxes: %w", err)
	}
	return nil
}

// forgetNetworkStates forgets those of sandboxes that have ended.
func (s *Store) forgetNetworkStates(ctx context.Context) error {
	const ended = "(SELECT s.id FROM network_states s JOIN sandboxes b ON b.id = s.id WHERE b.state IN ('deleted', 'failed'))"
	_, err := s.write.ExecContext(ctx, "DELETE FROM network_names WHERE id IN "+ended)
	if err == nil {
		_, err = s.write.ExecContext(ctx, "DELETE FROM network_states WHERE id IN "+ended)
	}
	if err != nil {
		return fmt.Errorf("forgetting the networks of ended sandboxes: %w", err)
	}
	return nil
}

// Secret is a secret of a workspace.
type Secret struct {
	Owner     string
	Name      string
	Sealed    []byte // encrypted
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PutSecret keeps a secret, in the place of an earlier one of the same name.
func (s *Store) PutSecret(ctx context.Context, sec Secret) error {
	_, err := s.write.ExecContext(ctx, `INSERT INTO secrets (owner, name, sealed, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (owner, name) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at`,
		sec.Owner, sec.Name, sec.Sealed, millis(sec.CreatedAt), millis(sec.UpdatedAt))
	if err != nil {
		return fmt.Errorf("keeping a secret: %w", err)
	}
	return nil
}

// Secret finds one, or returns ErrNotFound.
func (s *Store) Secret(ctx context.Context, owner, name string) (Secret, error) {
	list, err := s.secrets(ctx, "owner = ? AND name = ?", owner, name)
	if err == nil && len(list) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Secret{}, err
	}
	return list[0], nil
}

// Secrets lists those of a workspace by name.
func (s *Store) Secrets(ctx context.Context, owner string) ([]Secret, error) {
	return s.secrets(ctx, "owner = ? ORDER BY name", owner)
}

func (s *Store) secrets(ctx context.Context, where string, args ...any) ([]Secret, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT owner, name, sealed, created_at, updated_at FROM secrets WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading secrets: %w", err)
	}
	defer rows.Close()
	var out []Secret
	for rows.Next() {
		var sec Secret
		var created, updated int64
		if err := rows.Scan(&sec.Owner, &sec.Name, &sec.Sealed, &created, &updated); err != nil {
			return nil, fmt.Errorf("reading a secret: %w", err)
		}
		sec.CreatedAt, sec.UpdatedAt = fromMillis(created), fromMillis(updated)
		out = append(out, sec)
	}
	return out, rows.Err()
}

// DeleteSecret forgets a secret, or returns ErrStale when there is none.
func (s *Store) DeleteSecret(ctx context.Context, owner, name string) error {
	res, err := s.write.ExecContext(ctx, "DELETE FROM secrets WHERE owner = ? AND name = ?", owner, name)
	return changed(res, err, "deleting a secret")
}
