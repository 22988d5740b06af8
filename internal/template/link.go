package template

import (
	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// listenGuest makes a link with package guest.
func listenGuest(dir, sandboxID string) (Link, error) {
	return nil, fault.New(api.CodeUnsupported, "not yet")
}
