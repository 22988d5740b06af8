-- +goose Up
-- The network of a sandbox: {policy, sealed}, the latter being its secrets, encrypted.
ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '{}';
ALTER TABLE snapshots ADD COLUMN network TEXT NOT NULL DEFAULT '{}';

-- What a network remembers: programs inside hold addresses that were made up for names.
CREATE TABLE network_states (
    id    TEXT PRIMARY KEY,     -- of a sandbox or a snapshot
    names TEXT NOT NULL,        -- a JSON array, in the order of their addresses
    bytes INTEGER NOT NULL      -- used of the budget
) STRICT;

CREATE TABLE secrets (
    owner      TEXT NOT NULL,
    name       TEXT NOT NULL,
    sealed     BLOB NOT NULL,   -- encrypted
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (owner, name)
) STRICT;

-- +goose Down
DROP TABLE secrets;
DROP TABLE network_states;
ALTER TABLE snapshots DROP COLUMN network;
ALTER TABLE sandboxes DROP COLUMN network;
