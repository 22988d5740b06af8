package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Event is something that happened to a sandbox.
type Event struct {
	SandboxID string
	At        time.Time
	Type      string // "created", "claimed", "ended", "adopted", …
	Detail    string
}

// AddEvent notes an event.
func (s *Store) AddEvent(ctx context.Context, e Event) error {
	if _, err := s.write.ExecContext(ctx, "INSERT INTO sandbox_events (sandbox_id, at, type, detail) VALUES (?, ?, ?, ?)",
		e.SandboxID, millis(e.At), e.Type, e.Detail); err != nil {
		return fmt.Errorf("noting an event of sandbox %s: %w", e.SandboxID, err)
	}
	return nil
}

// Events gives the last events of a sandbox, the oldest first.
func (s *Store) Events(ctx context.Context, sandboxID string, last int) ([]Event, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT sandbox_id, at, type, detail FROM sandbox_events WHERE sandbox_id = ? ORDER BY n DESC LIMIT ?", sandboxID, last)
	if err != nil {
		return nil, fmt.Errorf("reading events of sandbox %s: %w", sandboxID, err)
	}
	defer rows.Close()
	var out []Event
	for rows.Next() {
		var e Event
		var at int64
		if err := rows.Scan(&e.SandboxID, &at, &e.Type, &e.Detail); err != nil {
			return nil, fmt.Errorf("reading events of sandbox %s: %w", sandboxID, err)
		}
		e.At = fromMillis(at)
		out = append(out, e)
	}
	slices.Reverse(out)
	return out, rows.Err()
}
