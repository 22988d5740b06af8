package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// keyed is a request with an idempotency key.
func keyed(key string, ttl int) api.CreateSandboxRequest {
	return api.CreateSandboxRequest{IdempotencyKey: key, TTLSeconds: &ttl, Metadata: map[string]string{"a": "1", "b": "2", "c": "3"}}
}

func TestTheSameKeyIsTheSameSandbox(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	first := r.create(keyed("k", 60))
	if again := r.create(keyed("k", 60)); again.ID != first.ID || again.Status != api.StatusRunning || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("again: %+v\nfirst: %+v", again, first)
	}
	if _, err := r.Create(ctx, "ann", keyed("k", 61)); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), first.ID) {
		t.Errorf("with other options: %v", err)
	}
	if other := r.create(keyed("l", 60)); other.ID == first.ID {
		t.Error("another key gives the same sandbox")
	}
	bobs, err := r.Create(ctx, "bob", keyed("k", 61))
	if err != nil || bobs.ID == first.ID {
		t.Errorf("bob's key of the same name: %+v, %v", bobs, err)
	}

	r.restart()
	if again := r.create(keyed("k", 60)); again.ID != first.ID {
		t.Errorf("after a restart: %s, want %s", again.ID, first.ID)
	}
	if err := r.Pause(ctx, "ann", first.ID); err != nil {
		t.Fatal(err)
	}
	if again := r.create(keyed("k", 60)); again.ID != first.ID || again.Status != api.StatusPaused {
		t.Errorf("paused: %+v", again)
	}
	if err := r.Kill(ctx, "ann", first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(ctx, "ann", keyed("k", 60)); !errors.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("after its end: %v", err)
	}
	if n := len(r.host.IDs()); n != 2 {
		t.Errorf("%d sandboxes on the host, want that of key l and bob's", n)
	}
}

func TestTheSameKeyAtOnce(t *testing.T) {
	for _, pooled := range []int{0, 2} {
		r := newRig(t, func(c *sandbox.Config) {
			c.Concurrency = 8
			c.Pool = map[string]sandbox.PoolSize{"base": {Restored: pooled}}
		})
		var ids sync.Map
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				info, err := r.Create(context.Background(), "ann", keyed("k", 60))
				if err != nil {
					t.Error(err)
				}
				ids.Store(info.ID, true)
			})
		}
		wg.Wait()
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		list, err := r.List(context.Background(), "ann", sandbox.ListFilter{})
		if n != 1 || err != nil || len(list) != 1 {
			t.Errorf("%d ids, %d sandboxes, %v", n, len(list), err)
		}
	}
}

// A create that failed, was given up, or that a daemon did not live to finish,
// leaves its key free.
func TestAKeyWithoutASandboxIsFree(t *testing.T) {
	r := newRig(t, nil)
	ctx := context.Background()
	r.host.Break(fake.Faults{Assign: func(string) error { return errors.New("boom") }})
	if _, err := r.Create(ctx, "ann", keyed("failed", 60)); err == nil {
		t.Fatal("it was created")
	}
	begun := make(chan struct{})
	r.host.Break(fake.Faults{Restore: func(ctx context.Context, _ string) error { close(begun); <-ctx.Done(); return ctx.Err() }})
	leaving, leave := context.WithCancel(ctx)
	gaveUp := make(chan error, 1)
	go func() { _, err := r.Create(leaving, "ann", keyed("given-up", 60)); gaveUp <- err }()
	<-begun
	leave()
	if err := <-gaveUp; err == nil {
		t.Error("it was created after its client left")
	}
	r.host.Break(fake.Faults{})

	// As it is when the daemon dies between keeping the key and opening the sandbox.
	row := store.Sandbox{ID: "sb-0000000000000001", Owner: "ann", State: store.Creating, Template: "base", Digest: "d1", Driver: "fake", CreatedAt: time.Now(), Generation: 1}
	if err := errors.Join(r.store.AddSandbox(ctx, row), r.store.AddCreate(ctx, store.Create{Owner: "ann", Key: "unfinished", Digest: []byte{1}, SandboxID: row.ID, At: time.Now()})); err != nil {
		t.Fatal(err)
	}
	r.restart()
	for _, key := range []string{"failed", "given-up", "unfinished"} {
		if info := r.create(keyed(key, 60)); info.Status != api.StatusRunning || info.ID == row.ID {
			t.Errorf("%s: %+v", key, info)
		}
	}
}

// After 24 hours a key is free, and its record is gone.
func TestKeysAreKeptForADay(t *testing.T) {
	const day = 24 * time.Hour
	r := newRig(t, func(c *sandbox.Config) { c.MaxTTL = 3 * day })
	first := r.create(keyed("k", 2*24*3600))
	r.clock.advance(day - time.Second)
	if again := r.create(keyed("k", 2*24*3600)); again.ID != first.ID {
		t.Errorf("within a day: %s, want %s", again.ID, first.ID)
	}
	r.clock.advance(time.Second)
	if again := r.create(keyed("k", 2*24*3600)); again.ID == first.ID {
		t.Error("after a day it is still the same")
	}
	r.clock.advance(day + time.Minute)
	if err := r.Sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if c, err := r.store.CreateOf(context.Background(), "ann", "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("kept: %+v, %v", c, err)
	}
}

// Each time the daemon dies in the middle, the client asks again, and there is
// one sandbox in the end.
func TestAKeyOutlivesTheDaemon(t *testing.T) {
	r := newRig(t, nil)
	var deaths atomic.Int32
	for _, at := range []string{"prepare", "restore"} {
		died := make(chan struct{})
		never := func(context.Context, string) error {
			deaths.Add(1)
			close(died)
			select {} // this daemon does nothing any more
		}
		if at == "prepare" {
			r.host.Break(fake.Faults{Prepare: never})
		} else {
			r.host.Break(fake.Faults{Restore: never})
		}
		go func() { _, _ = r.Create(context.Background(), "ann", keyed("k", 60)) }()
		<-died
		r.host.Break(fake.Faults{})
		r.store.Close() // and so does its lock
		r.stop = func() {}
		r.start()
	}
	info := r.create(keyed("k", 60))
	list, err := r.List(context.Background(), "ann", sandbox.ListFilter{})
	if err != nil || len(list) != 1 || list[0].ID != info.ID || len(r.host.IDs()) != 1 || deaths.Load() != 2 {
		t.Errorf("%+v, %v; on the host %q", list, err, r.host.IDs())
	}
}

func TestBadKeys(t *testing.T) {
	r := newRig(t, nil)
	for _, key := range []string{"a b", "a\x00b", "é", strings.Repeat("x", 256)} {
		_, err := r.Create(context.Background(), "ann", keyed(key, 60))
		var f *fault.Error
		if !errors.As(err, &f) || f.Field != "Idempotency-Key" {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}
