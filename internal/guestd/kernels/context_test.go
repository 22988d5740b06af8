package kernels

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// Who waits for the next attempt at an interpreter is woken when the context
// is closed, and by no other change.
func TestCloseEndsTheWaitForAnInterpreter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContext(&Manager{}, api.CreateContextRequest{ID: "c"})
		began, rested := time.Now(), make(chan bool, 1)
		go func() { rested <- c.rest(time.Hour) }()
		synctest.Wait()
		c.mu.Lock()
		c.change()
		c.mu.Unlock()
		synctest.Wait()
		c.close()
		if <-rested || time.Since(began) != 0 {
			t.Errorf("it waited %s for a closed context", time.Since(began))
		}
		if c = newContext(&Manager{}, api.CreateContextRequest{ID: "d"}); !c.rest(time.Second) || time.Since(began) != time.Second {
			t.Errorf("of one second it waited %s", time.Since(began))
		}
	})
}

// A sandbox with one context, as most have, has no need of a spare interpreter.
func TestSparesAreForTheSecondContext(t *testing.T) {
	m := &Manager{warm: &guestapi.WarmRequest{}, limits: Limits{Spares: 1}}
	for taken, want := range []bool{false, false, true, true} {
		if m.taken = taken; m.missingSpares() != want {
			t.Errorf("after %d contexts, a spare is missing: %v", taken, !want)
		}
	}
}
