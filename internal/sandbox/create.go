package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// How a sandbox came to be, for BootMode.
const (
	bootPool     = "pool"
	bootPrepared = "prepared"
	bootCold     = "cold"
)

// Create makes a sandbox and returns when its guest answers. With an
// idempotency key it does so once.
func (m *Manager) Create(ctx context.Context, owner string, req api.CreateSandboxRequest) (api.SandboxInfo, error) {
	if req.IdempotencyKey != "" {
		return m.createOnce(ctx, owner, req)
	}
	return m.createNew(ctx, owner, req, nil)
}

func (m *Manager) createNew(ctx context.Context, owner string, req api.CreateSandboxRequest, o *once) (info api.SandboxInfo, failed error) {
	began := time.Now()
	defer func() {
		if failed != nil {
			m.cfg.Metrics.CreateFailed(string(fault.CodeOf(failed)))
		}
	}()
	if err := m.started(ctx); err != nil {
		return api.SandboxInfo{}, err
	}
	w, err := m.wish(ctx, owner, req)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	defer w.release()
	w.once = o
	row, err := m.make(ctx, w, began)
	if err != nil {
		return api.SandboxInfo{}, err
	}
	return m.info(row), nil
}

// make makes a sandbox that was asked for.
func (m *Manager) make(ctx context.Context, w wish, began time.Time) (store.Sandbox, error) {
	if err := m.spacious(); err != nil {
		return store.Sandbox{}, err
	}
	done, err := m.work()
	if err != nil {
		return store.Sandbox{}, err
	}
	defer done()
	defer m.createdOne()
	if err := m.takePlace(w.owner, w.limits); err != nil {
		return store.Sandbox{}, err
	}
	ctx, cancel := m.untilClosed(ctx)
	defer cancel()

	b, err := m.create(ctx, w, began)
	if err != nil {
		m.leavePlace(w.owner, w.limits)
		if m.life.Err() != nil {
			err = errClosed
		}
		return store.Sandbox{}, err
	}
	row := b.get()
	m.cfg.Metrics.Created(row.BootMode, time.Since(began))
	m.note(b, api.LifeReady, map[string]any{"path": row.BootMode, "boot_ms": row.BootMS})
	m.log.InfoContext(ctx, "sandbox created", "sandbox", row.ID, "template", row.Template, "boot_mode", row.BootMode, "boot_ms", row.BootMS)
	return row, nil
}

func (m *Manager) createdOne() {
	m.mu.Lock()
	m.created = time.Now()
	m.mu.Unlock()
	m.wakePools()
}

