-- +goose Up
ALTER TABLE sandboxes ADD COLUMN host_id TEXT NOT NULL DEFAULT ''; -- the driver's id of it; '' when it is its own

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN host_id;
