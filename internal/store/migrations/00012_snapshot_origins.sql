-- +goose Up
-- Where a snapshot was imported from, as the API shows it, '' when it was taken here; and the ids of the code contexts in it.
ALTER TABLE snapshots ADD COLUMN origin TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN contexts TEXT NOT NULL DEFAULT 'null';

-- +goose Down
ALTER TABLE snapshots DROP COLUMN contexts;
ALTER TABLE snapshots DROP COLUMN origin;
