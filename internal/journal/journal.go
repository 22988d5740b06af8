// Package journal keeps what happens to sandboxes and lets others follow it.
// The domain notes events; package httpapi reads and streams them.
//
// Noting never waits: events go through a queue to the store, in which every
// reader then looks by itself, so that a slow one holds up nobody and can only
// miss what is no longer kept, which it is told. The journal never decides what
// is worth noting or who may read it.
package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	queueSize = 4096
	batchSize = 256
	page      = 256 // events that a reader holds at once
	writeTime = 15 * time.Second
)

// Store is where events are kept.
type Store interface {
	AddEvents(ctx context.Context, events []store.Event) error
	EventsAfter(ctx context.Context, q store.EventsOf, after int64, limit int) ([]store.Event, error)
	LastEvents(ctx context.Context, q store.EventsOf, limit int) ([]store.Event, error)
	LastEvent(ctx context.Context) (int64, error)
	ForgottenEvents(ctx context.Context, owner string) (int64, error)
	PruneEvents(ctx context.Context, before time.Time, keep int) error
}

var _ Store = (*store.Store)(nil)

// Of says whose events are meant.
type Of = store.EventsOf

// Journal is the events of one daemon. Close it after whoever notes, and before
// the store.
type Journal struct {
	store Store
	log   *slog.Logger
	queue chan entry
	ended chan struct{} // closed when all is written

	mu      sync.Mutex
	closed  bool
	lost    int64         // since the last that was written
	missed  int64         // in all
	stopped chan struct{} // closed by EndStreams
	written chan struct{} // closed and replaced after every write
}

// entry is an event to be kept, or a mark that says when all before it are.
type entry struct {
	event store.Event
	mark  chan struct{}
}

// New makes a Journal on a store.
func New(st Store, log *slog.Logger) *Journal {
	j := &Journal{store: st, log: log, queue: make(chan entry, queueSize), ended: make(chan struct{}), written: make(chan struct{}), stopped: make(chan struct{})}
	go j.write()
	return j
}

// Note keeps an event. It does not wait; when the store is too slow the event
// is counted as lost, and an event of type events_lost says so.
func (j *Journal) Note(e store.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	select {
	case j.queue <- entry{event: e}:
	default:
		j.lost++
		j.missed++
	}
}

// Lost counts the events that could not be kept.
func (j *Journal) Lost() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.missed
}

// EndStreams ends whatever follows, and what begins to follow from now on, so
// that nobody holds up the end of the daemon. Events are kept as before.
func (j *Journal) EndStreams() {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.stopped:
	default:
		close(j.stopped)
	}
}

// Close writes what is left.
func (j *Journal) Close() {
	j.mu.Lock()
	if !j.closed {
		j.closed = true
		close(j.queue)
	}
	j.mu.Unlock()
	<-j.ended
}

func (j *Journal) write() {
	defer close(j.ended)
	for first := range j.queue {
		batch, marks := j.collect(first)
		if len(batch) > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), writeTime)
			err := j.store.AddEvents(ctx, batch)
			cancel()
			j.mu.Lock()
			if err != nil {
				j.lost += int64(len(batch))
				j.missed += int64(len(batch))
			}
			close(j.written)
			j.written = make(chan struct{})
			j.mu.Unlock()
			if err != nil {
				j.log.Error("events could not be kept", "count", len(batch), "error", err)
			}
		}
		for _, m := range marks {
			close(m)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.written) // nothing more will come
}

// collect takes what is in the queue, up to a mark.
func (j *Journal) collect(e entry) (batch []store.Event, marks []chan struct{}) {
	j.mu.Lock()
	if j.lost > 0 {
		batch = append(batch, store.Event{At: time.Now(), Type: api.LifeEventsLost, Payload: map[string]any{"count": j.lost}})
		j.lost = 0
	}
	j.mu.Unlock()
	for {
		if e.mark != nil {
			return batch, append(marks, e.mark)
		}
		batch = append(batch, e.event)
		if len(batch) >= batchSize {
			return batch, marks
		}
		select {
		case next, ok := <-j.queue:
			if !ok {
				return batch, marks
			}
			e = next
		default:
			return batch, marks
		}
	}
}

