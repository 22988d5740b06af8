package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// State is where a sandbox is in its life. The words that users know are
// api.Status; Prepared and Pooled are nobody's sandboxes and never shown.
type State string

// The states.
const (
	Prepared   State = "prepared" // created by the driver, not restored
	Pooled     State = "pooled"   // restored, its guest answers, nobody's yet
	Creating   State = "creating"
	Running    State = "running"
	Paused     State = "paused"
	Hibernated State = "hibernated" // only an image is left, from which it wakes
	Stopping   State = "stopping"
	Deleted    State = "deleted" // ended as it should
	Failed     State = "failed"  // ended by itself
)

// Sandbox is what is kept of a sandbox.
type Sandbox struct {
	ID           string
	Owner        string
	State        State
	Template     string
	Digest       string // of the template
	Driver       string
	CPU          float64
	MemoryMB     int
	DiskMB       int
	PIDs         int
	Metadata     map[string]string
	FromSnapshot string
	Persistent   bool
	TTL          time.Duration // whole seconds
	IdleTimeout  time.Duration // whole seconds
	CreatedAt    time.Time
	ExpiresAt    time.Time
	UsedAt       time.Time
	EndedAt      time.Time
	EndReason    string
	EndDetail    string // for the operator
	Generation   int
	BootMS       float64
	BootMode     string
	ForkedFrom   string    // the sandbox that it is a copy of
	SleptAt      time.Time // since when it is hibernated
	Ports        []Port    // that users have named, by number
	HostID       string    // the driver's id of it, when that is not its own; see OnHost
	Network      Network
	Tools        *api.Tools // nil: none
}

// Port is what users have said of a port of a sandbox.
type Port struct {
	Port   int    `json:"port"`
	Label  string `json:"label,omitempty"`
	Public bool   `json:"public,omitempty"` // anybody may see it
}

// OnHost is the id under which the driver knows a sandbox, and the name of its
// link's folder. A sandbox that woke up in one of the pool goes by its id there.
func (s *Sandbox) OnHost() string { return cmp.Or(s.HostID, s.ID) }

const columns = `id, owner, state, template, digest, driver, cpu, memory_mb, disk_mb, pids, metadata, from_snapshot,
	persistent, ttl_seconds, idle_timeout_seconds, created_at, expires_at, used_at, ended_at, end_reason, end_detail,
	generation, boot_ms, boot_mode, forked_from, slept_at, ports, host_id, network, tools`

func (s *Sandbox) values() ([]any, error) {
	meta, err := json.Marshal(s.Metadata)
	if err != nil {
		return nil, fmt.Errorf("encoding metadata: %w", err)
	}
	ports, err := json.Marshal(s.Ports)
	if err != nil {
		return nil, fmt.Errorf("encoding ports: %w", err)
	}
	network, err := networkValue(s.Network)
	if err != nil {
		return nil, err
	}
	tools, err := toolsValue(s.Tools)
	if err != nil {
		return nil, err
	}
	return []any{
		s.ID, s.Owner, string(s.State), s.Template, s.Digest, s.Driver, s.CPU, s.MemoryMB, s.DiskMB, s.PIDs, string(meta), s.FromSnapshot,
		s.Persistent, int64(s.TTL / time.Second), int64(s.IdleTimeout / time.Second), millis(s.CreatedAt), millis(s.ExpiresAt), millis(s.UsedAt),
		millis(s.EndedAt), s.EndReason, s.EndDetail, s.Generation, s.BootMS, s.BootMode,
		s.ForkedFrom, millis(s.SleptAt), string(ports), s.HostID, network, tools,
	}, nil
}

