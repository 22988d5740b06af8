// Package fake is a driver in memory. Its sandboxes run a fake guest that dials
// the link, speaks the real protocol, and holds files, scripted processes and
// contexts of a toy interpreter. It passes the conformance suite, and the tests
// of everything above the driver contract stand on it.
//
// The Host outlives its Drivers, as a machine outlives daemons: a test that
// kills the daemon makes a new Driver on the same Host.
package fake

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/egress"
	"github.com/pandastack/pandastack/internal/fault"
)

const imageName = "image.json"

// Host is the machine that sandboxes run on.
type Host struct {
	mu        sync.Mutex
	prepared  map[string]*prepared
	instances map[string]*instance   // running, or ended and not stopped
	gates     map[string]egress.Gate // of sandboxes that are not closed
	faults    Faults
	restores  int
}

// Faults make things go wrong on purpose. Nil functions do nothing.
type Faults struct {
	Prepare func(ctx context.Context, id string) error
	Restore func(ctx context.Context, id string) error
	Stop    func(id string) error
	Stats   func(ctx context.Context, id string) error
	// Snapshot fails one in its middle: the sandbox goes on.
	Snapshot func(ctx context.Context, id string) error
	// Guest, when set, runs instead of the fake guest until its context ends.
	Guest func(ctx context.Context, spec driver.Spec)
	// Late, when set, is waited for before the guest dials.
	Late func(ctx context.Context)
	// Assign makes a step of the assign fail.
	Assign func(id string) error
	// Cut says that the link breaks after a request was done and before it is
	// answered.
	Cut func(method, path string) bool
}

// NewHost makes a machine without sandboxes.
func NewHost() *Host {
	return &Host{prepared: map[string]*prepared{}, instances: map[string]*instance{}, gates: map[string]egress.Gate{}}
}

// Break sets the faults from now on.
func (h *Host) Break(f Faults) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = f
}

func (h *Host) broken() Faults {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults
}

// IDs names what there is on the machine, running or prepared.
func (h *Host) IDs() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for id := range h.prepared {
		out = append(out, id)
	}
	for id := range h.instances {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Restores counts the restores so far.
func (h *Host) Restores() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.restores
}

// End makes a sandbox end by itself.
func (h *Host) End(id string, exit driver.Exit) {
	h.mu.Lock()
	i := h.instances[id]
	h.mu.Unlock()
	if i != nil {
		i.end(exit)
	}
}

// Uses says what a running sandbox uses from now on.
func (h *Host) Uses(id string, s driver.Stats) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[id]; i != nil {
		i.uses = s
	}
}

// Limits are those of a running sandbox.
func (h *Host) Limits(id string) driver.Limits {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[id]; i != nil {
		return i.limits
	}
	return driver.Limits{}
}

// Gate is what decides for a sandbox, nil when it is closed.
func (h *Host) Gate(id string) egress.Gate {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gates[id]
}

// Guest gives the fake guest of a running sandbox, nil when there is none.
func (h *Host) Guest(id string) *Guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[id]; i != nil {
		return i.guest
	}
	return nil
}

// Driver makes sandboxes on a Host.
type Driver struct{ host *Host }

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Snapshotter = (*Driver)(nil)
	_ driver.Carrier     = (*Driver)(nil)
	_ driver.Pauser      = (*Driver)(nil)
	_ driver.Limiter     = (*Driver)(nil)
	_ driver.Networker   = (*Driver)(nil)
	_ driver.Retargeter  = (*prepared)(nil)
)

// New makes a driver.
func New(h *Host) *Driver { return &Driver{host: h} }

// Name is "fake".
func (d *Driver) Name() string { return "fake" }

// Check finds nothing wrong.
func (d *Driver) Check(context.Context) []driver.Check {
	return []driver.Check{driver.Passed("memory", "sandboxes are pretended in memory")}
}

