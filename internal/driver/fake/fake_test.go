package fake_test

import (
	"testing"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/fake"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) *drivertest.Fixture {
		h := fake.NewHost()
		return &drivertest.Fixture{
			Driver: fake.New(h),
			Spec:   driver.Spec{Snapshot: t.TempDir(), DiskMB: 64, Limits: driver.Limits{CPU: 1, MemoryMB: 256, PIDs: 100}},
			Can:    []string{"Limiter", "Pauser", "Retargeter", "Snapshotter"},
			Exit:   func(t *testing.T, id string, code int) { h.End(id, driver.Exit{Code: code, Reason: "exited"}) },
			Kill: func(t *testing.T, id string) {
				h.End(id, driver.Exit{Code: -1, Reason: "crashed", Detail: "killed by the test"})
			},
			Reopen:    func(t *testing.T) driver.Driver { return fake.New(h) },
			Leftovers: func(t *testing.T) []string { return h.IDs() },
		}
	})
}
