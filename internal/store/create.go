package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Create is what is kept of a create that came with an idempotency key.
type Create struct {
	Owner     string
	Key       string
	Digest    []byte // SHA-256 of what was asked for
	SandboxID string
	At        time.Time
}

// AddCreate keeps a create, in the place of an earlier one of the same key.
func (s *Store) AddCreate(ctx context.Context, c Create) error {
	_, err := s.write.ExecContext(ctx, "INSERT OR REPLACE INTO creates (owner, key, digest, sandbox_id, at) VALUES (?, ?, ?, ?, ?)",
		c.Owner, c.Key, c.Digest, c.SandboxID, millis(c.At))
	if err != nil {
		return fmt.Errorf("keeping the idempotency key of sandbox %s: %w", c.SandboxID, err)
	}
	return nil
}

// CreateOf finds a create by its owner and key.
func (s *Store) CreateOf(ctx context.Context, owner, key string) (Create, error) {
	c := Create{Owner: owner, Key: key}
	var at int64
	err := s.read.QueryRowContext(ctx, "SELECT digest, sandbox_id, at FROM creates WHERE owner = ? AND key = ?", owner, key).Scan(&c.Digest, &c.SandboxID, &at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return c, ErrNotFound
	case err != nil:
		return c, fmt.Errorf("looking for an idempotency key: %w", err)
	}
	c.At = fromMillis(at)
	return c, nil
}

// PurgeCreates forgets creates from before a time.
func (s *Store) PurgeCreates(ctx context.Context, before time.Time) error {
	if _, err := s.write.ExecContext(ctx, "DELETE FROM creates WHERE at < ?", millis(before)); err != nil {
		return fmt.Errorf("forgetting old idempotency keys: %w", err)
	}
	return nil
}
