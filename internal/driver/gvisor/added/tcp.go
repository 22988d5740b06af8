//go:build ignore

package tcp

import (
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Lose ends a connection that leads out of the sandbox, as a reset from its other
// end does. It says whether it was one. Connections over the loopback stay: they
// are those that a snapshot also keeps.
func (e *Endpoint) Lose() bool {
	defer e.drainClosingSegmentQueue()
	e.LockUser()
	defer e.UnlockUser()
	if !e.EndpointState().connected() || e.route == nil || e.route.HasSaveRestoreCapability() {
		return false
	}
	e.resetConnectionLocked(&tcpip.ErrConnectionReset{})
	e.waiterQueue.Notify(waiter.EventHUp | waiter.EventErr | waiter.ReadableEvents | waiter.WritableEvents)
	return true
}
