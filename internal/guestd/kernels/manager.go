// Package kernels runs code: it supervises the interpreters of a sandbox, one
// for each code context, all forked from one that has everything imported.
//
// It owns the deadlines of cells and the ladder that ends those which do not
// heed them, keeps their output, and says truthfully whether state survived.
// It never runs a cell twice. The interpreter's side is in
// internal/kernel/python, and the protocol between them in its PROTOCOL.md.
package kernels

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/deadline"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

const (
	maxTimeoutMS   = 24 * 3600 * 1000
	defaultTimeout = 30 * time.Second
	keepFinished   = 512      // executions that have ended and can still be read
	keepBytes      = 64 << 20 // of their output
	rememberIDs    = 50_000   // of executions, so that none runs twice
	maxResults     = 48 << 20 // bytes of the results of one execution
	quietTime      = 100 * time.Millisecond
	refillAnyway   = 5 * time.Second
	memoryShare    = 0.85 // of the sandbox's memory that one interpreter may take
)

// KeepFiles is how many files with whole outputs stay in the sandbox.
const KeepFiles = 16

// Config is what a manager needs.
type Config struct {
	Programs  string
	Workspace string
	OutputDir string
	Stderr    io.Writer
	Log       *slog.Logger
	Reaper    *child.Reaper
	Clock     deadline.Clock
	Env       func(child.User, map[string]string) map[string]string
	// ToolSocket is where interpreters find what they can call outside of the
	// sandbox, "" for nowhere.
	ToolSocket string
	// StartTime is how long an interpreter may take to be forked, and again to
	// begin; 20 s, so that whoever waits for a context hears of it before the host
	// gives the call up.
	StartTime time.Duration
	// Interrupted is told the session of an interpreter whose cell was interrupted.
	// It may be nil.
	Interrupted func(session int)
}

// Limits are those of the sandbox that the interpreters live in.
type Limits struct {
	MemoryBytes int64
	Spares      int
	Reseed      bool
	Entropy     []byte
}

// Manager has the code contexts of the sandbox.
type Manager struct {
	cfg Config

	mu       sync.Mutex
	contexts map[string]*Context
	order    []string
	seen     map[string]seen // by execution id
	seenIDs  []string
	ended    []endedExecution // oldest first
	keptSize int              // of their output
	outputs  int
	short    int64 // cells that got a MemoryError
	creating int
	taken    int       // interpreters, by contexts
	last     time.Time // of anything that a user waited for
	limits   Limits
	closed   bool

	warm    *guestapi.WarmRequest // nil for a template without kernels
	zygote  *zygote
	spares  []*interp
	warming sync.Mutex

	refill chan struct{}

	seeding sync.Mutex // of what follows; taken last: whoever holds a context asks for entropy
	base    []byte     // from the host
	seeds   uint64
}

type seen struct {
	context string
	digest  [sha256.Size]byte
}

type endedExecution struct {
	ex   *Execution
	c    *Context
	size int
}

// New makes a manager that has no interpreter yet.
func New(cfg Config) *Manager {
	if cfg.Clock.Now == nil {
		cfg.Clock = deadline.System
	}
	if cfg.StartTime == 0 {
		cfg.StartTime = 20 * time.Second
	}
	m := &Manager{
		cfg:      cfg,
		contexts: map[string]*Context{},
		seen:     map[string]seen{},
		limits:   Limits{Reseed: true},
		refill:   make(chan struct{}, 1),
	}
	go m.keepSpares()
	return m
}

