package httpapi

import (
	"testing"
	"time"
)

// PingEvery has clients of WebSockets asked for more often during a test.
func PingEvery(t *testing.T, interval time.Duration) {
	before := wsPing
	wsPing = interval
	t.Cleanup(func() { wsPing = before })
}
