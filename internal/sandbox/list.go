package sandbox

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

// ListFilter narrows a list. Zero values mean everything.
type ListFilter struct {
	Metadata map[string]string // each pair must match
	Status   api.Status
	Template string // its name or an alias
	Limit    int
	Cursor   string // where the page before ended
}

// shown are the states that a list holds. What was killed or expired is gone;
// what ended by itself is shown with its reason until it is deleted.
var shown = []store.State{store.Creating, store.Running, store.Paused, store.Hibernated, store.Stopping, store.Failed}

// List describes the sandboxes of an owner, the newest first.
func (m *Manager) List(ctx context.Context, owner string, f ListFilter) ([]api.SandboxInfo, error) {
	list, _, err := m.Page(ctx, owner, f)
	return list, err
}

// Page is List with the cursor of the page behind it, "" when there is none.
func (m *Manager) Page(ctx context.Context, owner string, f ListFilter) (list []api.SandboxInfo, next string, err error) {
	if err := m.started(ctx); err != nil {
		return nil, "", err
	}
	q := store.Query{Owner: owner, Metadata: f.Metadata}
	if q.States, err = statesOf(f.Status); err != nil {
		return nil, "", err
	}
	if q.Template, err = m.nameOf(ctx, f.Template); err != nil {
		return nil, "", err
	}
	if q.After, err = parseCursor(f.Cursor); err != nil {
		return nil, "", err
	}
	if err := checkPairs("metadata", f.Metadata); err != nil {
		return nil, "", err
	}
	switch {
	case f.Limit < 0:
		return nil, "", fault.InvalidField("limit", "limit must not be negative, but is %d", f.Limit)
	case f.Limit > 0:
		q.Limit = f.Limit + 1 // tells whether there are more
	}
	rows, err := m.cfg.Store.List(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if f.Limit > 0 && len(rows) > f.Limit {
		rows = rows[:f.Limit]
		next = cursor(rows[f.Limit-1])
	}
	list = make([]api.SandboxInfo, 0, len(rows))
	for _, row := range rows {
		if b := m.box(row.ID); b != nil && row.State != store.Stopping && b.get().State == store.Stopping {
			continue // it is ending, and the store could not be told yet
		}
		list = append(list, m.info(row))
	}
	return list, next, nil
}

func statesOf(s api.Status) ([]store.State, error) {
	if s == "" {
		return shown, nil
	}
	var words []string
	for _, st := range shown {
		if status(st) == s {
			return []store.State{st}, nil
		}
		words = append(words, string(status(st)))
	}
	return nil, fault.InvalidField("status", "status must be one of %s, but is %.40q", strings.Join(words, ", "), s)
}

// nameOf is the name of a template that is given by an alias. One that is not
// there any more may have left sandboxes.
func (m *Manager) nameOf(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	list, err := m.tmpls.all(ctx, false)
	if err != nil {
		return "", err
	}
	for _, t := range list {
		for _, alias := range t.Info.Aliases {
			if alias == name {
				return t.Info.Name, nil
			}
		}
	}
	return name, nil
}

// A cursor is a position in a list, in a form that nobody is tempted to make
// up.
func cursor(row store.Sandbox) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", row.CreatedAt.UnixMilli(), row.ID))
}

func parseCursor(s string) (store.Position, error) {
	if s == "" {
		return store.Position{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	at, id, found := strings.Cut(string(raw), ".")
	ms, numberErr := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || numberErr != nil || id == "" || len(s) > 100 {
		return store.Position{}, fault.InvalidField("cursor", "cursor is none that this server gave").WithHint("take it from the X-Next-Cursor header of the page before")
	}
	return store.Position{CreatedAt: time.UnixMilli(ms), ID: id}, nil
}
