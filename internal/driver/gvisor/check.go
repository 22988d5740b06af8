package gvisor

import (
	"context"

	"github.com/pandastack/pandastack/internal/driver"
)

// Check implements driver.Driver.
func (d *Driver) Check(ctx context.Context) []driver.Check { return nil }
