-- +goose Up
CREATE TABLE snapshots (
    id          TEXT PRIMARY KEY,
    owner       TEXT NOT NULL,
    name        TEXT NOT NULL DEFAULT '',
    sandbox_id  TEXT NOT NULL,              -- it was taken of; may be gone
    parent_id   TEXT NOT NULL DEFAULT '',   -- the snapshot that this sandbox was made from; may be gone
    template    TEXT NOT NULL,
    digest      TEXT NOT NULL,              -- of the template
    driver      TEXT NOT NULL,
    cpu         REAL NOT NULL,
    memory_mb   INTEGER NOT NULL,
    disk_mb     INTEGER NOT NULL,
    pids        INTEGER NOT NULL,
    metadata    TEXT NOT NULL DEFAULT '{}',
    generation  INTEGER NOT NULL,           -- of the sandbox when it was taken
    size_bytes  INTEGER NOT NULL,
    duration_ms REAL NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL            -- milliseconds since 1970
) STRICT;

CREATE INDEX snapshots_by_owner ON snapshots (owner, created_at);

ALTER TABLE sandboxes ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN slept_at INTEGER NOT NULL DEFAULT 0;     -- since when it is hibernated

-- +goose Down
ALTER TABLE sandboxes DROP COLUMN slept_at;
ALTER TABLE sandboxes DROP COLUMN forked_from;
DROP TABLE snapshots;
