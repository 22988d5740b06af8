package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Query narrows a list of sandboxes. Zero values mean everything.
type Query struct {
	Owner    string
	States   []State // needed
	Template string
	Metadata map[string]string // each pair must match
	After    Position          // where the page before ended
	Limit    int
}

// Position is a place in a list: behind a sandbox.
type Position struct {
	CreatedAt time.Time
	ID        string
}

// List gives sandboxes, the newest first. New ones come before every position
// and none ever moves, so that pages overlap nowhere and miss nothing.
func (s *Store) List(ctx context.Context, q Query) ([]Sandbox, error) {
	where, args := "state IN ("+marks(len(q.States))+")", []any{}
	for _, st := range q.States {
		args = append(args, string(st))
	}
	and := func(condition string, values ...any) {
		where += " AND " + condition
		args = append(args, values...)
	}
	if q.Owner != "" {
		and("owner = ?", q.Owner)
	}
	if q.Template != "" {
		and("template = ?", q.Template)
	}
	for _, k := range slices.Sorted(maps.Keys(q.Metadata)) {
		and("EXISTS (SELECT 1 FROM json_each(sandboxes.metadata) AS pair WHERE pair.key = ? AND pair.value = ?)", k, q.Metadata[k])
	}
	if q.After.ID != "" {
		at := millis(q.After.CreatedAt)
		and("(created_at < ? OR created_at = ? AND id > ?)", at, at, q.After.ID)
	}
	where += " ORDER BY created_at DESC, id"
	if q.Limit > 0 {
		where += " LIMIT ?"
		args = append(args, q.Limit)
	}
	return s.sandboxes(ctx, where, args...)
}
