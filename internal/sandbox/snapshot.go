package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/nearest"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	maxSnapshotName = 128                       // bytes
	maxSnapshotTTL  = 10 * 365 * 24 * time.Hour // that a snapshot can be kept for; one without stays
)

// Snapshot keeps memory, files and processes of a sandbox as they are now. The
// sandbox goes on.
func (m *Manager) Snapshot(ctx context.Context, owner, id string, req api.SnapshotRequest) (api.Snapshot, error) {
	if err := checkSnapshotName(req.Name); err != nil {
		return api.Snapshot{}, err
	}
	if err := checkPairs("metadata", req.Metadata); err != nil {
		return api.Snapshot{}, err
	}
	if err := checkSnapshotTTL(req.TTLSeconds); err != nil {
		return api.Snapshot{}, err
	}
	if _, err := m.snapshotter("a snapshot"); err != nil {
		return api.Snapshot{}, err
	}
	b, err := m.live(ctx, owner, id)
	if err != nil {
		return api.Snapshot{}, err
	}
	done, err := m.work()
	if err != nil {
		return api.Snapshot{}, err
	}
	defer done()
	goOn, leave, err := m.still(ctx, b, req.CarryRunning)
	if err != nil {
		return api.Snapshot{}, err
	}
	defer leave()
	row := b.get()
	if !keepable(row.State) {
		return api.Snapshot{}, errState(row)
	}
	// A client that leaves does not stop it halfway; a kill does.
	ctx, cancel := b.stoppable(context.WithoutCancel(ctx))
	defer cancel()
	began := time.Now()
	sn := store.Snapshot{
		ID: newID("sn-"), Owner: row.Owner, Name: req.Name, SandboxID: row.ID, ParentID: row.FromSnapshot, Template: row.Template, Digest: row.Digest,
		Driver: row.Driver, CPU: row.CPU, MemoryMB: row.MemoryMB, DiskMB: row.DiskMB, PIDs: row.PIDs, Metadata: req.Metadata, Generation: row.Generation,
		CreatedAt: m.cfg.Now(), Network: row.Network, Tools: row.Tools, Contexts: m.contextsIn(ctx, b),
	}
	sn.ExpiresAt = expiry(sn.CreatedAt, req.TTLSeconds)
	dir := m.imageDir(sn.ID)
	m.announce(ctx, b)
	err = m.saveTo(ctx, b, dir, driver.Save{GoesOn: goOn})
	var img driver.Image
	if err == nil {
		img, err = m.inspect(ctx, dir)
	}
	if err == nil {
		sn.SizeBytes, sn.DurationMS = img.Bytes, float64(time.Since(began).Microseconds())/1000
		err = m.keepNetwork(context.WithoutCancel(ctx), row, sn.ID)
	}
	if err == nil {
		err = m.cfg.Store.AddSnapshot(context.WithoutCancel(ctx), sn)
	}
	if err != nil {
		m.removeImage(dir)
		return api.Snapshot{}, err
	}
	m.note(b, api.LifeSnapshotTaken, caller.Payload(ctx, map[string]any{"snapshot_id": sn.ID, "size_bytes": sn.SizeBytes, "duration_ms": sn.DurationMS}))
	m.log.InfoContext(ctx, "snapshot taken", "sandbox", row.ID, "snapshot", sn.ID, "bytes", sn.SizeBytes, "ms", sn.DurationMS)
	return describeSnapshot(sn), nil
}

// keepable are the states of a sandbox whose memory and files are there.
func keepable(s store.State) bool {
	return s == store.Running || s == store.Paused || s == store.Hibernated
}

func checkSnapshotName(name string) error {
	if len(name) > maxSnapshotName {
		return fault.InvalidField("name", "name has %d bytes; at most %d are kept", len(name), maxSnapshotName)
	}
	return nil
}

func checkSnapshotTTL(seconds int) error {
	if most := int(maxSnapshotTTL / time.Second); seconds < 0 || seconds > most {
		return fault.InvalidField("ttl_seconds", "ttl_seconds must be between 1 and %d, or 0 for a snapshot that stays, but is %d", most, seconds)
	}
	return nil
}

// expiry is when something ends that has so many seconds from now on; never
// when they are 0.
func expiry(now time.Time, seconds int) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second).Truncate(time.Millisecond) // as it is kept
}

