package httpapi

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Rate is how many calls a workspace may make. The zero Rate is no limit.
type Rate struct {
	PerSecond int // in the long run
	Burst     int // at once
}

// throttle holds every workspace to its rate. Workspaces are those of valid
// keys, so that nobody can make it grow.
type throttle struct {
	Rate
	mu sync.Mutex
	of map[string]*rate.Limiter
}

// take counts a call, or refuses it before anything of it was done.
func (t *throttle) take(workspace string) error {
	if t.PerSecond == 0 {
		return nil
	}
	t.mu.Lock()
	l := t.of[workspace]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(t.PerSecond), t.Burst)
		t.of[workspace] = l
	}
	t.mu.Unlock()
	if l.Allow() {
		return nil
	}
	return fault.New(api.CodeRateLimited, "the workspace makes more than %d calls a second", t.PerSecond).
		WithHint("make fewer, or wait a second; the server's settings rate_limit and rate_burst say how many").
		After(time.Second)
}
