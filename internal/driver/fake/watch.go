package fake

import (
	"encoding/json"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// watched is a watch of files, which lives as long as the guest.
type watched struct {
	path      string
	recursive bool

	mu     sync.Mutex
	first  int64 // number before the first event
	events []api.FileEvent
	more   chan struct{} // closed and replaced at every event
}

func (w *watched) add(e api.FileEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Seq = w.first + int64(len(w.events)) + 1
	w.events = append(w.events, e)
	close(w.more)
	w.more = make(chan struct{})
}

// sees tells whether something at a path is watched.
func (w *watched) sees(p string) bool {
	return p == w.path || path.Dir(p) == w.path || w.recursive && strings.HasPrefix(p, strings.TrimSuffix(w.path, "/")+"/")
}

// changed tells those who watch.
func (g *Guest) changed(kind string, paths ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range paths {
		for _, w := range g.watches {
			if w.sees(p) {
				w.add(api.FileEvent{Type: kind, Path: p})
			}
		}
	}
}

// EndWatches says that what is watched is gone.
func (g *Guest) EndWatches() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.watches {
		w.add(api.FileEvent{Type: api.FileEnded, Reason: api.WatchRemoved})
	}
}

// ForgetWatches is as if nobody had read them for long.
func (g *Guest) ForgetWatches() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watches = nil
}

func (g *Guest) watch(w http.ResponseWriter, r *http.Request) error {
	q, id := r.URL.Query(), r.PathValue("id")
	after, err := strconv.ParseInt(q.Get("after"), 10, 64)
	if err != nil {
		return fault.InvalidField("after", "after is no number")
	}
	g.mu.Lock()
	of := g.watches[id]
	if of == nil {
		if _, there := g.stat(q.Get("path")); !there {
			g.mu.Unlock()
			return noFile(q.Get("path"))
		}
		of = &watched{path: q.Get("path"), recursive: q.Get("recursive") == "1", first: after, more: make(chan struct{})}
		of.add(api.FileEvent{Type: api.FileStarted, WatchID: id})
		if after > 0 {
			of.add(api.FileEvent{Type: api.FileOverflow, Reason: api.OverflowLost})
		}
		if g.watches == nil {
			g.watches = map[string]*watched{}
		}
		g.watches[id] = of
	}
	g.mu.Unlock()
	if of.path != q.Get("path") {
		return fault.New(api.CodeConflict, "the watch %s is of %s", id, of.path)
	}
	enc := json.NewEncoder(w)
	for {
		of.mu.Lock()
		events, more := of.events[min(max(after-of.first, 0), int64(len(of.events))):], of.more
		of.mu.Unlock()
		for _, e := range events {
			if enc.Encode(e) != nil || e.Type == api.FileEnded {
				return nil // the host is gone, or it is over
			}
			after = e.Seq
		}
		if http.NewResponseController(w).Flush() != nil {
			return nil // gone
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return nil
		}
	}
}
