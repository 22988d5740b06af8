package sandbox_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "of TestRandomLives; 0: another one each time")
	livesFlag = flag.Duration("lives", 8*time.Second, "how long TestRandomLives tries to break things")
)

// life is what a user knows of one of their sandboxes.
type life struct {
	id      string
	expires time.Time
	killed  bool // a kill has returned
	dying   bool // it was made to end by itself
}

// TestRandomLives has users create, kill, renew, pause and use sandboxes, some
// at the same moment, while sandboxes die, clocks go on and are set, the host
// fails now and then, and the daemon is started anew. After each round what is
// on the host, in the store and in users' hands must be the same, and in the
// end nothing is left. `go test -run RandomLives -seed N` tries one again, as
// far as the scheduler lets it.
func TestRandomLives(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)
	end := time.Now().Add(*livesFlag)
	if testing.Short() {
		end = time.Now().Add(time.Second)
	}
	const users, most = 4, 12
	r := newRig(t, func(c *sandbox.Config) {
		c.MaxSandboxes = most
		c.Pool = map[string]sandbox.PoolSize{"base": {Restored: 2, Prepared: 1}}
		c.Concurrency = 3
		c.CreateTimeout, c.LinkWait = 5*time.Second, time.Second
	})
	var daemon sync.RWMutex // held while the daemon must stay; creates see its end
	var all [users][]*life
	var creates, ends atomic.Int64

	rounds := 0
	for ; time.Now().Before(end) && !t.Failed(); rounds++ {
		random := rand.New(rand.NewPCG(seed, uint64(rounds)))
		var wg sync.WaitGroup
		var first [users]string // a sandbox of each, for the others to reach for
		for u := range users {
			if len(all[u]) > 0 {
				first[u] = all[u][0].id
			}
		}
		for u := range users {
			mine := rand.New(rand.NewPCG(random.Uint64(), uint64(u)))
			wg.Go(func() {
				owner := string(rune('a' + u))
				for range 12 {
					all[u] = r.act(t, &daemon, mine, owner, all[u], first[(u+1)%users], &creates)
				}
			})
		}
		wg.Go(func() { r.misfortune(t, &daemon, random, &ends) })
		wg.Wait()
		r.host.Break(fake.Faults{})
		r.agree(t, all[:])
		for u := range all { // the past is past
			var rest []*life
			for _, l := range all[u] {
				if !l.killed && !l.dying && r.clock.Now().Before(l.expires) {
					rest = append(rest, l)
				}
			}
			all[u] = rest
		}
	}
	t.Logf("%d rounds, %d creates, %d ends by themselves", rounds, creates.Load(), ends.Load())
	r.killAll()
	for range most { // no place was lost on the way
		r.create(api.CreateSandboxRequest{})
	}
	r.change = nil // no pool
	r.restart()
	r.killAll()
	r.clean()
}

