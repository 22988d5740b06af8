-- +goose Up
-- Names that a network remembers, each in a row: a name more is one row more, however many there are.
CREATE TABLE network_names (
    id    TEXT NOT NULL,        -- of a sandbox or a snapshot
    place INTEGER NOT NULL,     -- which is its address
    name  TEXT NOT NULL,
    PRIMARY KEY (id, place)
) STRICT, WITHOUT ROWID;

INSERT INTO network_names (id, place, name)
    SELECT s.id, j.key, j.value FROM network_states s, json_each(s.names) j;
ALTER TABLE network_states DROP COLUMN names;

-- +goose Down
ALTER TABLE network_states ADD COLUMN names TEXT NOT NULL DEFAULT '[]';
UPDATE network_states SET names = coalesce((
    SELECT json_group_array(name) FROM (SELECT name FROM network_names n WHERE n.id = network_states.id ORDER BY place)), '[]');
DROP TABLE network_names;
