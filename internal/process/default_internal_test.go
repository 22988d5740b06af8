package process

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Whoever names no deadline has a minute.
func TestDefaultDeadline(t *testing.T) {
	s := New(nil, Config{})
	defer s.Close()
	for seconds, want := range map[float64]time.Duration{0: time.Minute, 0.5: 500 * time.Millisecond} {
		if _, got, err := s.check(api.ExecRequest{Cmd: api.Command{Shell: "true"}, TimeoutSeconds: seconds}); err != nil || got != want {
			t.Errorf("asked for %v s: %s, %v", seconds, got, err)
		}
	}
}
