-- +goose Up
CREATE TABLE events (
    n          INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice, so that a stream can go on after it
    owner      TEXT NOT NULL,                      -- '' is nobody's, and everybody's when it is of no sandbox
    sandbox_id TEXT NOT NULL,
    at         INTEGER NOT NULL,                   -- milliseconds since 1970
    type       TEXT NOT NULL,
    payload    TEXT NOT NULL
) STRICT;

CREATE INDEX events_by_owner ON events (owner, n);
CREATE INDEX events_by_sandbox ON events (sandbox_id, n);
CREATE INDEX events_by_time ON events (at);

-- Up to which number events of an owner are no longer kept.
CREATE TABLE events_forgotten (
    owner   TEXT PRIMARY KEY,
    through INTEGER NOT NULL
) STRICT;

-- Written to see whether the database takes anything.
CREATE TABLE probes (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    at INTEGER NOT NULL
) STRICT;

INSERT INTO events (owner, sandbox_id, at, type, payload)
    SELECT s.owner, e.sandbox_id, e.at, CASE e.type WHEN 'ttl' THEN 'lifecycle_changed' WHEN 'running' THEN 'resumed' ELSE e.type END,
           json_object('detail', e.detail)
    FROM sandbox_events e JOIN sandboxes s ON s.id = e.sandbox_id ORDER BY e.n;
DROP TABLE sandbox_events;

-- +goose Down
CREATE TABLE sandbox_events (
    n          INTEGER PRIMARY KEY,
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
    at         INTEGER NOT NULL,
    type       TEXT NOT NULL,
    detail     TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX sandbox_events_by_sandbox ON sandbox_events (sandbox_id, n);
DROP TABLE probes;
DROP TABLE events_forgotten;
DROP TABLE events;
