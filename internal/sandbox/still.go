package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	stillLook  = 50 * time.Millisecond // between looks whether cells have ended
	stillDrain = time.Second           // for calls that cannot be repeated

	announceTime = 3 * time.Second
)

// still takes the turn of a box at a moment when no cell runs in it and no call
// is on its way that could not be made again; calls that come meanwhile wait.
// It waits for such a moment for a while and then gives up, unless what runs is
// to be carried. The functions let calls go on, and give the turn back.
func (m *Manager) still(ctx context.Context, b *box, carry bool) (goOn, leave func(), err error) {
	deadline := time.Now().Add(m.cfg.SettleTime)
	for {
		if err := b.lock(ctx); err != nil {
			return nil, nil, err
		}
		if b.get().State != store.Running || b.inst == nil {
			return func() {}, b.unlock, nil
		}
		goOn = b.shut()
		running, err := m.cellsRun(ctx, b)
		if err == nil && (carry || running == 0) {
			unrepeatable := b.drain(ctx, stillDrain)
			if carry || unrepeatable == 0 {
				return goOn, func() { goOn(); b.unlock() }, nil
			}
			running = unrepeatable
		}
		goOn()
		b.unlock()
		if err != nil {
			return nil, nil, err
		}
		if time.Now().After(deadline) {
			return nil, nil, fault.New(api.CodeConflict, "sandbox %s has been busy for %s: %d cells or uploads were still running", b.id, m.cfg.SettleTime, running).
				WithHint("wait for them, interrupt them, or set carry_running so that copies go on with them")
		}
		select {
		case <-time.After(stillLook):
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// cellsRun counts the contexts in which a cell runs or waits.
func (m *Manager) cellsRun(ctx context.Context, b *box) (int, error) {
	n := 0
	err := m.ask(ctx, b, func(client *guest.Client) error {
		ctx, cancel := context.WithTimeout(ctx, m.cfg.LinkWait)
		defer cancel()
		list, err := client.Contexts(ctx)
		for _, c := range list {
			if c.State == "busy" || c.Queued > 0 {
				n++
			}
		}
		return err
	})
	return n, err
}

// announce lets programs in a running sandbox get ready for an image. It is
// for them, so what fails is not the caller's trouble.
func (m *Manager) announce(ctx context.Context, b *box) {
	if b.get().State != store.Running || b.inst == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	client, err := b.link.Client(ctx)
	if err == nil {
		err = client.BeforeSnapshot(ctx)
	}
	if err != nil && !errors.Is(err, fault.NotFound) { // an older agent knows of no hooks
		m.log.WarnContext(ctx, "programs in a sandbox could not be told of a snapshot", "sandbox", b.id, "error", err)
	}
}

// shut makes calls to the box wait until the function is called.
func (b *box) shut() (open func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gate := make(chan struct{})
	b.gate = gate
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.gate == gate {
			b.gate = nil
			close(gate)
		}
	}
}

// drain waits for the calls that cannot be repeated, and gives the number of
// those that did not end in time.
func (b *box) drain(ctx context.Context, limit time.Duration) int {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		b.mu.Lock()
		n, changed := b.once, b.changed
		b.mu.Unlock()
		if n == 0 {
			return 0
		}
		select {
		case <-changed:
		case <-timer.C:
			return n
		case <-ctx.Done():
			return n
		}
	}
}
