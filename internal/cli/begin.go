package cli

import (
	"context"
	"errors"
	"time"
)

const undoTime = 10 * time.Second // for ending what an interrupted caller has begun

// begin has the server make something that must not stay behind when the caller
// is interrupted meanwhile: the server may have made it before it hears that
// nobody waits. So its answer is waited for, and what was made is undone. A
// second signal ends the program without waiting.
func begin[T any](a *app, start func(context.Context) (T, error), undo func(context.Context, T) error) (T, error) {
	type answer struct {
		made T
		err  error
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.ctx))
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		made, err := start(ctx)
		answers <- answer{made, err}
	}()
	var got answer
	select {
	case got = <-answers:
	case <-a.ctx.Done():
		defer time.AfterFunc(undoTime, cancel).Stop()
		got = <-answers
	}
	if a.ctx.Err() == nil {
		return got.made, got.err
	}
	var none T
	if got.err == nil {
		return none, errors.Join(a.ctx.Err(), a.undo(func(ctx context.Context) error { return undo(ctx, got.made) }))
	}
	if ctx.Err() != nil {
		a.say("the server has not said whether it was done")
	}
	return none, a.ctx.Err()
}

// undo does something although the caller was interrupted, for a while.
func (a *app) undo(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), undoTime)
	defer cancel()
	return do(ctx)
}
