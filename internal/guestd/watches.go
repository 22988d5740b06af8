package guestd

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/watch"
)

// watches are those that somebody reads, or has read a moment ago.
type watches struct {
	mu   sync.Mutex
	byID map[string]*watched
}

// watched is one of them.
type watched struct {
	path      string
	recursive bool
	ready     chan struct{} // closed when it has begun, or has failed to
	err       error
	watcher   *watch.Watcher
	log       *watch.Log

	readers int // this and the rest: under the lock of watches
	idle    *time.Timer
	left    time.Time // when the last reader left
}

// join gives the watch with an id to one more reader, and begins it when there
// is none. Begun behind a number, it says that it is not the one there was.
func (ws *watches) join(id string, o watch.Options, after int64) (*watched, error) {
	ws.mu.Lock()
	w := ws.byID[id]
	switch {
	case w == nil && len(ws.byID) >= guestapi.MaxWatches && !ws.makeRoom():
		ws.mu.Unlock()
		return nil, fault.New(api.CodeRateLimited, "this sandbox has its maximum of %d watches", guestapi.MaxWatches).WithHint("end some of them")
	case w == nil:
		if ws.byID == nil {
			ws.byID = map[string]*watched{}
		}
		w = &watched{path: o.Path, recursive: o.Recursive, ready: make(chan struct{})}
		ws.byID[id] = w
		go w.begin(id, o, after)
	case w.path != o.Path || w.recursive != o.Recursive:
		ws.mu.Unlock()
		return nil, fault.New(api.CodeConflict, "the watch %s is of %s, recursive=%v", id, w.path, w.recursive).WithHint("take another id")
	}
	w.readers++
	if w.idle != nil {
		w.idle.Stop()
	}
	w.left = time.Time{}
	ws.mu.Unlock()
	<-w.ready
	if w.err != nil {
		ws.leave(id, w)
		return nil, w.err
	}
	return w, nil
}

func (w *watched) begin(id string, o watch.Options, after int64) {
	defer close(w.ready)
	if w.watcher, w.err = watch.Start(o); w.err != nil {
		return
	}
	w.log = watch.NewLog(after)
	w.log.Add(api.FileEvent{Type: api.FileStarted, WatchID: id})
	if after > 0 {
		w.log.Add(api.FileEvent{Type: api.FileOverflow, Reason: api.OverflowLost})
	}
	go func() {
		if w.watcher.Run(w.log.Add) {
			w.log.Add(api.FileEvent{Type: api.FileEnded, Reason: api.WatchRemoved})
		}
		w.watcher.Close()
	}()
}

// leave takes a reader away. The watch goes on for a while, for whom has lost
// the connection.
func (ws *watches) leave(id string, w *watched) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.readers--; w.readers > 0 {
		return
	}
	if w.err != nil {
		ws.end(id, w)
		return
	}
	w.left = time.Now()
	w.idle = time.AfterFunc(guestapi.KeepWatch, func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if w.readers == 0 {
			ws.end(id, w)
		}
	})
}

// makeRoom ends the watch that nobody has read for the longest. It reports false
// when all are read. The lock is held.
func (ws *watches) makeRoom() bool {
	var first string
	for id, w := range ws.byID {
		if !w.left.IsZero() && (first == "" || w.left.Before(ws.byID[first].left)) {
			first = id
		}
	}
	if first == "" {
		return false
	}
	ws.end(first, ws.byID[first])
	return true
}

// end closes a watch. The lock is held.
func (ws *watches) end(id string, w *watched) {
	if ws.byID[id] == w {
		delete(ws.byID, id)
	}
	if w.watcher != nil {
		w.watcher.Close()
	}
}

func (ws *watches) closeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id, w := range ws.byID {
		<-w.ready
		ws.end(id, w)
	}
}

// getWatch gives the events of a watch above a number, and those that come.
func (a *Agent) getWatch(w http.ResponseWriter, r *http.Request, path string) error {
	id := r.PathValue("id")
	if err := guestapi.CheckID("watch_id", id); err != nil {
		return err
	}
	after, _, err := afterAndFollow(r)
	if err != nil {
		return err
	}
	of, err := a.watches.join(id, watch.Options{Path: path, Recursive: r.URL.Query().Get("recursive") == "1"}, after)
	if err != nil {
		return err
	}
	defer a.watches.leave(id, of)
	if last := of.log.Last(); after > last {
		return fault.InvalidField("after", "there is no event after number %d: the last one is %d", after, last)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	enc := json.NewEncoder(w)
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		events, more, end := of.log.After(after, batch)
		for _, e := range events {
			if enc.Encode(e) != nil {
				return nil // the host is gone
			}
			after = e.Seq
		}
		if rc.Flush() != nil || end {
			return nil
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-alive.C:
			if _, err := w.Write([]byte("\n")); err != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}
