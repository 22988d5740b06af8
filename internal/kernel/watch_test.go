package kernel

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	e := execution{"sb", "ctx", "e"}
	for name, tc := range map[string]struct {
		do   func(w *watch)
		left bool
	}{
		"gone":         {func(w *watch) { w.run(e, false); w.leave(e, false) }, true},
		"ended":        {func(w *watch) { w.run(e, false); w.leave(e, true) }, false},
		"detached":     {func(w *watch) { w.run(e, true); w.leave(e, false) }, false},
		"one of two":   {func(w *watch) { w.run(e, false); w.attach(e); w.leave(e, false) }, false},
		"both":         {func(w *watch) { w.run(e, false); w.attach(e); w.leave(e, false); w.leave(e, false) }, true},
		"back in time": {func(w *watch) { w.run(e, false); w.leave(e, false); time.Sleep(9 * time.Second); w.attach(e) }, false},
		"back and gone": {func(w *watch) {
			w.run(e, false)
			w.leave(e, false)
			time.Sleep(9 * time.Second)
			w.attach(e)
			w.leave(e, false)
		}, true},
		"looked at":                     {func(w *watch) { w.run(e, true); w.leave(e, false); w.attach(e); w.leave(e, false) }, false},
		"of another time":               {func(w *watch) { w.attach(e) }, false},
		"daemon ends":                   {func(w *watch) { w.run(e, false); w.close(); w.leave(e, false) }, false},
		"daemon ends after it was left": {func(w *watch) { w.run(e, false); w.leave(e, false); w.close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left atomic.Int32
				w := newWatch(10*time.Second, func(execution) { left.Add(1) })
				tc.do(w)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if left.Load() > 0 {
					t.Error("too early")
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := left.Load(); (n == 1) != tc.left || n > 1 {
					t.Errorf("told %d times", n)
				}
			})
		})
	}
}

func TestWatchIsBounded(t *testing.T) {
	w := newWatch(time.Hour, func(execution) {})
	for i := range 2 * rememberDetached {
		e := execution{"sb", "ctx", string(rune(i))}
		w.run(e, true)
		w.leave(e, false)
	}
	if len(w.known) > rememberDetached {
		t.Errorf("%d are remembered", len(w.known))
	}
}