// settle waits until everything that was noted is written.
func (j *Journal) settle(ctx context.Context) error {
	mark := make(chan struct{})
	for {
		j.mu.Lock()
		if j.closed {
			j.mu.Unlock()
			<-j.ended
			return nil
		}
		written := j.written
		select {
		case j.queue <- entry{mark: mark}:
			j.mu.Unlock()
			select {
			case <-mark:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		default:
		}
		j.mu.Unlock()
		select {
		case <-written:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Last gives the last events, the oldest of them first.
func (j *Journal) Last(ctx context.Context, q store.EventsOf, limit int) ([]api.LifeEvent, error) {
	if err := j.settle(ctx); err != nil {
		return nil, err
	}
	list, err := j.store.LastEvents(ctx, q, limit)
	return shown(list), err
}

// After gives at most limit events that come after a number, with a gap first
// when some of them are no longer kept.
func (j *Journal) After(ctx context.Context, q store.EventsOf, after int64, limit int) ([]api.LifeEvent, error) {
	if err := j.settle(ctx); err != nil {
		return nil, err
	}
	return j.after(ctx, q, after, limit)
}

func (j *Journal) after(ctx context.Context, q store.EventsOf, after int64, limit int) ([]api.LifeEvent, error) {
	list, err := j.store.EventsAfter(ctx, q, after, limit)
	if err != nil {
		return nil, err
	}
	// Looked up afterwards: what was forgotten between the two is a gap, too.
	through, err := j.store.ForgottenEvents(ctx, q.Owner)
	if err != nil {
		return nil, err
	}
	out := shown(list)
	if through > after {
		if len(list) > 0 {
			through = min(through, list[0].N-1)
		}
		if through > after {
			gap := api.LifeEvent{
				ID: through, Time: time.Now().UTC(), SandboxID: q.SandboxID, Type: api.LifeGap, Payload: map[string]any{"after": after, "through": through},
			}
			out = append([]api.LifeEvent{gap}, out...)
		}
	}
	return out, nil
}

// Follow gives events as they happen: those above after, or the last tail ones
// when after is negative, and then whatever comes. It ends with the context,
// with the journal, and after the last event of the one sandbox that is meant.
func (j *Journal) Follow(ctx context.Context, q store.EventsOf, after int64, tail int) iter.Seq2[api.LifeEvent, error] {
	return func(yield func(api.LifeEvent, error) bool) {
		if err := j.follow(ctx, q, after, tail, yield); err != nil {
			yield(api.LifeEvent{}, err)
		}
	}
}

func (j *Journal) follow(ctx context.Context, q store.EventsOf, after int64, tail int, yield func(api.LifeEvent, error) bool) error {
	if err := j.settle(ctx); err != nil {
		return err
	}
	if after < 0 {
		var err error
		if after, err = j.store.LastEvent(ctx); err != nil {
			return err
		}
		if tail > 0 {
			list, err := j.store.LastEvents(ctx, q, tail)
			if err != nil {
				return err
			}
			for _, e := range shown(list) {
				if !yield(e, nil) || q.SandboxID != "" && e.Type == api.LifeEnded {
					return nil
				}
			}
			if len(list) > 0 {
				after = max(after, list[len(list)-1].N)
			}
		}
	}
	for {
		j.mu.Lock()
		written := j.written
		j.mu.Unlock()
		list, err := j.after(ctx, q, after, page)
		if err != nil {
			return err
		}
		for _, e := range list {
			after = e.ID
			if !yield(e, nil) || q.SandboxID != "" && e.Type == api.LifeEnded {
				return nil
			}
		}
		if len(list) >= page {
			continue
		}
		select {
		case <-j.ended:
			return errEnded
		default:
		}
		select {
		case <-written:
		case <-j.stopped:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var errEnded = errors.New("the journal was closed")

// Keep forgets old events again and again until the context ends: those that
// are older than age, and of each owner all but the newest.
func (j *Journal) Keep(ctx context.Context, age time.Duration, count int) {
	const every = time.Minute
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := j.Prune(ctx, age, count); err != nil && ctx.Err() == nil {
			j.log.Error("old events could not be forgotten", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Prune forgets old events now.
func (j *Journal) Prune(ctx context.Context, age time.Duration, count int) error {
	if age <= 0 || count <= 0 {
		return fmt.Errorf("events cannot be kept for %s and %d of each owner", age, count)
	}
	if err := j.settle(ctx); err != nil {
		return err
	}
	return j.store.PruneEvents(ctx, time.Now().Add(-age), count)
}

func shown(list []store.Event) []api.LifeEvent {
	out := make([]api.LifeEvent, len(list))
	for i, e := range list {
		if e.Payload == nil {
			e.Payload = map[string]any{}
		}
		out[i] = api.LifeEvent{ID: e.N, Time: e.At, SandboxID: e.SandboxID, Type: e.Type, Payload: e.Payload}
	}
	return out
}
