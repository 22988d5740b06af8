package kernels

import (
	"log/slog"
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

// A new interpreter in the place of an idle one that was ended for its memory
// would take what has come free, be ended for that, and so on.
func TestAnInterpreterIsReplacedForLackOfMemoryOnlyWhenItIsNeeded(t *testing.T) {
	for _, needed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newContext(&Manager{cfg: Config{Log: slog.New(slog.DiscardHandler)}}, api.CreateContextRequest{ID: "c"})
			k := &interp{exit: newExit(), left: make(chan struct{}), cause: causeOOM}
			close(k.left)
			c.k, c.wanted = k, needed
			c.replace(k)
			want := map[bool]string{false: stateIdle, true: stateDead}[needed] // the manager has none to give
			if info := c.Info(); info.State != want || info.Incarnation != 2 || c.k != nil {
				t.Errorf("needed %t: %+v", needed, info)
			}
		})
	}
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
