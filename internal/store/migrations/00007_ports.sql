-- +goose Up
-- What users have said of ports: a JSON array of {port, label, public}.
ALTER TABLE sandboxes ADD COLUMN ports TEXT NOT NULL DEFAULT '[]';

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN ports;
