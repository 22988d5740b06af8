package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	poolEvery    = 5 * time.Second // looks at the pools without being woken
	poolBackoff  = time.Second     // after a first failure, doubled with each
	poolMaxPause = time.Minute
)

// pool holds the boxes that are nobody's yet. Manager.mu guards it.
type pool struct {
	restored []*box
	prepared []*box
}

func (p *pool) remove(b *box) {
	same := func(x *box) bool { return x == b }
	p.restored = slices.DeleteFunc(p.restored, same)
	p.prepared = slices.DeleteFunc(p.prepared, same)
}

func (p *pool) takeAll() []*box {
	all := slices.Concat(p.prepared, p.restored)
	p.prepared, p.restored = nil, nil
	return all
}

// take removes the oldest box of a template from a list.
func take(list *[]*box, t api.TemplateInfo) *box {
	i := slices.IndexFunc(*list, func(b *box) bool { return of(b, t) })
	if i < 0 {
		return nil
	}
	b := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return b
}

// of reports whether a box was made from this very template.
func of(b *box, t api.TemplateInfo) bool {
	row := b.get()
	return row.Template == t.Name && row.Digest == t.Digest
}

func (m *Manager) takeRestored(t api.TemplateInfo) *box {
	m.mu.Lock()
	defer m.mu.Unlock()
	return take(&m.pool.restored, t)
}

func (m *Manager) takePrepared(t api.TemplateInfo) *box {
	m.mu.Lock()
	defer m.mu.Unlock()
	return take(&m.pool.prepared, t)
}

// takeVictim gives up something of the pools, the dearest first.
func (m *Manager) takeVictim() *box {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range []*[]*box{&m.pool.restored, &m.pool.prepared} {
		if n := len(*list); n > 0 {
			b := (*list)[n-1]
			*list = (*list)[:n-1]
			return b
		}
	}
	return nil
}

func (m *Manager) wakePools() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// quiet reports whether no user is waiting for a sandbox, or has just got one
// and is about to use it.
func (m *Manager) quiet() bool {
	if !m.queue.idle() {
		return false
	}
	m.mu.Lock()
	since := time.Since(m.created)
	m.mu.Unlock()
	if since < m.cfg.PoolDelay {
		time.AfterFunc(m.cfg.PoolDelay-since, m.wakePools)
		return false
	}
	return true
}

// PoolSizes counts what waits in the pools, by template name.
func (m *Manager) PoolSizes() map[string]PoolSize {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]PoolSize{}
	for _, b := range m.pool.restored {
		s := out[b.get().Template]
		s.Restored++
		out[b.get().Template] = s
	}
	for _, b := range m.pool.prepared {
		s := out[b.get().Template]
		s.Prepared++
		out[b.get().Template] = s
	}
	return out
}

// fillPools keeps the pools at their sizes: one sandbox at a time, and only
// while no user waits for one and the host has memory to spare.
func (m *Manager) fillPools(ctx context.Context) {
	if len(m.cfg.Pool) == 0 {
		return
	}
	fails := 0
	for ctx.Err() == nil {
		worked, err := m.fillOne(ctx)
		if err != nil && ctx.Err() == nil {
			pause := min(poolBackoff<<min(fails, 10), poolMaxPause)
			fails++
			m.log.Error("the pool could not be filled", "error", err, "again_in", pause)
			sleep(ctx, pause)
			continue
		}
		fails = 0
		if worked {
			continue
		}
		select {
		case <-m.wake:
			sleep(ctx, m.cfg.PoolDelay)
		case <-time.After(poolEvery):
		case <-ctx.Done():
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// fillOne does one thing that the pools need, if any.
func (m *Manager) fillOne(ctx context.Context) (worked bool, err error) {
	list, err := m.tmpls.all(ctx, false)
	if err != nil {
		return false, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(t Template) bool { return t.Missing != "" })
	if b := m.takeStale(list); b != nil {
		return true, m.discard(ctx, b)
	}
	if !m.quiet() {
		m.cfg.Metrics.PoolYielded()
		return false, nil
	}
	if ok, _, err := m.roomy(2, 0); err != nil || !ok {
		return false, err
	}
	if m.spacious() != nil {
		return false, nil
	}
	for _, t := range list {
		want := m.cfg.Pool[t.Info.Name]
		have := m.poolOf(t.Info)
		switch {
		case have.Restored < want.Restored:
			return true, m.filled(t, "restored", m.addRestored(ctx, t))
		case have.Prepared < want.Prepared:
			return true, m.filled(t, "prepared", m.addPrepared(ctx, t))
		}
	}
	return false, nil
}

// filled counts what came into a pool, or did not.
func (m *Manager) filled(t Template, kind string, err error) error {
	if m.life.Err() != nil {
		return err // it was undone because the daemon ends
	}
	result := "added"
	if err != nil {
		result = "failed"
	}
	m.cfg.Metrics.PoolFilled(t.Info.Name, kind, result)
	return err
}

func (m *Manager) poolOf(t api.TemplateInfo) PoolSize {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s PoolSize
	for _, b := range m.pool.restored {
		if of(b, t) {
			s.Restored++
		}
	}
	for _, b := range m.pool.prepared {
		if of(b, t) {
			s.Prepared++
		}
	}
	return s
}

// takeStale gives up a box whose template was replaced or is wanted no more.
func (m *Manager) takeStale(list []Template) *box {
	m.mu.Lock()
	defer m.mu.Unlock()
	stale := func(b *box) bool {
		return !slices.ContainsFunc(list, func(t Template) bool { return of(b, t.Info) })
	}
	for _, from := range []*[]*box{&m.pool.restored, &m.pool.prepared} {
		if i := slices.IndexFunc(*from, stale); i >= 0 {
			b := (*from)[i]
			*from = slices.Delete(*from, i, i+1)
			return b
		}
	}
	return nil
}

func (m *Manager) addPrepared(ctx context.Context, t Template) error {
	done, err := m.work()
	if err != nil {
		return nil // closing
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CreateTimeout)
	defer cancel()
	b, err := m.prepare(ctx, m.newRow(t), t, t.Snapshot)
	if err != nil {
		return err
	}
	defer b.unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.prepared = append(m.pool.prepared, b)
	return nil
}

func (m *Manager) addRestored(ctx context.Context, t Template) error {
	done, err := m.work()
	if err != nil {
		return nil // closing
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CreateTimeout)
	defer cancel()
	b, err := m.preparedFor(ctx, t)
	if err != nil {
		return err
	}
	defer b.unlock()
	ctx, cancel = b.stoppable(ctx)
	defer cancel()
	client, err := m.restore(ctx, b, limitsOf(t), "")
	if err == nil {
		err = m.introduce(ctx, b, client, t)
	}
	if err == nil {
		row := b.get()
		row.State = store.Pooled
		err = m.save(ctx, b, row, store.Prepared)
	}
	if err != nil {
		return cause(err, m.finish(ctx, b, ending{reason: reasonUnused}))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.restored = append(m.pool.restored, b)
	return nil
}

// preparedFor gives a prepared box for the pool of restored ones, from the
// other pool when that has one to spare.
func (m *Manager) preparedFor(ctx context.Context, t Template) (*box, error) {
	if b := m.takePrepared(t.Info); b != nil {
		if err := b.lock(ctx); err != nil {
			return nil, cause(err, m.discard(ctx, b))
		}
		return b, nil
	}
	return m.prepare(ctx, m.newRow(t), t, t.Snapshot)
}
