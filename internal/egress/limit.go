package egress

import (
	"sync"
	"time"
)

// Limits as their owner is told of them: fields of the policy, and bounds that
// every sandbox has.
const (
	limitFlows     = "network.flows"
	limitFlowRate  = "network.flow_rate"
	limitBytes     = "network.bytes"
	limitNames     = "network.names"
	limitQuestions = "network.questions"
)

// Why the stack turns a connection away that it has no room for.
const (
	TooMany      = "too many connections at once"
	TooManyOfAll = "too many connections of all sandboxes at once"
)

// Hit is a limit that a sandbox has met.
type Hit struct {
	Limit  string
	Hits   int64 // since its network was opened
	Detail string
}

const hitAgain = time.Minute // between two times that one limit is told of

// hits counts how often a sandbox met its limits.
type hits struct {
	mu   sync.Mutex
	of   map[string]int64
	told map[string]time.Time
}

// limited notes that a limit was met.
func (s *Sandbox) limited(limit, detail string) {
	now := s.engine.now()
	h := &s.hits
	h.mu.Lock()
	if h.of == nil {
		h.of, h.told = map[string]int64{}, map[string]time.Time{}
	}
	h.of[limit]++
	hit := Hit{limit, h.of[limit], detail}
	last, before := h.told[limit]
	again := !before || now.Sub(last) >= hitAgain
	if again {
		h.told[limit] = now
	}
	h.mu.Unlock()
	if again {
		s.engine.opt.Limited(s.id, hit)
	}
}