func scanSandbox(scan func(...any) error) (Sandbox, error) {
	var (
		s                           Sandbox
		state, meta, ports, network string
		tools                       string
		ttl, idle                   int64
		created, expires, used, end int64
		slept                       int64
	)
	err := scan(&s.ID, &s.Owner, &state, &s.Template, &s.Digest, &s.Driver, &s.CPU, &s.MemoryMB, &s.DiskMB, &s.PIDs, &meta, &s.FromSnapshot,
		&s.Persistent, &ttl, &idle, &created, &expires, &used, &end, &s.EndReason, &s.EndDetail, &s.Generation, &s.BootMS, &s.BootMode,
		&s.ForkedFrom, &slept, &ports, &s.HostID, &network, &tools)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(meta), &s.Metadata); err != nil {
		return s, fmt.Errorf("metadata of %s: %w", s.ID, err)
	}
	if err := json.Unmarshal([]byte(ports), &s.Ports); err != nil {
		return s, fmt.Errorf("ports of %s: %w", s.ID, err)
	}
	if s.Network, err = scanNetwork(network, s.ID); err != nil {
		return s, err
	}
	if s.Tools, err = scanTools(tools, s.ID); err != nil {
		return s, err
	}
	s.State = State(state)
	s.TTL, s.IdleTimeout = time.Duration(ttl)*time.Second, time.Duration(idle)*time.Second
	s.CreatedAt, s.ExpiresAt, s.UsedAt, s.EndedAt = fromMillis(created), fromMillis(expires), fromMillis(used), fromMillis(end)
	s.SleptAt = fromMillis(slept)
	return s, nil
}

// AddSandbox writes the row of a sandbox that is about to be made.
func (s *Store) AddSandbox(ctx context.Context, sb Sandbox) error {
	v, err := sb.values()
	if err != nil {
		return err
	}
	if _, err := s.write.ExecContext(ctx, "INSERT INTO sandboxes ("+columns+") VALUES ("+marks(len(v))+")", v...); err != nil {
		return fmt.Errorf("adding sandbox %s: %w", sb.ID, err)
	}
	return nil
}

// ReplaceSandbox writes a row anew if it is still in one of these states, and
// returns ErrStale if not. In this way two that want the same sandbox cannot
// both have it, whatever they believe.
func (s *Store) ReplaceSandbox(ctx context.Context, sb Sandbox, from ...State) error {
	v, err := sb.values()
	if err != nil {
		return err
	}
	names := strings.Split(columns, ",")
	var set []string
	for _, n := range names[1:] {
		set = append(set, strings.TrimSpace(n)+" = ?")
	}
	args := append(v[1:], sb.ID)
	for _, f := range from {
		args = append(args, string(f))
	}
	res, err := s.write.ExecContext(ctx, "UPDATE sandboxes SET "+strings.Join(set, ", ")+" WHERE id = ? AND state IN ("+marks(len(from))+")", args...)
	return changed(res, err, "changing sandbox "+sb.ID)
}

// Extend gives a sandbox that has not expired yet a new time to live. Expiry
// and renewal meet in this one statement, so only one of them wins.
func (s *Store) Extend(ctx context.Context, sb Sandbox, now time.Time) error {
	res, err := s.write.ExecContext(ctx, `UPDATE sandboxes SET ttl_seconds = ?, idle_timeout_seconds = ?, persistent = ?, expires_at = ?
		WHERE id = ? AND (state IN ('running', 'paused', 'hibernated') AND expires_at > ? OR state = 'hibernated' AND persistent)`,
		int64(sb.TTL/time.Second), int64(sb.IdleTimeout/time.Second), sb.Persistent, millis(sb.ExpiresAt), sb.ID, millis(now))
	return changed(res, err, "extending sandbox "+sb.ID)
}

// Touch notes when a sandbox was last used.
func (s *Store) Touch(ctx context.Context, id string, at time.Time) error {
	if _, err := s.write.ExecContext(ctx, "UPDATE sandboxes SET used_at = max(used_at, ?) WHERE id = ?", millis(at), id); err != nil {
		return fmt.Errorf("touching sandbox %s: %w", id, err)
	}
	return nil
}

// Shift moves the times that decide on what happens, after the host's clock
// was set. Those that only tell what was, stay.
func (s *Store) Shift(ctx context.Context, by time.Duration) error {
	_, err := s.write.ExecContext(ctx, `UPDATE sandboxes SET
		expires_at = CASE expires_at WHEN 0 THEN 0 ELSE expires_at + ?1 END,
		used_at    = CASE used_at WHEN 0 THEN 0 ELSE used_at + ?1 END,
		slept_at   = CASE slept_at WHEN 0 THEN 0 ELSE slept_at + ?1 END,
		ended_at   = CASE ended_at WHEN 0 THEN 0 ELSE ended_at + ?1 END`, by.Milliseconds())
	if err == nil {
		_, err = s.write.ExecContext(ctx, "UPDATE snapshots SET expires_at = expires_at + ? WHERE expires_at > 0", by.Milliseconds())
	}
	if err != nil {
		return fmt.Errorf("moving the times of sandboxes and snapshots by %s: %w", by, err)
	}
	return nil
}

