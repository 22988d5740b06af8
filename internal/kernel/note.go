package kernel

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

func (s *Service) note(owner, sid, kind string, payload map[string]any) {
	if s.cfg.Notes != nil {
		s.cfg.Notes.Note(owner, sid, kind, payload)
	}
}

// noteContext notes what became of a context that a user knows.
func (s *Service) noteContext(owner, sid, cid, kind string) {
	if !strings.HasPrefix(cid, oncePrefix) {
		s.note(owner, sid, kind, map[string]any{"context_id": cid})
	}
}

// ended counts a cell that ended and notes what is out of the ordinary, once,
// however many follow it.
func (s *Service) ended(owner string, e execution, x *api.Execution) {
	if x == nil || !s.told.first(e) {
		return
	}
	ran := time.Duration(min(x.DurationMS, s.cfg.MaxTimeout.Seconds()*1000) * float64(time.Millisecond))
	if s.cfg.Metrics != nil {
		s.cfg.Metrics.CellEnded(x.End, ran)
	}
	where := func(more map[string]any) map[string]any {
		more["context_id"], more["execution_id"] = e.context, e.id
		return more
	}
	if x.End != api.EndOK {
		payload := where(map[string]any{"end": string(x.End), "duration_ms": float64(ran.Microseconds()) / 1000, "state_survived": x.StateSurvived})
		if x.Step != "" {
			payload["step"] = x.Step
		}
		s.note(owner, e.sandbox, api.LifeCellEnded, payload)
	}
	if n := max(x.StdoutDropped, x.StderrDropped); n > 0 {
		s.note(owner, e.sandbox, api.LifeLimitHit, where(map[string]any{"limit": "output", "detail": "the middle of a cell's output was left out"}))
	}
}

// refused notes that a limit of the sandbox stood in the way.
func (s *Service) refused(owner, sid, limit string, err error) {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == api.CodeRateLimited {
		s.note(owner, sid, api.LifeLimitHit, map[string]any{"limit": limit, "detail": f.Message})
	}
}

// told remembers of which cells the end was counted already.
type told struct {
	mu    sync.Mutex
	known map[execution]bool
	order []execution
}

const rememberTold = 4096

func newTold() *told { return &told{known: map[execution]bool{}} }

// first is true the first time it is asked about an execution.
func (t *told) first(e execution) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[e] {
		return false
	}
	t.known[e] = true
	if t.order = append(t.order, e); len(t.order) > rememberTold {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
	return true
}
