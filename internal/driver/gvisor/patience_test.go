package gvisor

import (
	"context"
	"testing"
	"time"
)

// A restore may take as long as its caller waits, and what is usual at least.
func TestPatience(t *testing.T) {
	ctx := context.Background()
	if got := patience(ctx, restoreTimeout); got != restoreTimeout {
		t.Errorf("without a deadline: %s", got)
	}
	for _, allowed := range []time.Duration{time.Second, time.Hour} {
		ctx, cancel := context.WithTimeout(ctx, allowed)
		got := patience(ctx, restoreTimeout)
		cancel()
		if least := max(restoreTimeout, allowed); got < least || got > least+time.Second {
			t.Errorf("with %s: %s", allowed, got)
		}
	}
}
