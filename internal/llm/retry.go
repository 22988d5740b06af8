package llm

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"
)

// Retrying asks again when a provider fails in a way that passes. Zero values
// mean the defaults.
type Retrying struct {
	Provider
	Attempts int           // at most; default 5
	First    time.Duration // the first pause, which doubles; default 1 s
	Longest  time.Duration // the longest pause, and the longest Retry-After that is waited for; default 60 s

	// Sleep waits; default: until the time has passed or the context ends.
	Sleep func(ctx context.Context, d time.Duration) error
}

var _ Provider = (*Retrying)(nil)

// Complete implements Provider. The usage of failed attempts is unknown and not
// counted; Usage.Attempts says how many there were.
func (r *Retrying) Complete(ctx context.Context, req Request, tell func(Delta)) (Reply, error) {
	attempts, pause, longest, sleep := r.Attempts, r.First, r.Longest, r.Sleep
	if attempts == 0 {
		attempts = 5
	}
	if pause == 0 {
		pause = time.Second
	}
	if longest == 0 {
		longest = time.Minute
	}
	if sleep == nil {
		sleep = wait
	}
	for n := 1; ; n++ {
		reply, err := r.Provider.Complete(ctx, req, tell)
		reply.Usage.Attempts = n
		if err == nil || n == attempts || !Temporary(err) || ctx.Err() != nil {
			return reply, err
		}
		d := pause + rand.N(pause/2+1) // not all runs at once
		var e *Error
		if errors.As(err, &e) && e.RetryAfter > 0 {
			if e.RetryAfter > longest {
				return reply, err
			}
			d = max(d, e.RetryAfter)
		}
		if tell != nil {
			tell(Delta{Again: true, Why: err.Error()})
		}
		if werr := sleep(ctx, d); werr != nil {
			return reply, werr
		}
		pause = min(2*pause, longest)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Limited holds requests to a rate, which several providers may share.
type Limited struct {
	Provider
	Limit *rate.Limiter // nil: none
}

var _ Provider = (*Limited)(nil)

// Complete implements Provider.
func (l *Limited) Complete(ctx context.Context, req Request, tell func(Delta)) (Reply, error) {
	if l.Limit != nil {
		if err := l.Limit.Wait(ctx); err != nil {
			return Reply{}, err
		}
	}
	return l.Provider.Complete(ctx, req, tell)
}