var idShape = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func check(s driver.Spec) error {
	switch l := s.Limits; {
	case !idShape.MatchString(s.ID):
		return fault.InvalidField("id", "%q cannot be an id", s.ID)
	case s.Snapshot == "":
		return fault.InvalidField("snapshot", "there is no snapshot")
	case l.CPU < 0 || math.IsNaN(l.CPU) || l.MemoryMB < 0 || l.PIDs < 0 || s.DiskMB < 0:
		return fault.InvalidField("limits", "%+v are no limits", l)
	}
	if _, err := os.Stat(s.Snapshot); err != nil {
		return fault.Wrap(err, api.CodeNotFound, "there is no snapshot in %s", s.Snapshot)
	}
	return nil
}

// Prepare creates a sandbox that does not run yet.
func (d *Driver) Prepare(ctx context.Context, spec driver.Spec) (driver.Prepared, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	if f := d.host.broken().Prepare; f != nil {
		if err := f(ctx, spec.ID); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	image, err := readImage(spec.Snapshot)
	if err != nil {
		return nil, err
	}
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if d.host.prepared[spec.ID] != nil || d.host.instances[spec.ID] != nil {
		return nil, fault.New(api.CodeConflict, "%s exists already", spec.ID)
	}
	p := &prepared{host: d.host, spec: spec, image: image}
	d.host.prepared[spec.ID] = p
	return p, nil
}

// Connect sets the gate of a sandbox. Nothing goes through it: a test asks for it
// with Host.Gate.
func (d *Driver) Connect(id string, gate egress.Gate) error {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	if i := d.host.instances[id]; d.host.prepared[id] == nil && (i == nil || i.ended()) {
		return fault.New(api.CodeNotFound, "there is no sandbox %s", id)
	}
	d.host.gates[id] = gate
	return nil
}

// Resolvers is an address of documentation.
func (d *Driver) Resolvers() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.53")} }

// Adopt finds a running instance, or removes what is left of one. It is closed.
func (d *Driver) Adopt(ctx context.Context, id string) (driver.Instance, error) {
	d.host.mu.Lock()
	defer d.host.mu.Unlock()
	delete(d.host.gates, id)
	i := d.host.instances[id]
	if i == nil || i.ended() {
		delete(d.host.instances, id)
		delete(d.host.prepared, id)
		return nil, fault.New(api.CodeNotFound, "%s does not run", id)
	}
	return i, nil
}

// Sweep removes what keep does not hold.
func (d *Driver) Sweep(ctx context.Context, keep map[string]bool) ([]string, error) {
	var removed []string
	for _, id := range d.host.IDs() {
		if keep[id] {
			continue
		}
		d.host.mu.Lock()
		i := d.host.instances[id]
		delete(d.host.prepared, id)
		delete(d.host.gates, id)
		d.host.mu.Unlock()
		if i != nil {
			if err := i.Stop(ctx); err != nil {
				return removed, err
			}
		}
		removed = append(removed, id)
	}
	return removed, nil
}

type prepared struct {
	host  *Host
	spec  driver.Spec
	image image
	used  bool // under host.mu
}

func (p *prepared) RestoreFrom(ctx context.Context, snapshot, hostname string, limits driver.Limits) (driver.Instance, error) {
	image, err := readImage(snapshot)
	if err != nil {
		return nil, err
	}
	p.image = image
	p.spec.Hostname = cmp.Or(hostname, p.spec.Hostname)
	return p.Restore(ctx, limits)
}

func (p *prepared) Restore(ctx context.Context, limits driver.Limits) (driver.Instance, error) {
	f := p.host.broken()
	if f.Restore != nil {
		if err := f.Restore(ctx, p.spec.ID); err != nil {
			return nil, err
		}
	}
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.used {
		return nil, fault.New(api.CodeConflict, "%s was restored already", p.spec.ID)
	}
	if p.host.prepared[p.spec.ID] != p {
		return nil, fault.New(api.CodeNotFound, "%s is no more", p.spec.ID)
	}
	delete(p.host.prepared, p.spec.ID)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.used = true
	p.host.restores++
	life, stop := context.WithCancel(context.Background())
	if limits.DiskMB == 0 {
		limits.DiskMB = p.spec.DiskMB
	}
	i := &instance{host: p.host, spec: p.spec, limits: limits, uses: driver.Stats{MemoryBytes: 1 << 20, PIDs: 1, Tasks: 1}, done: make(chan struct{}), stop: stop, life: life}
	i.guest = newGuest(i, p.image)
	p.host.instances[p.spec.ID] = i
	run := i.guest.run
	switch {
	case f.Guest != nil:
		run = func(ctx context.Context) { f.Guest(ctx, p.spec) }
	case f.Late != nil:
		run = func(ctx context.Context) { f.Late(ctx); i.guest.run(ctx) }
	}
	i.spawn(func() { run(life) })
	return i, nil
}

func (p *prepared) Discard(ctx context.Context) error {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if p.host.prepared[p.spec.ID] == p {
		delete(p.host.prepared, p.spec.ID)
		delete(p.host.gates, p.spec.ID)
	}
	return nil
}

type instance struct {
	host   *Host
	spec   driver.Spec
	limits driver.Limits // under host.mu
	uses   driver.Stats  // under host.mu
	guest  *Guest
	life   context.Context
	stop   context.CancelFunc

	work  sync.WaitGroup
	start sync.Mutex // held to begin work and to end, so that nothing begins after the end

	once sync.Once
	exit driver.Exit
	done chan struct{} // closed when exit is set
}

// spawn begins work that Stop waits for, unless the instance has ended.
func (i *instance) spawn(f func()) {
	i.start.Lock()
	defer i.start.Unlock()
	if !i.ended() {
		i.work.Go(f)
	}
}

func (i *instance) ID() string { return i.spec.ID }

func (i *instance) ended() bool {
	select {
	case <-i.done:
		return true
	default:
		return false
	}
}

func (i *instance) end(exit driver.Exit) {
	i.start.Lock()
	defer i.start.Unlock()
	i.once.Do(func() {
		exit.At = time.Now()
		i.exit = exit
		i.stop()
		close(i.done)
	})
}

func (i *instance) Wait(ctx context.Context) (driver.Exit, error) {
	select {
	case <-i.done:
		return i.exit, nil
	default:
	}
	select {
	case <-i.done:
		return i.exit, nil
	case <-ctx.Done():
		return driver.Exit{}, ctx.Err()
	}
}

func (i *instance) Stop(ctx context.Context) error {
	if f := i.host.broken().Stop; f != nil {
		if err := f(i.spec.ID); err != nil {
			return err
		}
	}
	i.end(driver.Exit{Code: 137, Reason: "stopped"})
	i.work.Wait()
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	if i.host.instances[i.spec.ID] == i {
		delete(i.host.instances, i.spec.ID)
		delete(i.host.gates, i.spec.ID)
	}
	return nil
}

func (i *instance) Stats(ctx context.Context) (driver.Stats, error) {
	if f := i.host.broken().Stats; f != nil {
		if err := f(ctx, i.spec.ID); err != nil {
			return driver.Stats{}, err
		}
	}
	if i.ended() {
		return driver.Stats{}, fault.New(api.CodeNotFound, "%s has ended", i.spec.ID)
	}
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	return i.uses, nil
}

// CanLimit lets a sandbox have any limits but another number of cores.
func (d *Driver) CanLimit(from, to driver.Limits) bool {
	return math.Ceil(from.CPU) == math.Ceil(to.CPU)
}

// SetLimits gives a sandbox other limits.
func (d *Driver) SetLimits(_ context.Context, inst driver.Instance, l driver.Limits) error {
	i, err := d.own(inst)
	if err != nil {
		return err
	}
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	switch {
	case !d.CanLimit(i.limits, l):
		return fault.InvalidField("cpu", "%v cores are not %v", l.CPU, i.limits.CPU)
	case l.MemoryMB > 0 && int64(l.MemoryMB)<<20 < i.uses.MemoryBytes:
		return fault.InvalidField("memory_mb", "%d MB of memory are too little", l.MemoryMB)
	case l.DiskMB > 0 && int64(l.DiskMB)<<20 < i.uses.DiskBytes:
		return fault.InvalidField("disk_mb", "a disk of %d MB is too little", l.DiskMB)
	}
	if l.DiskMB == 0 {
		l.DiskMB = i.limits.DiskMB
	}
	i.limits = l
	return nil
}

// Snapshot writes what the guest holds to a folder.
func (d *Driver) Snapshot(ctx context.Context, inst driver.Instance, dir string, how driver.Save) error {
	i, err := d.own(inst)
	if err != nil {
		return err
	}
	if f := d.host.broken().Snapshot; f != nil {
		if err := f(ctx, i.spec.ID); err != nil {
			i.guest.breakLink()
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		i.guest.breakLink()
		return fault.New(api.CodeConflict, "%s is not an empty folder", dir)
	}
	if err := writeImage(dir, i.guest.image()); err != nil {
		return err
	}
	if how.Stop {
		i.end(driver.Exit{Code: 0, Reason: "stopped"})
		return i.Stop(ctx)
	}
	i.guest.breakLink()
	if how.GoesOn != nil {
		how.GoesOn()
	}
	return nil
}

// Inspect looks whether an image is what Snapshot wrote.
func (d *Driver) Inspect(_ context.Context, dir string) (driver.Image, error) {
	info, err := os.Stat(filepath.Join(dir, imageName))
	if os.IsNotExist(err) {
		return driver.Image{}, fault.Wrap(err, api.CodeConflict, "the snapshot is damaged: %s is missing", imageName)
	}
	if err != nil {
		return driver.Image{}, err
	}
	_, err = readImage(dir)
	return driver.Image{Bytes: info.Size()}, err
}

// made is what the images are of.
const made = "fake 1"

// Needs is the same for all images.
func (d *Driver) Needs(ctx context.Context, dir string) (driver.Needs, error) {
	_, err := d.Inspect(ctx, dir)
	return driver.Needs{Made: made, Arch: runtime.GOARCH, Features: []string{"fpu"}}, err
}

// Fits refuses what another driver, or this one on another machine, has made.
func (d *Driver) Fits(_ context.Context, n driver.Needs) error {
	switch {
	case n.Arch != runtime.GOARCH:
		return fault.Wrap(driver.ErrStale, api.CodeConflict, "the snapshot was made on another processor architecture: %s, and this is %s", n.Arch, runtime.GOARCH)
	case slices.ContainsFunc(n.Features, func(f string) bool { return f != "fpu" }):
		return fault.Wrap(driver.ErrStale, api.CodeConflict, "the snapshot was made on a processor with features that this one lacks: %v", n.Features)
	case n.Made != made:
		return fault.Wrap(driver.ErrStale, api.CodeConflict, "the snapshot was made by another version of the server: by %q, and this is %q", n.Made, made)
	}
	return nil
}

// Pause holds a guest still.
func (d *Driver) Pause(ctx context.Context, inst driver.Instance) error {
	i, err := d.own(inst)
	if err == nil {
		i.guest.pause()
	}
	return err
}

// Resume lets it go on.
func (d *Driver) Resume(ctx context.Context, inst driver.Instance) error {
	i, err := d.own(inst)
	if err == nil {
		i.guest.resume()
	}
	return err
}

func (d *Driver) own(inst driver.Instance) (*instance, error) {
	i, ok := inst.(*instance)
	if !ok {
		return nil, fmt.Errorf("%T is not an instance of this driver", inst)
	}
	if i.ended() {
		return nil, fault.New(api.CodeNotFound, "%s has ended", i.spec.ID)
	}
	return i, nil
}

// image is what a snapshot holds. An empty folder is the image of a guest that
// has just started.
type image struct {
	Files    map[string][]byte            `json:"files"`
	Contexts map[string]map[string]string `json:"contexts"` // variables by context
}

func readImage(dir string) (image, error) {
	var im image
	b, err := os.ReadFile(filepath.Join(dir, imageName))
	if os.IsNotExist(err) {
		return im, nil
	}
	if err != nil {
		return im, err
	}
	sum, body, _ := bytes.Cut(b, []byte("\n"))
	if string(sum) != sumOf(body) {
		return im, fault.New(api.CodeConflict, "the snapshot is damaged: %s is not what was written", imageName)
	}
	return im, json.Unmarshal(body, &im)
}

// writeImage writes an image after a line with its sum.
func writeImage(dir string, im image) error {
	body, err := json.Marshal(im)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, imageName), append([]byte(sumOf(body)+"\n"), body...), 0o600)
}

func sumOf(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }
