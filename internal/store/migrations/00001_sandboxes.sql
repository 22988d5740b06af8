-- +goose Up
CREATE TABLE sandboxes (
    id                   TEXT PRIMARY KEY,
    owner                TEXT NOT NULL DEFAULT '',   -- '' while it is in a pool
    state                TEXT NOT NULL,
    template             TEXT NOT NULL,
    digest               TEXT NOT NULL,              -- of the template
    driver               TEXT NOT NULL,
    cpu                  REAL NOT NULL,
    memory_mb            INTEGER NOT NULL,
    disk_mb              INTEGER NOT NULL,
    pids                 INTEGER NOT NULL,
    metadata             TEXT NOT NULL DEFAULT '{}',
    from_snapshot        TEXT NOT NULL DEFAULT '',
    persistent           INTEGER NOT NULL DEFAULT 0,
    ttl_seconds          INTEGER NOT NULL DEFAULT 0,
    idle_timeout_seconds INTEGER NOT NULL DEFAULT 0,
    created_at           INTEGER NOT NULL,           -- times are milliseconds since 1970
    expires_at           INTEGER NOT NULL DEFAULT 0,
    used_at              INTEGER NOT NULL DEFAULT 0,
    ended_at             INTEGER NOT NULL DEFAULT 0,
    end_reason           TEXT NOT NULL DEFAULT '',
    end_detail           TEXT NOT NULL DEFAULT '',
    generation           INTEGER NOT NULL DEFAULT 0,
    boot_ms              REAL NOT NULL DEFAULT 0,
    boot_mode            TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX sandboxes_by_owner ON sandboxes (owner, created_at);
CREATE INDEX sandboxes_by_state ON sandboxes (state, expires_at);

CREATE TABLE sandbox_events (
    n          INTEGER PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    type       TEXT NOT NULL,
    detail     TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX sandbox_events_by_sandbox ON sandbox_events (sandbox_id, n);

-- +goose Down
DROP TABLE sandbox_events;
DROP TABLE sandboxes;