// Warm starts the interpreter that contexts are forked from, and waits for it.
// A request without one means a template without kernels.
func (m *Manager) Warm(ctx context.Context, req guestapi.WarmRequest) (guestapi.WarmResponse, error) {
	var resp guestapi.WarmResponse
	if req.Python == "" {
		return resp, nil
	}
	if !filepath.IsAbs(req.Python) {
		return resp, fault.InvalidField("python", "python must be an absolute path, not %q", req.Python)
	}
	if _, err := os.Stat(req.Python); err != nil {
		return resp, fault.InvalidField("python", "there is no interpreter at %s", req.Python)
	}
	m.mu.Lock()
	if len(m.contexts) > 0 {
		m.mu.Unlock()
		return resp, fault.New(api.CodeConflict, "there are contexts already").WithHint("warm a template before contexts are made")
	}
	m.warm = &req
	m.limits.Spares = req.Spares
	old, spares := m.zygote, m.spares
	m.zygote, m.spares = nil, nil
	m.mu.Unlock()
	for _, k := range spares {
		k.kill("")
	}
	if old != nil {
		old.stop()
	}
	z, err := m.liveZygote(ctx)
	if err != nil {
		return resp, fault.Wrap(err, api.CodeInvalid, "the interpreter could not be warmed: %v", err)
	}
	for range req.Spares {
		if err := m.addSpare(ctx); err != nil {
			return resp, fmt.Errorf("fork a spare interpreter: %w", err)
		}
	}
	// A spare that still rehearses when the snapshot is taken would do so in every
	// sandbox, while its first context waits.
	if err := m.Rehearse(ctx); err != nil {
		return resp, fmt.Errorf("rehearse in a spare interpreter: %w", err)
	}
	return guestapi.WarmResponse{Version: z.greeting.Version, Imports: z.greeting.Imports, Failed: z.greeting.Failed}, nil
}

// liveZygote gives the zygote, warm, and starts another if it has died.
func (m *Manager) liveZygote(ctx context.Context) (*zygote, error) {
	m.warming.Lock()
	defer m.warming.Unlock()
	m.mu.Lock()
	z, req, closed := m.zygote, m.warm, m.closed
	m.mu.Unlock()
	if closed {
		return nil, errors.New("the sandbox is ending")
	}
	if req == nil {
		return nil, fault.New(api.CodeUnsupported, "this template has no code interpreter").
			WithHint("create the sandbox from a template with one, such as code-interpreter")
	}
	if z == nil || !z.alive() {
		var err error
		if z, err = startZygote(m.cfg, *req); err != nil {
			return nil, err
		}
		m.mu.Lock()
		m.zygote = z
		m.mu.Unlock()
	}
	if err := z.waitWarm(ctx); err != nil {
		if errors.As(err, new(errNotWarm)) {
			z.stop()
		}
		return nil, err
	}
	return z, nil
}

// zygoteInTime is liveZygote for whoever waits for a context: one that does not
// come through its imports is ended, and the next context gets another.
func (m *Manager) zygoteInTime(ctx context.Context) (*zygote, error) {
	limit := 2 * m.cfg.StartTime
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	expired, stop := expiry(limit)
	defer stop()
	go func() {
		select {
		case <-expired:
			cancel(errNotWarm(limit))
		case <-ctx.Done():
		}
	}()
	return m.liveZygote(ctx)
}

// errNotWarm is the cause of giving up a zygote after so long.
type errNotWarm time.Duration

func (e errNotWarm) Error() string {
	return fmt.Sprintf("it did not import what it has to within %s", time.Duration(e))
}

// forkZygote makes an interpreter, ahead of need or not. A zygote that ends
// meanwhile is replaced.
func (m *Manager) forkZygote(ctx context.Context, ahead bool) (*interp, error) {
	z, err := m.zygoteInTime(ctx)
	if err != nil {
		return nil, err
	}
	k, err := z.fork(ctx, ahead)
	if errors.Is(err, errZygoteEnded) {
		if z, err = m.zygoteInTime(ctx); err == nil {
			k, err = z.fork(ctx, ahead)
		}
	}
	return k, err
}

func (m *Manager) addSpare(ctx context.Context) error {
	k, err := m.forkZygote(ctx, true)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		go k.kill("")
		return nil
	}
	m.spares = append(m.spares, k)
	return nil
}

// take gives a new context its interpreter: a spare, or a fork made now.
func (m *Manager) take(ctx context.Context, f initFrame) (*interp, error) {
	defer m.wantSpares()
	m.mu.Lock()
	m.taken++
	m.mu.Unlock()
	for {
		m.mu.Lock()
		var k *interp
		if n := len(m.spares); n > 0 {
			k = m.spares[n-1]
			m.spares = m.spares[:n-1]
		}
		f.Reseed = m.limits.Reseed
		limit := m.limits.MemoryBytes
		m.mu.Unlock()
		spare := k != nil
		if !spare {
			var err error
			if k, err = m.forkZygote(ctx, false); err != nil {
				return nil, err
			}
		}
		f.Entropy = m.entropy()
		f.Envs = m.cfg.Env(child.Root, f.Envs)
		f.Memory = int64(memoryShare * float64(limit))
		err := k.init(ctx, f, m.cfg.StartTime)
		if err == nil {
			return k, nil
		}
		k.kill("")
		if !spare || ctx.Err() != nil {
			return nil, err
		}
	}
}