func describeSnapshot(sn store.Snapshot) api.Snapshot {
	var expires *time.Time
	if !sn.ExpiresAt.IsZero() {
		expires = &sn.ExpiresAt
	}
	return api.Snapshot{
		ID: sn.ID, Name: sn.Name, SandboxID: sn.SandboxID, ParentID: sn.ParentID, Workspace: sn.Owner, Template: sn.Template, Digest: sn.Digest,
		CPU: sn.CPU, MemoryMB: sn.MemoryMB, DiskMB: sn.DiskMB, Metadata: maps.Clone(sn.Metadata), SizeBytes: sn.SizeBytes, DurationMS: sn.DurationMS,
		CreatedAt: sn.CreatedAt, ExpiresAt: expires, Contexts: sn.Contexts, Origin: sn.Origin,
	}
}

// over tells whether the time of a snapshot is over: the sweeper is about to
// remove it.
func (m *Manager) over(sn store.Snapshot) bool {
	return !sn.ExpiresAt.IsZero() && !sn.ExpiresAt.After(m.cfg.Now())
}

// Snapshots lists an owner's snapshots, the newest first, of one sandbox when
// it is named.
func (m *Manager) Snapshots(ctx context.Context, owner, sandboxID string) ([]api.Snapshot, error) {
	if err := m.started(ctx); err != nil {
		return nil, err
	}
	list, err := m.cfg.Store.SnapshotsOf(ctx, owner, sandboxID)
	out := []api.Snapshot{}
	for _, sn := range list {
		if !m.over(sn) {
			out = append(out, describeSnapshot(sn))
		}
	}
	return out, err
}

// GetSnapshot describes a snapshot.
func (m *Manager) GetSnapshot(ctx context.Context, owner, id string) (api.Snapshot, error) {
	sn, err := m.findSnapshot(ctx, owner, id)
	return describeSnapshot(sn), err
}

func (m *Manager) findSnapshot(ctx context.Context, owner, id string) (store.Snapshot, error) {
	if err := m.started(ctx); err != nil {
		return store.Snapshot{}, err
	}
	sn, err := m.cfg.Store.Snapshot(ctx, id)
	if err == nil && (owner == "" || sn.Owner == owner) && !m.over(sn) {
		return sn, nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Snapshot{}, err
	}
	unknown := fault.New(api.CodeNotFound, "there is no snapshot %.80q", id)
	mine, err := m.cfg.Store.SnapshotsOf(ctx, owner, "")
	if err != nil {
		return store.Snapshot{}, err
	}
	var ids []string
	for _, sn := range mine {
		if !m.over(sn) {
			ids = append(ids, sn.ID)
		}
	}
	if len(nearest.Names(id, ids)) > 0 {
		unknown = unknown.WithHint("%s", nearest.Hint(id, ids, "snapshots"))
	}
	return store.Snapshot{}, unknown
}

// PatchSnapshot changes what a snapshot is called and carries, and how long it
// is kept.
func (m *Manager) PatchSnapshot(ctx context.Context, owner, id string, p api.SnapshotPatch) (api.Snapshot, error) {
	sn, err := m.findSnapshot(ctx, owner, id)
	if err != nil {
		return api.Snapshot{}, err
	}
	if p.Name != nil {
		if err := checkSnapshotName(*p.Name); err != nil {
			return api.Snapshot{}, err
		}
		sn.Name = *p.Name
	}
	if p.Metadata != nil {
		if err := checkPairs("metadata", *p.Metadata); err != nil {
			return api.Snapshot{}, err
		}
		sn.Metadata = *p.Metadata
	}
	if p.TTLSeconds != nil {
		if err := checkSnapshotTTL(*p.TTLSeconds); err != nil {
			return api.Snapshot{}, err
		}
		sn.ExpiresAt = expiry(m.cfg.Now(), *p.TTLSeconds)
	}
	err = m.cfg.Store.DescribeSnapshot(ctx, sn)
	if errors.Is(err, store.ErrStale) { // deleted meanwhile
		_, err = m.findSnapshot(ctx, owner, id)
	}
	return describeSnapshot(sn), err
}

