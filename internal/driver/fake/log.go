package fake

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/pandastack/pandastack/api"
)

// eventLog keeps the numbered output of one execution or process.
type eventLog struct {
	mu      sync.Mutex
	events  []api.Event
	ended   bool
	changed chan struct{} // closed and replaced at every event
}

func newEventLog() *eventLog { return &eventLog{changed: make(chan struct{})} }

func (l *eventLog) add(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	e.Seq = int64(len(l.events)) + 1
	l.events = append(l.events, e)
	l.ended = e.Type == api.EventEnd || e.Type == api.EventExit
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *eventLog) since(after int64) (news []api.Event, ended bool, changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	after = min(max(after, 0), int64(len(l.events)))
	return l.events[after:], l.ended, l.changed
}

// stream sends the events after a number as lines of JSON.
func (l *eventLog) stream(w http.ResponseWriter, r *http.Request, after int64, follow bool) error {
	flush := http.NewResponseController(w).Flush
	enc := json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	if err := flush(); err != nil {
		return nil // gone
	}
	for {
		news, ended, changed := l.since(after)
		if follow || ended {
			for _, e := range news {
				if err := enc.Encode(e); err != nil {
					return nil // gone
				}
				after = e.Seq
			}
			if ended {
				return nil
			}
			if err := flush(); err != nil {
				return nil // gone
			}
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return nil
		}
	}
}

func (l *eventLog) last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int64(len(l.events))
}
