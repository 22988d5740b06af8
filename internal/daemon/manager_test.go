package daemon

import (
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/config"
)

// What the operator sets is what creates and wakes have.
func TestCreateTimeoutIsTheOperators(t *testing.T) {
	for given, want := range map[string]time.Duration{"": time.Minute, "5m": 5 * time.Minute} {
		env := func(name string) (string, bool) {
			if name == "PANDASTACK_CREATE_TIMEOUT" {
				return given, given != ""
			}
			return "", false
		}
		cfg, err := config.Load(env, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := managerConfig(cfg, nil, nil, nil, nil, nil).CreateTimeout; got != want {
			t.Errorf("create_timeout %q gives creates %s", given, got)
		}
	}
}