// Sandbox reads a row.
func (s *Store) Sandbox(ctx context.Context, id string) (Sandbox, error) {
	sb, err := scanSandbox(s.read.QueryRowContext(ctx, "SELECT "+columns+" FROM sandboxes WHERE id = ?", id).Scan)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return sb, ErrNotFound
	case err != nil:
		return sb, fmt.Errorf("reading sandbox %s: %w", id, err)
	}
	return sb, nil
}

// SandboxesOf lists an owner's sandboxes in these states, the newest first; ""
// means everybody's.
func (s *Store) SandboxesOf(ctx context.Context, owner string, states ...State) ([]Sandbox, error) {
	where, args := "state IN ("+marks(len(states))+")", []any{}
	for _, st := range states {
		args = append(args, string(st))
	}
	if owner != "" {
		where += " AND owner = ?"
		args = append(args, owner)
	}
	return s.sandboxes(ctx, where+" ORDER BY created_at DESC, id", args...)
}

// Expired lists what should have ended, or gone to sleep, by now. A persistent
// one that sleeps has no such time.
func (s *Store) Expired(ctx context.Context, now time.Time) ([]Sandbox, error) {
	return s.sandboxes(ctx, "(state IN ('running', 'paused') OR state = 'hibernated' AND NOT persistent) AND expires_at <= ? ORDER BY expires_at", millis(now))
}

func (s *Store) sandboxes(ctx context.Context, where string, args ...any) ([]Sandbox, error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+columns+" FROM sandboxes WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading sandboxes: %w", err)
	}
	defer rows.Close()
	var out []Sandbox
	for rows.Next() {
		sb, err := scanSandbox(rows.Scan)
		if err != nil {
			return nil, fmt.Errorf("reading sandboxes: %w", err)
		}
		out = append(out, sb)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading sandboxes: %w", err)
	}
	return out, nil
}

// Digests names the templates that sandboxes in these states were made from.
func (s *Store) Digests(ctx context.Context, states ...State) (map[string]bool, error) {
	list, err := s.SandboxesOf(ctx, "", states...)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, sb := range list {
		out[sb.Digest] = true
	}
	return out, nil
}

// RemoveSandbox removes a row that no user ever saw.
func (s *Store) RemoveSandbox(ctx context.Context, id string) error {
	if _, err := s.write.ExecContext(ctx, "DELETE FROM sandboxes WHERE id = ?", id); err != nil {
		return fmt.Errorf("removing sandbox %s: %w", id, err)
	}
	return nil
}

// Purge forgets sandboxes and approvals that ended before a time, and what the
// networks of sandboxes remembered that have ended.
func (s *Store) Purge(ctx context.Context, before time.Time) error {
	if err := s.forgetNetworkStates(ctx); err != nil { // while their rows are there
		return err
	}
	if _, err := s.write.ExecContext(ctx, "DELETE FROM sandboxes WHERE state IN ('deleted', 'failed') AND ended_at < ?", millis(before)); err != nil {
		return fmt.Errorf("forgetting old sandboxes: %w", err)
	}
	if _, err := s.write.ExecContext(ctx, "DELETE FROM approvals WHERE expires_at < ?", millis(before)); err != nil {
		return fmt.Errorf("forgetting old approvals: %w", err)
	}
	return nil
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

func changed(res sql.Result, err error, what string) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if n == 0 {
		return fmt.Errorf("%s: %w", what, ErrStale)
	}
	return nil
}

// Expire marks a sandbox as ending if its time is over at that moment, and
// returns ErrStale if it was renewed.
func (s *Store) Expire(ctx context.Context, id, reason string, now time.Time) error {
	res, err := s.write.ExecContext(ctx, `UPDATE sandboxes SET state = 'stopping', end_reason = ?
		WHERE id = ? AND state IN ('running', 'paused', 'hibernated') AND expires_at <= ?`, reason, id, millis(now))
	return changed(res, err, "expiring sandbox "+id)
}
