package guest

import "context"

type intent int

const (
	noWaking intent = iota
	unrepeatable
)

// WithoutWaking marks a call that is not worth waking a sandbox for, such as
// that of somebody who follows what a sandbox does: when it goes to sleep, they
// are told so.
func WithoutWaking(ctx context.Context) context.Context {
	return context.WithValue(ctx, noWaking, true)
}

// MayWake reports whether a call wakes a sandbox that sleeps.
func MayWake(ctx context.Context) bool { return ctx.Value(noWaking) == nil }

// Unrepeatable marks a call that cannot be made again when the link breaks in
// its middle. What breaks links on purpose waits for its end.
func Unrepeatable(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrepeatable, true)
}

// IsUnrepeatable reports whether a call was so marked.
func IsUnrepeatable(ctx context.Context) bool { return ctx.Value(unrepeatable) != nil }
