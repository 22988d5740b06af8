package sandbox

import (
	"errors"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/store"
)

// Whether a call may wake a sandbox is decided by the state that refused it, not
// by one that it has later: another call may have woken it in between.
func TestACallIsToldThatTheSandboxSlept(t *testing.T) {
	b := newBox(store.Sandbox{ID: "sb-1", State: store.Hibernated})
	_, _, err := b.begin(time.Now(), false, false)
	b.setRow(store.Sandbox{ID: "sb-1", State: store.Running})
	if !errors.Is(err, errAsleep) {
		t.Errorf("refused with %v", err)
	}
}
