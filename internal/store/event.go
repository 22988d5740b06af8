package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Event is something that happened to a sandbox, or to the daemon when it has
// no sandbox.
type Event struct {
	N         int64  // rises; given by the store
	Owner     string // "" is nobody: a sandbox in a pool, or the daemon
	SandboxID string
	At        time.Time
	Type      string
	Payload   map[string]any
}

// EventsOf says whose events are meant: those of one sandbox, or all of an
// owner's with those of the daemon.
type EventsOf struct {
	Owner     string
	SandboxID string
}

func (q EventsOf) where() (string, []any) {
	if q.SandboxID != "" {
		return "sandbox_id = ?", []any{q.SandboxID}
	}
	return "(owner = ? OR owner = '' AND sandbox_id = '')", []any{q.Owner}
}

// AddEvents keeps events, all or none, in their order.
func (s *Store) AddEvents(ctx context.Context, events []Event) (err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("keeping events: %w", kind(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("keeping events: %w", kind(err)), ignoreDone(tx.Rollback()))
		}
	}()
	for _, e := range events {
		payload := []byte("{}")
		if len(e.Payload) > 0 {
			if payload, err = json.Marshal(e.Payload); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO events (owner, sandbox_id, at, type, payload) VALUES (?, ?, ?, ?, ?)",
			e.Owner, e.SandboxID, millis(e.At), e.Type, string(payload)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// EventsAfter gives the events above a number, the oldest first, at most limit
// of them.
func (s *Store) EventsAfter(ctx context.Context, q EventsOf, after int64, limit int) ([]Event, error) {
	where, args := q.where()
	return s.events(ctx, "WHERE "+where+" AND n > ? ORDER BY n LIMIT ?", append(args, after, limit)...)
}

// LastEvents gives the last events, the oldest of them first.
func (s *Store) LastEvents(ctx context.Context, q EventsOf, limit int) ([]Event, error) {
	where, args := q.where()
	list, err := s.events(ctx, "WHERE "+where+" ORDER BY n DESC LIMIT ?", append(args, limit)...)
	slices.Reverse(list)
	return list, err
}

func (s *Store) events(ctx context.Context, rest string, args ...any) ([]Event, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT n, owner, sandbox_id, at, type, payload FROM events "+rest, args...)
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	defer rows.Close()
	var out []Event
	for rows.Next() {
		var e Event
		var at int64
		var payload []byte
		if err := rows.Scan(&e.N, &e.Owner, &e.SandboxID, &at, &e.Type, &payload); err != nil {
			return nil, fmt.Errorf("reading events: %w", err)
		}
		if err := json.Unmarshal(payload, &e.Payload); err != nil {
			return nil, fmt.Errorf("reading event %d: %w", e.N, err)
		}
		e.At = fromMillis(at)
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	return out, nil
}

// LastEvent is the number of the newest event there ever was, 0 before the first.
func (s *Store) LastEvent(ctx context.Context) (n int64, err error) {
	if err := s.read.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'").Scan(&n); err != nil {
		return 0, fmt.Errorf("reading the number of the last event: %w", err)
	}
	return n, nil
}

// ForgottenEvents is the number up to which events of an owner may be missing
// because they are no longer kept, 0 when all are there.
func (s *Store) ForgottenEvents(ctx context.Context, owner string) (through int64, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT coalesce(max(through), 0) FROM events_forgotten WHERE owner IN (?, '')", owner).Scan(&through)
	if err != nil {
		return 0, fmt.Errorf("reading which events are forgotten: %w", err)
	}
	return through, nil
}

// PruneEvents forgets the events from before a time, and of each owner all but
// the newest.
func (s *Store) PruneEvents(ctx context.Context, before time.Time, keep int) (err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("forgetting old events: %w", kind(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("forgetting old events: %w", kind(err)), ignoreDone(tx.Rollback()))
		}
	}()
	const gone = `WITH many AS (
			SELECT owner, n, row_number() OVER (PARTITION BY owner ORDER BY n DESC) AS place FROM events
			WHERE owner IN (SELECT owner FROM events GROUP BY owner HAVING count(*) > ?)
		), gone AS (SELECT owner, n FROM events WHERE at < ? UNION SELECT owner, n FROM many WHERE place > ?) `
	args := []any{keep, millis(before), keep}
	if _, err := tx.ExecContext(ctx, gone+`INSERT INTO events_forgotten (owner, through) SELECT owner, max(n) FROM gone WHERE true GROUP BY owner
		ON CONFLICT (owner) DO UPDATE SET through = max(through, excluded.through)`, args...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, gone+"DELETE FROM events WHERE n IN (SELECT n FROM gone)", args...); err != nil {
		return err
	}
	return tx.Commit()
}
