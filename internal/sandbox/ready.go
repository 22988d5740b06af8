package sandbox

import (
	"context"
	"errors"

	"github.com/pandastack/pandastack/internal/driver"
)

// Taken reports whether the sandboxes of the last daemon are found again, so
// that calls are answered.
func (m *Manager) Taken() bool {
	select {
	case <-m.ready:
		return true
	default:
		return false
	}
}

// Usable sorts the templates: those that sandboxes can be made from, and those
// that have to be built again first.
func (m *Manager) Usable(ctx context.Context) (good, stale []string, err error) {
	list, err := m.tmpls.all(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	r, ok := m.cfg.Driver.(driver.Restorer)
	for _, t := range list {
		if ok && errors.Is(r.Restorable(ctx, t.Snapshot), driver.ErrStale) {
			stale = append(stale, t.Info.Name)
			continue
		}
		good = append(good, t.Info.Name)
	}
	return good, stale, nil
}
