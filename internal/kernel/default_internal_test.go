package kernel

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Whoever names no deadline, as published clients do, has 30 s.
func TestDefaultDeadline(t *testing.T) {
	for want, cfg := range map[time.Duration]Config{30 * time.Second: {}, 7 * time.Second: {DefaultTimeout: 7 * time.Second}} {
		s := New(nil, cfg)
		run, err := s.check(api.DefaultContext, api.RunRequest{Code: "1"})
		if err != nil || run.TimeoutMS != want.Milliseconds() {
			t.Errorf("the guest is told %d ms, %v", run.TimeoutMS, err)
		}
		if run, err = s.check(api.DefaultContext, api.RunRequest{Code: "1", TimeoutMS: 9}); err != nil || run.TimeoutMS != 9 {
			t.Errorf("of one that was named it is told %d ms, %v", run.TimeoutMS, err)
		}
		s.Close()
	}
}