// entropy gives 64 bytes that no copy of this sandbox has, nor another context.
func (m *Manager) entropy() []byte {
	m.seeding.Lock()
	defer m.seeding.Unlock()
	m.seeds++
	h := sha512.New()
	h.Write(m.base)
	h.Write(binary.BigEndian.AppendUint64(nil, m.seeds))
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh)
	h.Write(fresh)
	return h.Sum(nil)
}

func (m *Manager) wantSpares() {
	select {
	case m.refill <- struct{}{}:
	default:
	}
}

// keepSpares forks spares ahead, at times when nobody waits for anything. Most
// sandboxes have one context all their life, and a spare takes as much memory as
// that, so what the first context took is replaced when a second one comes.
func (m *Manager) keepSpares() {
	for range m.refill {
		for m.missingSpares() {
			asked := m.cfg.Clock.Now()
			for !m.quiet() && m.cfg.Clock.Now().Sub(asked) < refillAnyway {
				<-m.cfg.Clock.After(quietTime)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*m.cfg.StartTime)
			err := m.addSpare(ctx)
			cancel()
			if err != nil {
				m.cfg.Log.Warn("no spare interpreter", "error", err)
				break // the next context asks again
			}
		}
		m.mu.Lock()
		closed := m.closed
		m.mu.Unlock()
		if closed {
			return
		}
	}
}

func (m *Manager) missingSpares() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spares = slices.DeleteFunc(m.spares, func(k *interp) bool { return !k.alive() })
	return !m.closed && m.warm != nil && m.taken > 1 && len(m.spares) < m.limits.Spares
}

// quiet reports whether no user waits for a cell or a context, or did just now.
func (m *Manager) quiet() bool {
	m.mu.Lock()
	recent := m.creating > 0 || m.cfg.Clock.Now().Sub(m.last) < quietTime
	m.mu.Unlock()
	return !recent && !m.Busy()
}

func (m *Manager) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = m.cfg.Clock.Now()
}

// Assign makes the limits of this sandbox hold, also for contexts that came
// with a snapshot.
func (m *Manager) Assign(l Limits) {
	m.seeding.Lock()
	m.base = l.Entropy
	m.seeding.Unlock()
	m.mu.Lock()
	m.limits = l
	m.last = m.cfg.Clock.Now() // the spares wait until the first cell is done
	contexts := m.all()
	m.mu.Unlock()
	if l.Reseed {
		for _, c := range contexts {
			c.wantReseed()
		}
	}
	m.wantSpares()
}

