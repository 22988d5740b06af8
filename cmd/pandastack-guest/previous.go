//go:build previous

package main

import "github.com/pandastack/pandastack/internal/guestapi"

// With the tag "previous" this is the agent of the release before, as far as a
// host can tell: what the test of upgrades runs.
func init() { protocol = guestapi.OldestProtocol }
