package store

import (
	"context"
	"fmt"
	"time"
)

// Key is what is kept of an API key.
type Key struct {
	Prefix    string // of the key, its name
	Owner     string
	Label     string
	Hash      []byte // SHA-256 of the key
	CreatedAt time.Time
}

// Keys gives every key, the oldest first.
func (s *Store) Keys(ctx context.Context) ([]Key, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT prefix, owner, label, hash, created_at FROM api_keys ORDER BY created_at, prefix`)
	if err != nil {
		return nil, fmt.Errorf("reading the API keys: %w", err)
	}
	defer rows.Close()
	var out []Key
	for rows.Next() {
		var k Key
		var at int64
		if err := rows.Scan(&k.Prefix, &k.Owner, &k.Label, &k.Hash, &at); err != nil {
			return nil, fmt.Errorf("reading an API key: %w", err)
		}
		k.CreatedAt = fromMillis(at)
		out = append(out, k)
	}
	return out, rows.Err()
}

// AddKey keeps a key.
func (s *Store) AddKey(ctx context.Context, k Key) error {
	_, err := s.write.ExecContext(ctx, `INSERT INTO api_keys (prefix, owner, label, hash, created_at) VALUES (?, ?, ?, ?, ?)`,
		k.Prefix, k.Owner, k.Label, k.Hash, millis(k.CreatedAt))
	if err != nil {
		return fmt.Errorf("adding an API key: %w", err)
	}
	return nil
}

// DeleteKey forgets a key. One that is gone already is no error.
func (s *Store) DeleteKey(ctx context.Context, prefix string) error {
	if _, err := s.write.ExecContext(ctx, `DELETE FROM api_keys WHERE prefix = ?`, prefix); err != nil {
		return fmt.Errorf("deleting an API key: %w", err)
	}
	return nil
}