func (m *Manager) create(ctx context.Context, w wish, began time.Time) (*box, error) {
	if b, err := m.createFromPool(ctx, w, began); b != nil || err != nil {
		return b, err
	}
	done, err := m.queue.wait(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if b, err := m.createFromPool(ctx, w, began); b != nil || err != nil { // filled in the meantime
		return b, err
	}
	if name := w.template.Info.Name; m.fitsRestored(w) && m.cfg.Pool[name].Restored > 0 {
		m.cfg.Metrics.PoolMissed(name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.CreateTimeout,
		fault.New(api.CodeTimeout, "the sandbox was not ready within %s", m.cfg.CreateTimeout).WithHint("the server may be overloaded; try again"))
	defer cancel()
	var bytes int64
	if w.image != nil {
		bytes = w.image.bytes
	}
	if err := m.makeRoom(ctx, bytes); err != nil {
		return nil, err
	}
	b, mode, err := m.startOne(ctx, w)
	if err != nil {
		return nil, err
	}
	defer b.unlock()
	ctx, cancel = b.stoppable(ctx)
	defer cancel()
	client, err := m.restore(ctx, b, w.limits, w.retarget(mode))
	if err == nil {
		err = m.assign(ctx, b, client, w)
	}
	if err == nil {
		err = m.trust(ctx, b.get(), client)
	}
	if err == nil {
		err = m.remember(ctx, b, w)
	}
	if err == nil {
		err = m.open(ctx, b, mode, began)
	}
	if err != nil {
		return nil, m.abandon(ctx, b, err)
	}
	return b, nil
}

// createFromPool claims a sandbox that runs already, or gives nil. An error is
// one of the request, which no other way to a sandbox would serve.
func (m *Manager) createFromPool(ctx context.Context, w wish, began time.Time) (*box, error) {
	if !m.fitsRestored(w) {
		return nil, nil
	}
	for ctx.Err() == nil {
		b := m.takeRestored(w.template.Info)
		if b == nil {
			return nil, nil
		}
		err := m.claim(ctx, b, w, began)
		if err == nil {
			return b, nil
		}
		if errors.Is(err, errLimits) {
			return nil, err
		}
		m.log.Warn("a sandbox of the pool could not be used", "sandbox", b.id, "error", err)
	}
	return nil, nil
}

// errLimits is in the error of a claim whose limits are less than what a
// sandbox of the template needs.
var errLimits = errors.New("the limits are too low")

// limit gives a sandbox of the pool the limits of its user. When they are too
// low for it, it goes back.
func (m *Manager) limit(ctx context.Context, b *box, w wish) error {
	if w.limits == limitsOf(w.template) {
		return nil
	}
	err := m.cfg.Driver.(driver.Limiter).SetLimits(ctx, b.inst, w.limits) // fitsPrepared saw that it is one
	if !errors.Is(err, fault.Invalid) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pool.restored = append(m.pool.restored, b)
	return fmt.Errorf("%w: %w", errLimits, err)
}

func (m *Manager) claim(ctx context.Context, b *box, w wish, began time.Time) error {
	if err := b.lock(ctx); err != nil {
		return errors.Join(err, m.discard(ctx, b))
	}
	defer b.unlock()
	if b.gone {
		return errors.New("it has ended")
	}
	ctx, cancel := b.stoppable(ctx)
	defer cancel()
	err := m.limit(ctx, b, w)
	if errors.Is(err, errLimits) {
		return err
	}
	if err == nil {
		err = m.save(ctx, b, m.owned(b.get(), w), store.Pooled)
	}
	if err != nil {
		return m.abandon(ctx, b, err)
	}
	m.noteCreated(ctx, b)
	if err := m.connect(ctx, b); err != nil {
		return m.abandon(ctx, b, err)
	}
	var client *guest.Client
	linkCtx, cancelLink := context.WithTimeout(ctx, m.cfg.LinkWait)
	defer cancelLink()
	if client, err = b.link.Client(linkCtx); err == nil {
		err = m.assignIntroduced(ctx, b, client, w)
	}
	if err == nil {
		err = m.trust(ctx, b.get(), client)
	}
	if err == nil {
		err = m.remember(ctx, b, w)
	}
	if err == nil {
		err = m.open(ctx, b, bootPool, began)
	}
	if err != nil {
		return m.abandon(ctx, b, err)
	}
	return nil
}

// startOne gives a sandbox that waits to be restored, with its turn taken.
func (m *Manager) startOne(ctx context.Context, w wish) (*box, string, error) {
	for m.fitsPrepared(w) {
		b := m.takePrepared(w.template.Info)
		if b == nil {
			break
		}
		if err := b.lock(ctx); err != nil {
			return nil, "", errors.Join(err, m.discard(ctx, b))
		}
		err := m.save(ctx, b, m.owned(b.get(), w), store.Prepared)
		if err == nil && w.image != nil {
			if _, can := b.prepared.(driver.Retargeter); !can {
				err = errors.New("the driver cannot restore it from another snapshot")
			}
			b.link.Renumber(b.get().Generation)
		}
		if err == nil {
			m.noteCreated(ctx, b)
			return b, bootPrepared, nil
		}
		err = m.abandon(ctx, b, err)
		b.unlock()
		m.log.Warn("a prepared sandbox could not be used", "sandbox", b.id, "error", err)
	}
	snapshot := w.template.Snapshot
	if w.image != nil {
		snapshot = w.image.dir
	}
	b, err := m.prepare(ctx, m.owned(m.newRow(w.template), w), w.template, snapshot)
	return b, bootCold, err
}

// rowLimits are the limits in a row.
func rowLimits(row store.Sandbox) driver.Limits {
	return driver.Limits{CPU: row.CPU, MemoryMB: row.MemoryMB, DiskMB: row.DiskMB, PIDs: row.PIDs}
}

// retarget is the image that a sandbox, prepared for another, is to be restored
// from; "" when it was prepared for the right one.
func (w wish) retarget(mode string) string {
	if w.image == nil || mode != bootPrepared {
		return ""
	}
	return w.image.dir
}

// noteCreated says that a sandbox is somebody's from now on.
func (m *Manager) noteCreated(ctx context.Context, b *box) {
	row := b.get()
	payload := map[string]any{
		"template": row.Template, "ttl_seconds": int(row.TTL / time.Second), "cpu": row.CPU, "memory_mb": row.MemoryMB, "disk_mb": row.DiskMB,
	}
	if row.FromSnapshot != "" {
		payload["from_snapshot"] = row.FromSnapshot
	}
	if row.ForkedFrom != "" {
		payload["forked_from"] = row.ForkedFrom
	}
	m.note(b, api.LifeCreated, caller.Payload(ctx, payload))
}

// newRow is the row of a sandbox that nobody has asked for yet.
func (m *Manager) newRow(t Template) store.Sandbox {
	return store.Sandbox{
		ID: newID("sb-"), State: store.Prepared, Template: t.Info.Name, Digest: t.Info.Digest, Driver: m.cfg.Driver.Name(),
		CPU: t.Info.CPU, MemoryMB: t.Info.MemoryMB, DiskMB: t.Info.DiskMB, PIDs: t.PIDs, CreatedAt: m.cfg.Now(), Generation: 1,
	}
}

// owned is the row of a sandbox that was given to a user. Owner and expiry are
// in it before anything of the user's happens.
func (m *Manager) owned(row store.Sandbox, w wish) store.Sandbox {
	now := m.cfg.Now()
	row.State, row.Owner = store.Creating, w.owner
	row.CPU, row.MemoryMB, row.DiskMB, row.PIDs = w.limits.CPU, w.limits.MemoryMB, w.limits.DiskMB, w.limits.PIDs
	row.Network, row.Tools = w.network, w.tools
	row.Metadata, row.TTL, row.IdleTimeout, row.Persistent = w.metadata, w.ttl, w.idle, w.persistent
	if w.image != nil {
		row.FromSnapshot, row.ForkedFrom, row.Generation = w.image.snapshot, w.image.parent, w.image.generation+1
	}
	row.CreatedAt, row.UsedAt, row.ExpiresAt = now, now, now.Add(w.ttl)
	return row
}

// prepare writes the row, opens the link and has the driver create the
// sandbox. The box comes with its turn taken; on failure nothing is left.
func (m *Manager) prepare(ctx context.Context, row store.Sandbox, t Template, snapshot string) (*box, error) {
	b := newBox(row)
	b.turn <- struct{}{}
	// The box comes before the row: whoever finds the row in a list can kill it.
	m.mu.Lock()
	m.boxes[b.id] = b
	m.mu.Unlock()
	if err := m.cfg.Store.AddSandbox(context.WithoutCancel(ctx), row); err != nil {
		b.gone = true
		m.mu.Lock()
		delete(m.boxes, b.id)
		m.mu.Unlock()
		b.unlock()
		return nil, err
	}
	if row.Owner != "" {
		m.noteCreated(ctx, b)
	}

	ctx, cancel := b.stoppable(ctx)
	defer cancel()
	link, err := m.listen(b)
	if err == nil {
		b.setLink(link)
		b.prepared, err = m.cfg.Driver.Prepare(ctx, m.driverSpec(row, t, snapshot))
	}
	if err != nil {
		switch gone := m.tmpls.missing(ctx, t); {
		case gone != "":
			t.Missing = gone
			err = errMissing(t)
		case isStale(err):
			err = errStale(t.Info.Name, err)
		default:
			err = ours(err, "the sandbox could not be prepared")
			if row.FromSnapshot == "" {
				err = rebuild(err, t.Info.Name)
			}
		}
		err = m.abandon(ctx, b, err)
		b.unlock()
		return nil, err
	}
	return b, nil
}

// listen opens a box's link.
func (m *Manager) listen(b *box) (*guest.Listener, error) {
	return m.listenAs(b, b.get().Generation)
}

func (m *Manager) listenAs(b *box, generation int) (*guest.Listener, error) {
	link, err := guest.Listen(guest.Options{
		Dir: m.linkDir(b.onHost()), SandboxID: b.id, Generation: generation, Logger: m.log, Watcher: watcher{m, b},
	})
	if err == nil {
		m.serveTools(b, link)
	}
	return link, err
}

func (m *Manager) driverSpec(row store.Sandbox, t Template, snapshot string) driver.Spec {
	return driver.Spec{
		ID: row.OnHost(), Hostname: row.ID, Rootfs: t.Rootfs, Snapshot: snapshot, LinkDir: m.linkDir(row.OnHost()), Programs: t.Programs,
		DiskMB: row.DiskMB, Limits: rowLimits(row),
	}
}

// restore lets a prepared sandbox run and waits for its guest. A snapshot other
// than that of its spec may be named, if the driver can do that.
func (m *Manager) restore(ctx context.Context, b *box, limits driver.Limits, snapshot string) (*guest.Client, error) {
	if err := m.connect(ctx, b); err != nil {
		return nil, err
	}
	var inst driver.Instance
	var err error
	if re, can := b.prepared.(driver.Retargeter); can && snapshot != "" {
		inst, err = re.RestoreFrom(ctx, snapshot, b.id, limits)
	} else {
		inst, err = b.prepared.Restore(ctx, limits)
	}
	if err != nil {
		err = ours(err, "the sandbox could not be restored")
		if row := b.get(); row.FromSnapshot == "" {
			err = rebuild(err, row.Template)
		}
		return nil, err
	}
	b.holds(inst)
	b.prepared = nil
	go m.watch(b, inst)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if exit, err := inst.Wait(ctx); err == nil {
			cancel(fmt.Errorf("it ended while it started: %s %s", exit.Reason, exit.Detail))
		}
	}()
	client, err := b.link.Client(ctx)
	if err != nil {
		if c := context.Cause(ctx); c != nil {
			err = c
		}
		if isStale(err) {
			return nil, errStale(b.get().Template, err)
		}
		return nil, ours(err, "the agent in the sandbox did not call")
	}
	return client, nil
}

// essential are the steps of an assign without which a sandbox would pass for
// what it is not.
var essential = map[string]bool{"clock": true, "random": true, "env": true}

// assign makes the copy into this sandbox and checks each step.
func (m *Manager) assign(ctx context.Context, b *box, client *guest.Client, w wish) error {
	req := identity(b.get(), w.template)
	req.Envs, req.Metadata, req.Reseed = w.envs, w.metadata, w.reseed
	req.KeepEnvs, req.Resolvers = w.image != nil, m.resolvers()
	return m.tell(ctx, b, client, req)
}

// introduce does of an assign what is known before there is a user, for the
// first calls after a restore are the slow ones. The random state is left for
// assign to decide upon.
func (m *Manager) introduce(ctx context.Context, b *box, client *guest.Client, t Template) error {
	req := identity(b.get(), t)
	req.Rehearse, req.Resolvers = true, m.resolvers()
	return m.tell(ctx, b, client, req)
}

// assignIntroduced is assign for a guest that knows its name already.
func (m *Manager) assignIntroduced(ctx context.Context, b *box, client *guest.Client, w wish) error {
	req := identity(b.get(), w.template)
	req.Envs, req.Metadata, req.Reseed = w.envs, w.metadata, w.reseed
	req.Hostname, req.MachineID = "", "" // as they are
	if w.limits.PIDs == w.template.PIDs {
		req.PIDs = 0 // as well
	}
	return m.tell(ctx, b, client, req)
}

func identity(row store.Sandbox, t Template) guestapi.AssignRequest {
	random := make([]byte, 64+16)
	rand.Read(random) // never fails
	return guestapi.AssignRequest{
		SandboxID: row.ID, Generation: row.Generation, Hostname: row.ID, MachineID: hex.EncodeToString(random[64:]),
		MemoryMB: row.MemoryMB, PIDs: row.PIDs, Entropy: random[:64], Spares: t.Spares,
	}
}

func (m *Manager) tell(ctx context.Context, b *box, client *guest.Client, req guestapi.AssignRequest) error {
	if m.cfg.Policies != nil {
		packages, err := m.cfg.Policies.Packages(ctx, b.get())
		if err != nil {
			return err
		}
		req.Packages = &packages
	}
	req.UnixNano = time.Now().UnixNano()
	resp, err := client.Assign(ctx, req)
	if err != nil {
		return ours(err, "the agent in the sandbox did not take its name")
	}
	m.log.DebugContext(ctx, "guest assigned", "sandbox", b.id, "steps", resp.Steps)
	for _, s := range resp.Steps {
		switch {
		case s.OK:
		case essential[s.Name]:
			return fmt.Errorf("after the restore, step %s failed: %s", s.Name, s.Detail)
		default:
			m.log.WarnContext(ctx, "a step after the restore failed", "sandbox", b.id, "step", s.Name, "detail", s.Detail)
			m.note(b, api.LifeStepFailed, map[string]any{"step": s.Name, "detail": s.Detail})
		}
	}
	return nil
}

// open gives the sandbox to its user.
func (m *Manager) open(ctx context.Context, b *box, mode string, began time.Time) error {
	row := b.get()
	row.State, row.BootMode = store.Running, mode
	row.BootMS = float64(time.Since(began).Microseconds()) / 1000
	if err := m.save(ctx, b, row, store.Creating); err != nil {
		return err
	}
	b.opened(row)
	m.serveTools(b, b.link)
	return nil
}

// abandon undoes a create that failed. The caller holds the turn.
func (m *Manager) abandon(ctx context.Context, b *box, why error) error {
	why = stopped(ctx, why)
	return cause(why, m.finish(ctx, b, ending{reason: reasonCreate, detail: why.Error()}))
}

// stoppable gives a context that a kill of the box ends.
func (b *box) stoppable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	b.mu.Lock()
	b.stop = func() { cancel(errKilled) }
	b.mu.Unlock()
	return ctx, func() { cancel(nil) }
}

var errKilled = fault.New(api.CodeConflict, "the sandbox was killed meanwhile")

// untilClosed gives a context that Close ends.
func (m *Manager) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	undo := context.AfterFunc(m.life, func() { cancel(errClosed) })
	return ctx, func() { undo(); cancel(nil) }
}

var idEncoding = base32.NewEncoding("0123456789abcdefghijkmnpqrstuvwx").WithPadding(base32.NoPadding)

// newID makes an id. All of one kind have one length, because drivers may match
// them by prefix, and all are host names.
func newID(kind string) string {
	b := make([]byte, 10)
	rand.Read(b) // never fails
	return kind + idEncoding.EncodeToString(b)
}

func (m *Manager) removeLinkDir(id string) error {
	if id == "" || strings.ContainsAny(id, "/.") {
		return fmt.Errorf("not the id of a sandbox: %q", id)
	}
	return os.RemoveAll(m.linkDir(id))
}