func (r *rig) killAll() {
	r.t.Helper()
	list, err := r.List(context.Background(), "", sandbox.ListFilter{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, info := range list {
		if err := r.Kill(context.Background(), "", info.ID); err != nil {
			r.t.Errorf("killing what is left: %v", err)
		}
	}
}

// act is one thing that a user does.
func (r *rig) act(t *testing.T, daemon *sync.RWMutex, random *rand.Rand, owner string, mine []*life, foreign string, creates *atomic.Int64) []*life {
	ctx := context.Background()
	daemon.RLock()
	m := r.Manager
	daemon.RUnlock()
	if random.IntN(3) == 0 || len(mine) == 0 {
		ttl := 20 + random.IntN(100)
		req := api.CreateSandboxRequest{TTLSeconds: &ttl, Metadata: map[string]string{"of": owner}}
		if random.IntN(4) == 0 {
			req.MemoryMB = ptr(256) // not one of the pool
		}
		if random.IntN(4) == 0 { // the client goes away
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
			defer cancel()
		}
		info, err := m.Create(ctx, owner, req)
		if err == nil {
			creates.Add(1)
			mine = append(mine, &life{id: info.ID, expires: info.ExpiresAt})
		}
		return mine
	}
	daemon.RLock()
	defer daemon.RUnlock()
	m = r.Manager
	l := mine[random.IntN(len(mine))]
	kill := func() {
		err := m.Kill(ctx, owner, l.id)
		if err != nil && !errors.Is(err, fault.NotFound) && !errors.Is(err, errStuck) {
			t.Errorf("Kill: %v", err)
		}
		l.killed = l.killed || err == nil
	}
	renew := func(seconds int) {
		got, err := m.PatchLifecycle(ctx, owner, l.id, api.LifecyclePatch{TTLSeconds: &seconds})
		switch {
		case err == nil:
			l.expires = got.ExpiresAt
		case !errors.Is(err, fault.NotFound) && !errors.Is(err, fault.Conflict):
			t.Errorf("PatchLifecycle: %v", err)
		}
	}
	switch random.IntN(7) {
	case 0, 1:
		kill()
	case 2:
		renew(20 + random.IntN(100))
	case 3: // both at once: whoever is first, a killed one stays killed
		var wg sync.WaitGroup
		wg.Go(kill)
		wg.Go(func() {
			_, _ = m.PatchLifecycle(ctx, owner, l.id, api.LifecyclePatch{TTLSeconds: ptr(1000)})
		})
		wg.Wait()
		l.killed = true
	case 4:
		_ = m.Pause(ctx, owner, l.id)
		_ = m.Resume(ctx, owner, l.id)
	case 5:
		if c, done, err := m.Guest(ctx, owner, l.id); err == nil {
			_, _ = c.Health(ctx)
			done()
		}
	case 6:
		if foreign != "" {
			if err := m.Kill(ctx, owner, foreign); !errors.Is(err, fault.NotFound) {
				t.Errorf("killing what is somebody else's: %v", err)
			}
		}
	}
	return mine
}

var errStuck = errors.New("the host is busy")

// misfortune is what befalls the host in one round.
func (r *rig) misfortune(t *testing.T, daemon *sync.RWMutex, random *rand.Rand, ends *atomic.Int64) {
	for range 3 {
		switch random.IntN(6) {
		case 0:
			var n atomic.Uint64
			odds := 2 + random.Uint64N(4)
			fail := func(context.Context, string) error {
				if n.Add(1)%odds == 0 {
					return errStuck
				}
				return nil
			}
			r.host.Break(fake.Faults{Prepare: fail, Restore: fail, Stop: func(id string) error { return fail(context.Background(), id) }})
		case 1:
			r.host.Break(fake.Faults{})
		case 2:
			if ids := r.host.IDs(); len(ids) > 0 {
				ends.Add(1)
				r.host.End(ids[random.IntN(len(ids))], driver.Exit{Code: 137, Reason: []string{"oom", "crashed", "exited"}[random.IntN(3)]})
			}
		case 3:
			r.clock.advance(time.Duration(random.IntN(20)) * time.Second)
		case 4:
			r.clock.setBy(time.Duration(random.IntN(7200)-3600) * time.Second)
		case 5:
			r.host.Break(fake.Faults{}) // or its end would say that the pool could not be freed
			daemon.Lock()
			r.restart()
			daemon.Unlock()
		}
		daemon.RLock()
		_, _ = r.List(context.Background(), "", sandbox.ListFilter{}) // it has taken over
		_ = r.Sweep(context.Background())                             // says what could not be ended
		daemon.RUnlock()
	}
}

// agree checks that users, store and host say the same.
func (r *rig) agree(t *testing.T, all [][]*life) {
	t.Helper()
	ctx := context.Background()
	eventually(t, "nothing is stuck", func() bool {
		list, err := r.List(ctx, "", sandbox.ListFilter{Status: api.StatusStopping})
		return r.Sweep(ctx) == nil && err == nil && len(list) == 0
	})
	now := r.clock.Now()
	listed := map[string]api.SandboxInfo{}
	for u := range all {
		owner := string(rune('a' + u))
		list, err := r.List(ctx, owner, sandbox.ListFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range list {
			if info.Metadata["of"] != owner {
				t.Errorf("%s is shown to %s and is of %s", info.ID, owner, info.Metadata["of"])
			}
			if info.Status != api.StatusFailed {
				listed[info.ID] = info
			}
		}
		known := map[string]bool{}
		for _, l := range all[u] {
			known[l.id] = true
			info, alive := listed[l.id]
			_, err := r.Get(ctx, owner, l.id)
			switch {
			case alive && l.killed:
				t.Errorf("%s was killed and is %s", l.id, info.Status)
			case alive && !now.Before(info.ExpiresAt):
				t.Errorf("%s is over its time since %s and is %s", l.id, now.Sub(info.ExpiresAt), info.Status)
			case alive:
				l.expires = info.ExpiresAt
			case !l.killed && err == nil: // it ended by itself, and says so
				l.dying = true
			case !l.killed && !errors.Is(err, fault.NotFound):
				t.Errorf("%s: %v", l.id, err)
			}
		}
		for id := range listed {
			if listed[id].Metadata["of"] == owner && !known[id] {
				t.Errorf("%s runs, and no create has answered with it", id)
			}
		}
	}
	onHost := map[string]bool{}
	for _, id := range r.host.IDs() {
		onHost[id] = true
	}
	for id, info := range listed {
		if !onHost[id] {
			t.Errorf("%s is said to be %s and is not on the host", id, info.Status)
		}
	}
}
