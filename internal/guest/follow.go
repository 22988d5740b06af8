package guest

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/pandastack/pandastack/api"
)

const (
	reopenPause = 10 * time.Millisecond // before a broken stream is opened again, doubled
	reopenMax   = time.Second           // each time nothing came of it, up to this
)

// Link gives the Client of a sandbox for one call, waiting while the guest
// redials; the function ends the call.
type Link func(ctx context.Context) (*Client, func(), error)

// Open opens a stream of events that begins after a number.
type Open func(ctx context.Context, c *Client, after int64) (*Events, error)

// Follow gives the events of what open opens, up to and with its end. When the
// link breaks in the middle it opens the stream again where it was: whoever
// reads does not notice. It gives up with the context, or when the link cannot
// be had any more.
func Follow(ctx context.Context, after int64, link Link, open Open) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		err := stay(ctx, &after, func(linkCtx context.Context) error {
			return followOnce(ctx, linkCtx, &after, link, open, yield)
		})
		if err != nil {
			yield(api.Event{}, err)
		}
	}
}

// stay does something over a link, and again when that breaks under it, for as
// long as it takes. What moves the number after has come on. A sandbox that was
// put to sleep in the middle stays asleep.
func stay(ctx context.Context, after *int64, once func(linkCtx context.Context) error) error {
	pause, linkCtx := reopenPause, ctx
	for {
		before := *after
		err := once(linkCtx)
		if !errors.Is(err, ErrLinkLost) {
			return err
		}
		linkCtx = WithoutWaking(ctx)
		if *after != before {
			pause = reopenPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, reopenMax)
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// followOnce follows until the end, the reader's leave or an error.
func followOnce(ctx, linkCtx context.Context, after *int64, link Link, open Open, yield func(api.Event, error) bool) error {
	client, done, err := link(linkCtx)
	if err != nil {
		return err
	}
	defer done()
	events, err := open(ctx, client, *after)
	if err != nil {
		return err
	}
	defer events.Close()
	for {
		e, err := events.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		*after = e.Seq
		if !yield(e, nil) {
			return nil
		}
	}
}
