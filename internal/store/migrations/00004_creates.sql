-- +goose Up
-- Which sandbox a create with an idempotency key made.
CREATE TABLE creates (
    owner      TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     BLOB NOT NULL,       -- SHA-256 of what was asked for
    sandbox_id TEXT NOT NULL,
    at         INTEGER NOT NULL,    -- milliseconds since 1970
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX creates_by_time ON creates (at);

-- +goose Down
DROP TABLE creates;
