package kernels

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestd/deadline"
)

func TestForkOfABusyContextIsRefusedAfterAWhile(t *testing.T) {
	late := make(chan time.Time, 1)
	asked := time.Duration(0)
	clock := deadline.Clock{Now: time.Now, After: func(d time.Duration) <-chan time.Time {
		asked = d
		return late
	}}
	c := newContext(&Manager{cfg: Config{Clock: clock}}, api.CreateContextRequest{ID: "c"})
	c.running = &Execution{}
	late <- time.Time{}
	_, _, err := c.hold(context.Background())
	var f *fault.Error
	if !errors.Is(err, fault.Conflict) || !errors.As(err, &f) || f.Hint == "" || asked != forkWait {
		t.Errorf("after %v: %v", asked, err)
	}
}