// Rehearse lets the spares rehearse again, and ends those that can't.
func (m *Manager) Rehearse(ctx context.Context) error {
	m.mu.Lock()
	spares := slices.Clone(m.spares)
	m.mu.Unlock()
	var errs []error
	for _, k := range spares {
		if err := k.rehearse(ctx, m.cfg.StartTime); err != nil {
			k.kill("")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// all gives the contexts in order. The lock is held.
func (m *Manager) all() []*Context {
	list := make([]*Context, 0, len(m.order))
	for _, id := range m.order {
		list = append(list, m.contexts[id])
	}
	return list
}

// List describes all contexts, oldest first.
func (m *Manager) List() []api.Context {
	m.mu.Lock()
	contexts := m.all()
	m.mu.Unlock()
	list := make([]api.Context, 0, len(contexts))
	for _, c := range contexts {
		list = append(list, c.Info())
	}
	return list
}

// Busy reports whether a cell runs or waits.
func (m *Manager) Busy() bool {
	for _, c := range m.List() {
		if c.RunningID != "" || c.Queued > 0 {
			return true
		}
	}
	return false
}

// Describe says for health what the interpreters are doing.
func (m *Manager) Describe() map[string]any {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := map[string]any{"spares": len(m.spares), "zygote": "none"}
	if m.zygote != nil {
		d["zygote"] = "dead"
		if m.zygote.alive() {
			d["zygote"] = "alive"
		}
	}
	return d
}

var languages = []string{"", "python", "py", "python3"}

// Create makes a context.
func (m *Manager) Create(ctx context.Context, req api.CreateContextRequest) (*Context, error) {
	if !slices.Contains(languages, strings.ToLower(req.Language)) {
		return nil, fault.InvalidField("language", "there is no kernel for %q", req.Language).
			WithHint("languages with a kernel: python; run others with a command")
	}
	if req.ID == "" {
		var id [8]byte
		_, _ = rand.Read(id[:])
		req.ID = hex.EncodeToString(id[:])
	}
	if err := guestapi.CheckID("id", req.ID); err != nil {
		return nil, err
	}
	if req.CWD == "" {
		req.CWD = m.cfg.Workspace
	}
	c := newContext(m, req)
	m.mu.Lock()
	switch {
	case m.contexts[req.ID] != nil:
		m.mu.Unlock()
		return nil, fault.New(api.CodeConflict, "there is a context %s already", req.ID)
	case len(m.contexts) >= guestapi.MaxContexts:
		m.mu.Unlock()
		return nil, fault.New(api.CodeRateLimited, "there are %d contexts already, the most a sandbox may have", guestapi.MaxContexts).
			WithHint("close some of them first")
	}
	m.contexts[req.ID] = c
	m.order = append(m.order, req.ID)
	m.creating++
	m.mu.Unlock()
	err := c.start(ctx)
	m.mu.Lock()
	m.creating--
	m.last = m.cfg.Clock.Now()
	m.mu.Unlock()
	if err != nil {
		m.remove(c)
		return nil, noInterpreter(ctx, err)
	}
	go c.loop()
	return c, nil
}

// noInterpreter says why a context got none. What runs in a sandbox can do away
// with its Python, and that is no failure of ours.
func noInterpreter(ctx context.Context, err error) error {
	var f *fault.Error
	if errors.As(err, &f) || ctx.Err() != nil {
		return err
	}
	return fault.Wrap(err, api.CodeConflict, "this sandbox's Python does not start: %v", err).
		WithHint("something that ran in the sandbox damaged it; make another one")
}

// Context finds a context.
func (m *Manager) Context(id string) (*Context, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.contexts[id]; c != nil {
		return c, nil
	}
	err := fault.New(api.CodeNotFound, "there is no context %s in this sandbox", id)
	if len(m.order) > 0 {
		return nil, err.WithHint("there are %s", strings.Join(m.order[:min(len(m.order), 10)], ", "))
	}
	return nil, err.WithHint("there is none at all yet")
}

// Remove closes a context.
func (m *Manager) Remove(id string) error {
	c, err := m.Context(id)
	if err != nil {
		return err
	}
	m.remove(c)
	return nil
}

func (m *Manager) remove(c *Context) {
	m.mu.Lock()
	if m.contexts[c.info.ID] == c {
		delete(m.contexts, c.info.ID)
		m.order = slices.DeleteFunc(m.order, func(id string) bool { return id == c.info.ID })
	}
	m.mu.Unlock()
	c.close()
	m.wantSpares()
}

// Run queues a cell, or finds the one that has its id already.
func (m *Manager) Run(cid string, req guestapi.RunRequest) (*Execution, error) {
	if err := guestapi.CheckID("execution_id", req.ExecutionID); err != nil {
		return nil, err
	}
	what := []byte(req.Code)
	if req.Ask != nil {
		if err := guestapi.CheckAsk(*req.Ask); err != nil {
			return nil, err
		}
		what = append([]byte(req.Ask.Type), req.Ask.Content...)
	} else if req.Notebook == nil { // a notebook may run a cell that is empty
		if err := guestapi.CheckCode(req.Code); err != nil {
			return nil, err
		}
	}
	switch {
	case len(req.Code) > guestapi.MaxCode:
		return nil, guestapi.CheckCode(req.Code)
	case req.TimeoutMS < 0 || req.TimeoutMS > maxTimeoutMS:
		return nil, fault.InvalidField("timeout_ms", "timeout_ms must lie between 1 and %d, not %d", int64(maxTimeoutMS), req.TimeoutMS)
	}
	c, err := m.Context(cid)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(what)
	m.mu.Lock()
	if old, ok := m.seen[req.ExecutionID]; ok {
		m.mu.Unlock()
		if old.context != cid {
			return nil, fault.New(api.CodeConflict, "the execution id %s was used in the context %s", req.ExecutionID, old.context).
				WithHint("every execution needs an id of its own")
		}
		if old.digest != digest {
			return nil, fault.New(api.CodeConflict, "the execution id %s was used for other code", req.ExecutionID).
				WithHint("every execution needs an id of its own")
		}
		return m.Execution(cid, req.ExecutionID)
	}
	// Whoever finds the id used must find the execution: until both can be seen the
	// lock is held.
	defer m.mu.Unlock()
	m.outputs++
	m.last = m.cfg.Clock.Now()
	ex := &Execution{
		ID: req.ExecutionID, code: req.Code, note: req.Notebook, ask: req.Ask, digest: digest, timeout: time.Duration(req.TimeoutMS) * time.Millisecond,
		settled: make(chan struct{}),
		Log: eventlog.New(eventlog.Options{
			Head: guestapi.KeepHead, Tail: guestapi.KeepTail, Text: true, MaxOther: maxResults,
			Spill: &eventlog.Spill{
				Path: filepath.Join(m.cfg.OutputDir, fmt.Sprintf("execution-%d.log", m.outputs)), Max: guestapi.MaxOutputFile, Keep: KeepFiles,
			},
		}),
	}
	if ex.timeout == 0 {
		ex.timeout = defaultTimeout
	}
	if err := c.enqueue(ex); err != nil {
		return nil, err // it will not run, so its id is free
	}
	m.remember(req.ExecutionID, seen{cid, digest})
	return ex, nil
}

// remember keeps an id from being used again. The lock is held.
func (m *Manager) remember(id string, s seen) {
	m.seen[id] = s
	m.seenIDs = append(m.seenIDs, id)
	if len(m.seenIDs) > rememberIDs {
		delete(m.seen, m.seenIDs[0])
		m.seenIDs = m.seenIDs[1:]
	}
}

// Execution finds an execution of a context.
func (m *Manager) Execution(cid, eid string) (*Execution, error) {
	c, err := m.Context(cid)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	ex := c.execs[eid]
	c.mu.Unlock()
	if ex != nil {
		return ex, nil
	}
	m.mu.Lock()
	_, known := m.seen[eid]
	m.mu.Unlock()
	if known {
		return nil, fault.New(api.CodeNotFound, "the execution %s has ended and its output is no longer kept", eid).
			WithHint("it is not run again: its id stays used")
	}
	return nil, fault.New(api.CodeNotFound, "there is no execution %s in the context %s", eid, cid)
}

// finished keeps an execution for those that attach later, and lets go of the
// oldest when there are many.
func (m *Manager) finished(ex *Execution, c *Context) {
	m.touch()
	m.mu.Lock()
	defer m.mu.Unlock()
	ex.code = ""
	if ex.ranShort() {
		m.short++
	}
	size := ex.Log.Size()
	m.ended = append(m.ended, endedExecution{ex, c, size})
	m.keptSize += size
	for len(m.ended) > keepFinished || (m.keptSize > keepBytes && len(m.ended) > 1) {
		old := m.ended[0]
		m.ended = m.ended[1:]
		m.keptSize -= old.size
		old.c.mu.Lock()
		delete(old.c.execs, old.ex.ID)
		old.c.mu.Unlock()
	}
}

// Short counts the cells that got a MemoryError.
func (m *Manager) Short() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.short
}

// Victim is a context that could be ended to free memory.
type Victim struct {
	Name string
	PID  int
	Kill func()
}

// Victims lists the contexts that have an interpreter.
func (m *Manager) Victims() []Victim {
	m.mu.Lock()
	contexts := m.all()
	m.mu.Unlock()
	var list []Victim
	for _, c := range contexts {
		c.mu.Lock()
		k := c.k
		c.mu.Unlock()
		if k != nil && k.alive() {
			list = append(list, Victim{Name: "context " + c.info.ID, PID: k.pid, Kill: func() { k.kill(causeOOM) }})
		}
	}
	return list
}

// Close ends all interpreters.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	contexts, spares, z := m.all(), m.spares, m.zygote
	m.spares = nil
	m.mu.Unlock()
	for _, c := range contexts {
		m.remove(c)
	}
	for _, k := range spares {
		k.kill("")
	}
	if z != nil {
		z.stop()
	}
	m.wantSpares()
}
