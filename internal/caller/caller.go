// Package caller carries through a context who a request is from, so that what
// the domain notes, what is logged, and what the guest is asked can be led back
// to it. Package httpapi puts it in.
//
// It decides nothing: nobody may do more or less because of what stands here.
package caller

import (
	"context"
	"log/slog"
)

// Header carries the id of a request, from clients and on the link to the guest.
const Header = "X-Request-Id"

// Caller is who asks.
type Caller struct {
	RequestID string
	Key       string // the prefix of the API key; "" without one
}

type key struct{}

// With gives a context that carries a caller.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From gives the caller of a context, the zero value when there is none.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}

// Payload adds the caller to what an event says: by, the key's prefix, and
// request_id. It returns the map, made when nil.
func Payload(ctx context.Context, p map[string]any) map[string]any {
	if p == nil {
		p = map[string]any{}
	}
	c := From(ctx)
	if c.Key != "" {
		p["by"] = c.Key
	}
	if c.RequestID != "" {
		p["request_id"] = c.RequestID
	}
	return p
}

// ValidID reports whether a request id is fit for logs: 1 to 64 letters,
// digits, "-", "_" and ".".
func ValidID(id string) bool {
	ok := len(id) >= 1 && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	}
	return ok
}

// LogHandler adds the request id of the context to each line of a log.
func LogHandler(h slog.Handler) slog.Handler {
	if _, done := h.(handler); done {
		return h
	}
	return handler{h}
}

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if id := From(ctx).RequestID; id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
