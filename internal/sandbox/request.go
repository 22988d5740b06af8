package sandbox

import (
	"cmp"
	"context"
	"math"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/nearest"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	defaultTemplate = "base"
	minMemoryMB     = 128
	minDiskMB       = 16
	minCPU          = 0.1
	minPIDs         = 16
	maxPairs        = 64
	maxPairKey      = 128
	maxPairValue    = 4096
	maxEnvs         = 128 << 10 // bytes in all; a process gets no more
	templatesFor    = 2 * time.Second
)

// wish is a create request that was checked and has its defaults.
type wish struct {
	owner    string
	template Template
	ttl      time.Duration
	limits   driver.Limits
	metadata map[string]string
	envs     map[string]string
	reseed   bool
	once     *once // nil without an idempotency key
	network  store.Network
	tools    *api.Tools

	persistent bool
	idle       time.Duration
	image      *image // that it is restored from; nil: that of the template
	release    func() // gives the image free
}

// limitsOf are those of a sandbox whose creator names none.
func limitsOf(t Template) driver.Limits {
	return driver.Limits{CPU: t.Info.CPU, MemoryMB: t.Info.MemoryMB, DiskMB: t.Info.DiskMB, PIDs: t.PIDs}
}

// fitsRestored reports whether a sandbox of the pool will do that runs already:
// it can be given the limits that are wished for, and nothing inside tells.
func (m *Manager) fitsRestored(w wish) bool {
	return w.image == nil && m.fitsPrepared(w)
}

// fitsPrepared is the same for one that is not restored yet, and so can still
// be restored from another snapshot.
func (m *Manager) fitsPrepared(w wish) bool { return m.fitsLimits(w.template, w.limits) }

// fitsLimits reports whether a sandbox of a template's pool can be given these limits.
func (m *Manager) fitsLimits(t Template, limits driver.Limits) bool {
	own := limitsOf(t)
	if limits == own {
		return true
	}
	l, ok := m.cfg.Driver.(driver.Limiter)
	return ok && l.CanLimit(own, limits)
}

// Check refuses a create request that cannot work, whatever room there is.
func (m *Manager) Check(ctx context.Context, owner string, req api.CreateSandboxRequest) error {
	w, err := m.wish(ctx, owner, req)
	if err == nil {
		w.release()
	}
	return err
}

func (m *Manager) wish(ctx context.Context, owner string, req api.CreateSandboxRequest) (wish, error) {
	w := wish{owner: owner, reseed: req.Reseed == nil || *req.Reseed, metadata: req.Metadata, envs: req.Envs, persistent: req.Persistent, release: func() {}}
	var err error
	if w.ttl, err = m.ttl(req.TTLSeconds, m.cfg.DefaultTTL, req.Persistent); err != nil {
		return w, err
	}
	if w.idle, err = m.idleTimeout(req.IdleTimeoutSeconds); err != nil {
		return w, err
	}
	if err := m.persistable(req.Persistent); err != nil {
		return w, err
	}
	if err := checkPairs("metadata", req.Metadata); err != nil {
		return w, err
	}
	if err := checkEnvs(req.Envs); err != nil {
		return w, err
	}
	if req.FromSnapshot != "" {
		return m.wishFromSnapshot(ctx, w, req)
	}
	name := req.Template
	if name == "" {
		name = defaultTemplate
	}
	if w.template, err = m.tmpls.find(ctx, name); err != nil {
		return w, err
	}
	if w.template.Missing != "" {
		return w, errMissing(w.template)
	}
	if w.network, err = m.plan(ctx, owner, req.Network, req.Secrets, store.Network{}); err != nil {
		return w, err
	}
	if w.tools, err = m.planTools(ctx, owner, req.Tools, nil); err != nil {
		return w, err
	}
	return m.limited(w, req, limitsOf(w.template))
}

func errMissing(t Template) error {
	e := fault.New(api.CodeNotFound, "the template %q is not whole any more: its folder %s is gone", t.Info.Name, t.Missing)
	e.Field = "template"
	return e.WithHint("the operator has to build it again: pandastack template build %s", t.Info.Name)
}

// wishFromSnapshot takes template and limits from a snapshot.
func (m *Manager) wishFromSnapshot(ctx context.Context, w wish, req api.CreateSandboxRequest) (wish, error) {
	sn, img, release, err := m.fromSnapshot(ctx, w.owner, req.FromSnapshot)
	if err != nil {
		return w, err
	}
	if w.template, err = m.templateOf(ctx, sn.Template, sn.Digest); err == nil {
		w.network, err = m.plan(ctx, w.owner, req.Network, req.Secrets, sn.Network)
	}
	if err == nil {
		w.tools, err = m.planTools(ctx, w.owner, req.Tools, sn.Tools)
	}
	if err == nil {
		w, err = m.limited(w, req, driver.Limits{CPU: sn.CPU, MemoryMB: sn.MemoryMB, DiskMB: sn.DiskMB, PIDs: cmp.Or(sn.PIDs, w.template.PIDs)})
	}
	if err != nil {
		release()
		return w, err
	}
	w.image, w.release = img, release
	return w, nil
}

// limited gives a wish its limits: those asked for, or the defaults.
func (m *Manager) limited(w wish, req api.CreateSandboxRequest, l driver.Limits) (wish, error) {
	var err error
	if w.limits.CPU, err = within("cpu", req.CPU, l.CPU, minCPU, m.cfg.MaxCPU); err != nil {
		return w, err
	}
	if w.limits.MemoryMB, err = within("memory_mb", req.MemoryMB, l.MemoryMB, minMemoryMB, m.cfg.MaxMemoryMB); err != nil {
		return w, err
	}
	if w.limits.DiskMB, err = within("disk_mb", req.DiskMB, l.DiskMB, minDiskMB, m.cfg.MaxDiskMB); err != nil {
		return w, err
	}
	w.limits.PIDs, err = within("pids", req.PIDs, l.PIDs, minPIDs, m.cfg.MaxPIDs)
	return w, err
}

