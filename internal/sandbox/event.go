package sandbox

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

// Journal keeps what happens to sandboxes. Noting does not wait.
type Journal interface {
	Note(e store.Event)
}

type noJournal struct{}

func (noJournal) Note(store.Event) {}

// What a sandbox can make the journal take: programs inside can cause events,
// and those of others must not be lost for it.
const (
	eventRate  = 2 // a second, when the burst is used up
	eventBurst = 50
)

// Note keeps an event of a sandbox that exists, or existed a moment ago and
// was this owner's.
func (m *Manager) Note(owner, id, kind string, payload map[string]any) {
	if b := m.box(id); b != nil {
		m.note(b, kind, payload)
		return
	}
	m.noteRow(store.Sandbox{ID: id, Owner: owner}, kind, payload)
}

// note keeps an event unless the sandbox has had too many lately. The next one
// that is kept says how many were not.
func (m *Manager) note(b *box, kind string, payload map[string]any) {
	row := b.get()
	now := m.cfg.Now()
	b.mu.Lock()
	if !b.events.AllowN(now, 1) {
		b.suppressed++
		b.mu.Unlock()
		return
	}
	n := b.suppressed
	b.suppressed = 0
	b.mu.Unlock()
	if n > 0 {
		m.noteRow(row, api.LifeSuppressed, map[string]any{"count": n})
	}
	m.noteRow(row, kind, payload)
}

// noteRow keeps an event of a sandbox, whatever came before.
func (m *Manager) noteRow(row store.Sandbox, kind string, payload map[string]any) {
	m.cfg.Journal.Note(store.Event{Owner: row.Owner, SandboxID: row.ID, At: m.cfg.Now(), Type: kind, Payload: payload})
}

func newEventLimit() *rate.Limiter { return rate.NewLimiter(eventRate, eventBurst) }

// EventsOf says which events of a sandbox an owner may read: those of one that
// ended, too, as long as it is known.
func (m *Manager) EventsOf(ctx context.Context, owner, id string) (store.EventsOf, error) {
	b, err := m.find(ctx, owner, id)
	if err != nil {
		return store.EventsOf{}, err
	}
	var row store.Sandbox
	if b != nil {
		row = b.get()
	} else if row, err = m.row(ctx, owner, id); err != nil {
		return store.EventsOf{}, err
	}
	return store.EventsOf{Owner: row.Owner, SandboxID: row.ID}, nil
}

// watcher notes what becomes of a sandbox's link.
type watcher struct {
	m *Manager
	b *box
}

var _ guest.Watcher = watcher{}

// LinkUp implements guest.Watcher.
func (w watcher) LinkUp(first bool) {
	if first {
		return
	}
	if w.b.mended() {
		return
	}
	w.m.cfg.Metrics.LinkRestored()
	if w.shown() {
		w.m.note(w.b, api.LifeLinkRestored, nil)
	}
}

// LinkDown implements guest.Watcher.
func (w watcher) LinkDown() {
	if w.b.isCut() {
		return
	}
	w.m.cfg.Metrics.LinkLost()
	if w.shown() {
		w.m.note(w.b, api.LifeLinkLost, nil)
	}
}

// LinkRefused implements guest.Watcher.
func (w watcher) LinkRefused() { w.m.cfg.Metrics.LinkRefused() }

// shown tells whether somebody owns the sandbox and it is meant to be up.
func (w watcher) shown() bool {
	row := w.b.get()
	return row.Owner != "" && (row.State == store.Running || row.State == store.Paused)
}

// cutting says that the link is about to break on purpose, or will not.
func (b *box) cutting(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = yes
}

func (b *box) isCut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cut
}

// mended says whether the link that is up again was broken on purpose.
func (b *box) mended() (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, b.cut = b.cut, false
	return was
}
