-- +goose Up
ALTER TABLE snapshots ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0; -- 0: it stays

CREATE INDEX snapshots_by_expiry ON snapshots (expires_at) WHERE expires_at > 0;

-- +goose Down
DROP INDEX snapshots_by_expiry;
ALTER TABLE snapshots DROP COLUMN expires_at;