// persistable refuses what needs hibernation where there is none.
func (m *Manager) persistable(asked bool) error {
	if _, ok := m.cfg.Driver.(driver.Snapshotter); !ok && asked {
		return errUnsupported("persistent", "a persistent sandbox")
	}
	return nil
}

func within[T int | float64](field string, v *T, def, least, most T) (T, error) {
	if v == nil {
		return def, nil
	}
	if *v < least || *v > most || math.IsNaN(float64(*v)) {
		return 0, fault.InvalidField(field, "%s must be between %v and %v, but is %v", field, least, most, *v).
			WithHint("leave it out for the template's own, %v", def)
	}
	return *v, nil
}

// maxPersistentTTL is for sandboxes that are hibernated, not killed, at its end.
const maxPersistentTTL = 365 * 24 * time.Hour

func (m *Manager) ttl(seconds *int, def time.Duration, persistent bool) (time.Duration, error) {
	if seconds == nil {
		return def, nil
	}
	most := int(m.cfg.MaxTTL / time.Second)
	if persistent {
		most = max(most, int(maxPersistentTTL/time.Second))
	}
	if *seconds < 1 || *seconds > most {
		return 0, fault.InvalidField("ttl_seconds", "ttl_seconds must be between 1 and %d, but is %d", most, *seconds)
	}
	return time.Duration(*seconds) * time.Second, nil
}

// idleTimeout checks the field; 0 is never. What it asks for needs hibernation.
func (m *Manager) idleTimeout(seconds *int) (time.Duration, error) {
	if seconds == nil || *seconds == 0 {
		return 0, nil
	}
	if *seconds < 0 || *seconds > math.MaxInt32 {
		return 0, fault.InvalidField("idle_timeout_seconds", "idle_timeout_seconds must not be negative or absurd, but is %d", *seconds)
	}
	if _, ok := m.cfg.Driver.(driver.Snapshotter); !ok {
		return 0, errUnsupported("idle_timeout_seconds", "hibernating an idle sandbox")
	}
	return time.Duration(*seconds) * time.Second, nil
}

func checkPairs(field string, pairs map[string]string) error {
	if len(pairs) > maxPairs {
		return fault.InvalidField(field, "%s has %d entries; at most %d are kept", field, len(pairs), maxPairs)
	}
	for k, v := range pairs {
		if k == "" || len(k) > maxPairKey {
			return fault.InvalidField(field, "a key in %s must have 1 to %d bytes: %.40q", field, maxPairKey, k)
		}
		if strings.ContainsFunc(k, unicode.IsControl) {
			return fault.InvalidField(field, "a key in %s holds a control character: %.40q", field, k)
		}
		if strings.Contains(v, "\x00") {
			return fault.InvalidField(field+"."+k, "the value of %s.%s holds a NUL byte", field, k)
		}
		if len(v) > maxPairValue {
			return fault.InvalidField(field+"."+k, "the value of %s.%s has %d bytes; at most %d are kept", field, k, len(v), maxPairValue)
		}
	}
	return nil
}

func checkEnvs(envs map[string]string) error {
	size := 0
	for k, v := range envs {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fault.InvalidField("envs", "%.40q cannot be the name of an environment variable", k)
		}
		if strings.Contains(v, "\x00") {
			return fault.InvalidField("envs."+k, "the value of %s holds a NUL byte", k)
		}
		size += len(k) + len(v) + 2
	}
	if size > maxEnvs {
		return fault.InvalidField("envs", "envs has %d bytes; a process gets at most %d", size, maxEnvs)
	}
	return nil
}

// templateCache spares creates the reading of files. A name that it does not
// know is always looked up anew.
type templateCache struct {
	from Templates
	now  func() time.Time

	mu   sync.Mutex
	list []Template
	at   time.Time
}

func (c *templateCache) all(ctx context.Context, fresh bool) ([]Template, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !fresh && c.list != nil && now.Sub(c.at) < templatesFor {
		return c.list, nil
	}
	list, err := c.from.Templates(ctx)
	if err != nil {
		return nil, err
	}
	c.list, c.at = list, now
	return list, nil
}

// missing names what of a template is gone by now, "" when it is whole.
func (c *templateCache) missing(ctx context.Context, t Template) string {
	list, err := c.all(ctx, true)
	if err != nil {
		return ""
	}
	for _, now := range list {
		if now.Info.Digest == t.Info.Digest {
			return now.Missing
		}
	}
	return ""
}

// find gives a template by name or alias.
func (c *templateCache) find(ctx context.Context, name string) (Template, error) {
	var names []string
	for _, fresh := range []bool{false, true} {
		list, err := c.all(ctx, fresh)
		if err != nil {
			return Template{}, err
		}
		names = nil
		for _, t := range list {
			if t.Info.Name == name && (t.Missing == "" || fresh) {
				return t, nil
			}
			names = append(names, t.Info.Name)
		}
		for _, t := range list {
			for _, a := range t.Info.Aliases {
				if a == name && (t.Missing == "" || fresh) {
					return t, nil
				}
				names = append(names, a)
			}
		}
	}
	e := fault.New(api.CodeNotFound, "there is no template %.80q", name)
	e.Field = "template"
	if len(names) == 0 {
		return Template{}, e.WithHint("no template is built yet; build one with: pandastack template build")
	}
	return Template{}, e.WithHint("%s", nearest.Hint(name, names, "templates"))
}
