package store

import (
	"context"
	"fmt"
	"time"
)

// Key is what is kept of an API key.
type Key struct {
	Prefix    string // of the key, its name
	Owner     string // the workspace
	Label     string
	Scope     string
	Hash      []byte // SHA-256 of the key
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	UsedAt    time.Time // zero: never
}

// Keys gives every key, the oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT prefix, owner, label, scope, hash, created_at, expires_at, used_at FROM api_keys ORDER BY created_at, prefix`)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	defer rows.Close()
	var out []Key
	for rows.Next() {
		var k Key
		var created, expires, used int64
		if err := rows.Scan(&k.Prefix, &k.Owner, &k.Label, &k.Scope, &k.Hash, &created, &expires, &used); err != nil {
			return nil, fmt.Errorf("reading an API key: %w", err)
		}
		k.CreatedAt, k.ExpiresAt, k.UsedAt = fromMillis(created), fromMillis(expires), fromMillis(used)
		out = append(out, k)
	}
	return out, rows.Err()
}

// AddKey keeps a key.
func (s *Store) AddKey(ctx context.Context, k Key) error {
	_, err := s.write.ExecContext(ctx, `INSERT INTO api_keys (prefix, owner, label, scope, hash, created_at, expires_at, used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		k.Prefix, k.Owner, k.Label, k.Scope, k.Hash, millis(k.CreatedAt), millis(k.ExpiresAt), millis(k.UsedAt))
	if err != nil {
		return fmt.Errorf("adding an API key: %w", err)
	}
	return nil
}

// TouchKeys notes when keys were last used, by prefix.
func (s *Store) TouchKeys(ctx context.Context, used map[string]time.Time) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("noting the use of API keys: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	for prefix, at := range used {
		if _, err := tx.ExecContext(ctx, `UPDATE api_keys SET used_at = ? WHERE prefix = ?`, millis(at), prefix); err != nil {
			return fmt.Errorf("noting the use of API key %s: %w", prefix, err)
		}
	}
	return tx.Commit()
}

// DeleteKey forgets a key. One that is gone already is no error.
func (s *Store) DeleteKey(ctx context.Context, prefix string) error {
	if _, err := s.write.ExecContext(ctx, `DELETE FROM api_keys WHERE prefix = ?`, prefix); err != nil {
		return fmt.Errorf("deleting an API key: %w", err)
	}
	return nil
}
