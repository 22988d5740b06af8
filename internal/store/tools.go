package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// scanTools reads the JSON of tools, "" for none.
func scanTools(raw, of string) (*api.Tools, error) {
	if raw == "" {
		return nil, nil
	}
	var t api.Tools
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		return nil, fmt.Errorf("tools of %s: %w", of, err)
	}
	return &t, nil
}

func toolsValue(t *api.Tools) (string, error) {
	if t == nil {
		return "", nil
	}
	raw, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("encoding tools: %w", err)
	}
	return string(raw), nil
}

// Approval is a call that waits for a decision, or had one.
type Approval struct {
	api.Approval
	Owner string
	Key   string // of the call, in its sandbox
	Begun bool   // it was approved, and the call began
}

// Decision is what became of an Approval.
type Decision struct {
	Status string
	Reason string
	By     string
	At     time.Time
}

// ErrFull says that there are as many as there may be.
var ErrFull = errors.New("there are too many already")

// AddApproval writes one that waits, and forgets those of its sandbox that were
// decided but the last keep. ErrFull when most of them wait.
func (s *Store) AddApproval(ctx context.Context, a Approval, most, keep int) error {
	if err := s.addApproval(ctx, a, most, keep); err != nil {
		return fmt.Errorf("keeping an approval: %w", err)
	}
	return nil
}

func (s *Store) addApproval(ctx context.Context, a Approval, most, keep int) error {
	body, err := json.Marshal(a.Approval)
	if err != nil {
		return err
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to undo
	var pending int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM approvals WHERE sandbox = ? AND status = ?", a.SandboxID, api.ApprovalPending).Scan(&pending); err != nil {
		return err
	}
	if pending >= most {
		return ErrFull
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM approvals WHERE id IN (
		SELECT id FROM approvals WHERE sandbox = ? AND status <> ? ORDER BY created_at DESC, id LIMIT -1 OFFSET ?)`, a.SandboxID, api.ApprovalPending, keep); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO approvals (id, owner, sandbox, agent, key, status, begun, created_at, expires_at, body) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`,
		a.ID, a.Owner, a.SandboxID, a.AgentID, a.Key, a.Status, millis(a.CreatedAt), millis(a.ExpiresAt), string(body)); err != nil {
		return err
	}
	return tx.Commit()
}

const approvalColumns = "owner, key, begun, body"

func scanApproval(row interface{ Scan(...any) error }) (a Approval, err error) {
	var body string
	if err := row.Scan(&a.Owner, &a.Key, &a.Begun, &body); err != nil {
		return a, err
	}
	return a, json.Unmarshal([]byte(body), &a.Approval)
}

// Approval finds one of an owner, or ErrNotFound.
func (s *Store) Approval(ctx context.Context, owner, id string) (Approval, error) {
	return s.approval(s.read.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approvals WHERE id = ? AND owner = ?", id, owner))
}

// ApprovalOf finds that of a call, or ErrNotFound.
func (s *Store) ApprovalOf(ctx context.Context, sandbox, key string) (Approval, error) {
	return s.approval(s.read.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approvals WHERE sandbox = ? AND key = ?", sandbox, key))
}

func (s *Store) approval(row *sql.Row) (Approval, error) {
	a, err := scanApproval(row)
	if errors.Is(err, sql.ErrNoRows) {
		return a, ErrNotFound
	}
	if err != nil {
		return a, fmt.Errorf("reading an approval: %w", err)
	}
	return a, nil
}

// Approvals lists those of an owner, the oldest first. Empty strings are any.
func (s *Store) Approvals(ctx context.Context, owner, sandbox, agent, status string, limit int) (out []Approval, err error) {
	rows, err := s.read.QueryContext(ctx, "SELECT "+approvalColumns+` FROM approvals
		WHERE owner = ? AND (? = '' OR sandbox = ?) AND (? = '' OR agent = ?) AND (? = '' OR status = ?) ORDER BY created_at, id LIMIT ?`,
		owner, sandbox, sandbox, agent, agent, status, status, limit)
	if err != nil {
		return nil, fmt.Errorf("listing approvals: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		a, err := scanApproval(rows)
		if err != nil {
			return nil, fmt.Errorf("reading an approval: %w", err)
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// DecideApproval writes a decision. The first one counts: for any other it gives
// that, with ErrStale.
func (s *Store) DecideApproval(ctx context.Context, id string, d Decision) (a Approval, err error) {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return a, fmt.Errorf("deciding an approval: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to undo
	a, err = scanApproval(tx.QueryRowContext(ctx, "SELECT "+approvalColumns+" FROM approvals WHERE id = ?", id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return a, ErrNotFound
	case err != nil:
		return a, fmt.Errorf("deciding an approval: %w", err)
	case a.Status != api.ApprovalPending:
		return a, ErrStale
	}
	at := d.At.UTC().Truncate(time.Millisecond)
	a.Status, a.Reason, a.By, a.DecidedAt = d.Status, d.Reason, d.By, &at
	body, err := json.Marshal(a.Approval)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE approvals SET status = ?, body = ? WHERE id = ?", a.Status, string(body), id)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return a, fmt.Errorf("deciding an approval: %w", err)
	}
	return a, nil
}

// BeginApproved notes that the call of an approval begins: once, or ErrStale.
func (s *Store) BeginApproved(ctx context.Context, id string) error {
	res, err := s.write.ExecContext(ctx, "UPDATE approvals SET begun = 1 WHERE id = ? AND status = ? AND begun = 0", id, api.ApprovalApproved)
	if err != nil {
		return fmt.Errorf("beginning an approved call: %w", err)
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return errors.Join(ErrStale, err)
	}
	return nil
}

// CancelApprovals ends those of a sandbox that still wait.
func (s *Store) CancelApprovals(ctx context.Context, sandbox string, now time.Time) error {
	return s.endApprovals(ctx, api.ApprovalCancelled, now, "sandbox = ?", sandbox)
}

// ExpireApprovals ends those whose time is over.
func (s *Store) ExpireApprovals(ctx context.Context, now time.Time) error {
	return s.endApprovals(ctx, api.ApprovalExpired, now, "expires_at <= ?", millis(now))
}

func (s *Store) endApprovals(ctx context.Context, status string, now time.Time, where string, arg any) error {
	rows, err := s.read.QueryContext(ctx, "SELECT id FROM approvals WHERE status = ? AND "+where, api.ApprovalPending, arg)
	if err != nil {
		return fmt.Errorf("ending approvals: %w", err)
	}
	var ids []string
	for rows.Next() {
		var id string
		if err = rows.Scan(&id); err != nil {
			break
		}
		ids = append(ids, id)
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	for _, id := range ids {
		if _, derr := s.DecideApproval(ctx, id, Decision{Status: status, At: now}); derr != nil && !errors.Is(derr, ErrStale) {
			err = errors.Join(err, derr)
		}
	}
	return err
}
