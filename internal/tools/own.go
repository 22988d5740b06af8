package tools

import (
	"context"
	"encoding/json"
	"time"
)

// Server are the daemon's own functions, which sandboxes name in use as "server".
func Server(now func() time.Time) []Tool {
	return []Tool{
		{
			Name: "server.now", Source: "server", Description: "The time by the server's clock, as RFC 3339.",
			Returns: json.RawMessage(`{"type":"string","format":"date-time"}`),
			Do: func(context.Context, Call) (json.RawMessage, error) {
				return json.Marshal(now().UTC().Format(time.RFC3339Nano))
			},
		},
		{
			Name: "server.echo", Source: "server", Description: "Give back what it is given: for trying out, and for measuring.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"value":{"description":"Anything."}},"required":["value"],"additionalProperties":false}`),
			Do: func(_ context.Context, c Call) (json.RawMessage, error) {
				return member{schema: c.Arguments}.at("value"), nil
			},
		},
	}
}
