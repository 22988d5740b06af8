package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	// idempotent is how long an idempotency key stands for its sandbox.
	idempotent = 24 * time.Hour
	maxOnceKey = 255
)

// once is what an idempotency key asks for.
type once struct {
	key    string
	digest []byte
}

// createOnce makes a sandbox unless an earlier create with the same key has.
// Creates with one key wait for each other; that of a client which went away is
// undone first.
func (m *Manager) createOnce(ctx context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error) {
	o, err := onceOf(req)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	if err := m.started(ctx); err != nil {
		return api.SandboxInfo{}, err
	}
	done, err := m.onces.enter(ctx, owner+"\x00"+o.key)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	defer done()
	info, err := m.earlier(ctx, owner, o)
	if !errors.Is(err, store.ErrNotFound) {
		return info, err
	}
	return m.createNew(ctx, owner, req, o)
}

func onceOf(req api.CreateSandboxRequest) (*once, error) {
	if len(req.IdempotencyKey) > maxOnceKey {
		return nil, fault.InvalidField("Idempotency-Key", "Idempotency-Key is longer than %d bytes", maxOnceKey)
	}
	for _, c := range []byte(req.IdempotencyKey) {
		if c <= ' ' || c > '~' {
			return nil, fault.InvalidField("Idempotency-Key", "Idempotency-Key holds something else than visible ASCII").WithHint("a UUID will do")
		}
	}
	raw, err := json.Marshal(req) // in one order, whatever that of the request was
	if err != nil {
		return nil, fmt.Errorf("encoding a create: %w", err)
	}
	sum := sha256.Sum256(raw)
	return &once{req.IdempotencyKey, sum[:]}, nil
}

// earlier gives the sandbox that a key stands for, store.ErrNotFound when it
// stands for none.
func (m *Manager) earlier(ctx context.Context, owner string, o *once) (api.SandboxInfo, error) {
	c, err := m.cfg.Store.CreateOf(ctx, owner, o.key)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	if m.cfg.Now().Sub(c.At) >= idempotent {
		return api.SandboxInfo{}, store.ErrNotFound
	}
	row, err := m.cfg.Store.Sandbox(ctx, c.SandboxID)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	switch {
	case row.EndReason == reasonCreate: // it never was usable
		return api.SandboxInfo{}, store.ErrNotFound
	case !bytes.Equal(c.Digest, o.digest):
		return api.SandboxInfo{}, fault.New(api.CodeConflict, "this Idempotency-Key was used for a sandbox with other options: %s", row.ID).
			WithHint("use a new key for each sandbox")
	case row.State == store.Stopping || row.State == store.Deleted || row.State == store.Failed:
		return api.SandboxInfo{}, fault.New(api.CodeConflict, "the sandbox %s that this Idempotency-Key made has ended: %s", row.ID, reasonWords(row.EndReason)).
			WithHint("use a new key for each sandbox")
	}
	if b := m.box(row.ID); b != nil {
		row = b.get()
	}
	return m.info(row), nil
}

// remember keeps what an idempotency key stands for, before the sandbox is its
// user's: if the daemon dies in between, the next one ends the sandbox, and the
// key is free.
func (m *Manager) remember(ctx context.Context, b *box, w wish) error {
	if w.once == nil {
		return nil
	}
	return m.cfg.Store.AddCreate(context.WithoutCancel(ctx), store.Create{
		Owner: w.owner, Key: w.once.key, Digest: w.once.digest, SandboxID: b.id, At: m.cfg.Now(),
	})
}

// rooms lets one at a time into each room of many.
type rooms struct {
	mu   sync.Mutex
	open map[string]*room
}

type room struct {
	turn chan struct{}
	n    int // inside or waiting
}

// enter waits until the room is free. The function leaves it.
func (r *rooms) enter(ctx context.Context, name string) (leave func(), err error) {
	r.mu.Lock()
	if r.open == nil {
		r.open = map[string]*room{}
	}
	one := r.open[name]
	if one == nil {
		one = &room{turn: make(chan struct{}, 1)}
		r.open[name] = one
	}
	one.n++
	r.mu.Unlock()
	gone := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if one.n--; one.n == 0 {
			delete(r.open, name)
		}
	}
	select {
	case one.turn <- struct{}{}:
		return func() { <-one.turn; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, context.Cause(ctx)
	}
}
