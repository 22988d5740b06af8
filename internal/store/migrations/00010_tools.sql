-- +goose Up
-- The tools of a sandbox, as its creator gave them. There is no credential in it: secrets are named.
ALTER TABLE sandboxes ADD COLUMN tools TEXT NOT NULL DEFAULT '';
ALTER TABLE snapshots ADD COLUMN tools TEXT NOT NULL DEFAULT '';

-- Calls that wait for somebody's decision, and those that had one.
CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    owner      TEXT NOT NULL,
    sandbox    TEXT NOT NULL,
    agent      TEXT NOT NULL,
    key        TEXT NOT NULL,     -- of the call, in its sandbox
    status     TEXT NOT NULL,
    begun      INTEGER NOT NULL,  -- 1 as soon as the approved call begins
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    body       TEXT NOT NULL,     -- the whole, as the API shows it
    UNIQUE (sandbox, key)
) STRICT;
CREATE INDEX approvals_of ON approvals (owner, status, created_at);

-- +goose Down
DROP TABLE approvals;
ALTER TABLE snapshots DROP COLUMN tools;
ALTER TABLE sandboxes DROP COLUMN tools;
