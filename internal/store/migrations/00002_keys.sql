-- +goose Up
CREATE TABLE api_keys (
    prefix     TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    label      TEXT NOT NULL DEFAULT '',
    hash       BLOB NOT NULL,       -- SHA-256 of the key
    created_at INTEGER NOT NULL     -- milliseconds since 1970
) STRICT;

-- +goose Down
DROP TABLE api_keys;