// DeleteSnapshot removes a snapshot. Sandboxes that were made from it have all
// of their own and stay; while some are being made it is a conflict.
func (m *Manager) DeleteSnapshot(ctx context.Context, owner, id string) error {
	sn, err := m.findSnapshot(ctx, owner, id)
	if err != nil {
		return err
	}
	users, leave := m.forRemoval(sn.ID)
	if users != 0 {
		if users == beingRemoved {
			return nil
		}
		return fault.New(api.CodeConflict, "snapshot %s is still needed: %d sandboxes are being made from it right now", sn.ID, users).
			WithHint("try again when they run")
	}
	defer leave()
	// The row goes first: an image without one is removed at the next start.
	if err := m.cfg.Store.RemoveSnapshot(context.WithoutCancel(ctx), sn.ID); err != nil {
		return ignoreStale(err)
	}
	m.removeImage(m.imageDir(sn.ID))
	m.log.Info("snapshot deleted", "snapshot", sn.ID)
	return nil
}

// expireSnapshots removes those whose time is over. One that sandboxes are being
// made from goes at a later sweep.
func (m *Manager) expireSnapshots(ctx context.Context, now time.Time) error {
	list, err := m.cfg.Store.ExpiredSnapshots(ctx, now)
	errs := []error{err}
	for _, sn := range list {
		errs = append(errs, m.expireSnapshot(ctx, sn, now))
	}
	return errors.Join(errs...)
}

func (m *Manager) expireSnapshot(ctx context.Context, sn store.Snapshot, now time.Time) error {
	users, leave := m.forRemoval(sn.ID)
	if users != 0 {
		return nil
	}
	defer leave()
	if err := m.cfg.Store.ExpireSnapshot(ctx, sn.ID, now); err != nil {
		return ignoreStale(err) // it was given more time, or deleted
	}
	m.removeImage(m.imageDir(sn.ID))
	m.noteRow(store.Sandbox{ID: sn.SandboxID, Owner: sn.Owner}, api.LifeSnapshotExpired, map[string]any{"snapshot_id": sn.ID})
	m.log.Info("snapshot expired", "snapshot", sn.ID)
	return nil
}

// beingRemoved is in the place of how many sandboxes are being made from a snapshot.
const beingRemoved = -1

// forRemoval keeps others from using a snapshot until leave is called, if nobody
// does: users are how many sandboxes are being made from it.
func (m *Manager) forRemoval(id string) (users int, leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if users = m.restoring[id]; users != 0 {
		return users, nil
	}
	m.restoring[id] = beingRemoved
	return 0, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.restoring, id)
	}
}

// use keeps a snapshot from being removed until leave is called, unless it is
// being removed.
func (m *Manager) use(id string) (leave func(), ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restoring[id] == beingRemoved {
		return nil, false
	}
	m.restoring[id]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.restoring[id]--; m.restoring[id] == 0 {
			delete(m.restoring, id)
		}
	}, true
}

// fromSnapshot checks a snapshot and holds it until release is called.
func (m *Manager) fromSnapshot(ctx context.Context, owner, id string) (sn store.Snapshot, img *image, release func(), err error) {
	done := func() {}
	defer func() {
		var f *fault.Error
		if errors.As(err, &f) && f.Code == api.CodeNotFound {
			f.Field = "from_snapshot"
		}
		if err != nil {
			done()
		}
	}()
	if sn, err = m.findSnapshot(ctx, owner, id); err != nil {
		return sn, nil, nil, err
	}
	leave, ok := m.use(id)
	if !ok {
		return sn, nil, nil, fault.New(api.CodeNotFound, "snapshot %s is being deleted", id)
	}
	done = leave
	if sn, err = m.findSnapshot(ctx, owner, id); err != nil { // it may have gone before it was held
		return sn, nil, nil, err
	}
	if sn.Driver != m.cfg.Driver.Name() {
		return sn, nil, nil, fault.New(api.CodeConflict, "snapshot %s was made with the driver %s, and this server has %s", sn.ID, sn.Driver, m.cfg.Driver.Name())
	}
	found, err := m.inspect(ctx, m.imageDir(sn.ID))
	if err != nil {
		return sn, nil, nil, fmt.Errorf("snapshot %s: %w", sn.ID, err)
	}
	return sn, &image{dir: m.imageDir(sn.ID), bytes: found.Bytes, generation: sn.Generation, snapshot: sn.ID}, done, nil
}

// templateOf finds the template that something was made from.
func (m *Manager) templateOf(ctx context.Context, name, digest string) (Template, error) {
	t, err := m.cfg.Templates.ByDigest(ctx, digest)
	if errors.Is(err, fault.NotFound) {
		return t, fault.Wrap(err, api.CodeConflict, "the template %s that it was made from is gone", name)
	}
	if err == nil && t.Missing != "" {
		return t, errMissing(t)
	}
	return t, err
}
