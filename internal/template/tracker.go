package template

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// progressEvery is how often a running step tells how many bytes it has moved.
const progressEvery = time.Second

// tracker numbers the steps of a build and reports on them, one event at a time.
type tracker struct {
	now   func() time.Time
	steps []string

	mu     sync.Mutex
	report func(Event)
}

// begin reports that a step starts, and gives what reports its end. Bytes may
// be nil; it is read while the step runs.
func (t *tracker) begin(step, text string, bytes func() int64) (end func(error)) {
	start, most := t.now(), int64(0)
	moved := func() int64 {
		most = max(most, bytes()) // what was counted may have been moved to its place
		return most
	}
	t.emit(Event{Kind: EventStart, Step: step, Text: text})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		if bytes == nil {
			return
		}
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				t.emit(Event{Kind: EventProgress, Step: step, Elapsed: t.now().Sub(start), Bytes: moved()})
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		e := Event{Kind: EventDone, Step: step, Elapsed: t.now().Sub(start)}
		if bytes != nil {
			e.Bytes = moved()
		}
		if err != nil {
			e.Kind, e.Text = EventFail, firstLine(err.Error())
		}
		t.emit(e)
	}
}

// skip reports that a step's result is there already.
func (t *tracker) skip(step, why string) { t.emit(Event{Kind: EventSkip, Step: step, Text: why}) }

func (t *tracker) emit(e Event) {
	if e.Step != "" {
		e.Of = len(t.steps)
	}
	for i, step := range t.steps {
		if step == e.Step {
			e.N = i + 1
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.report != nil {
		t.report(e)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// String gives an event as one line, for terminals and logs.
func (e Event) String() string {
	var b strings.Builder
	if e.Step == "" {
		return e.Text
	}
	if e.N > 0 {
		fmt.Fprintf(&b, "[%*d/%d] ", len(fmt.Sprint(e.Of)), e.N, e.Of)
	}
	fmt.Fprintf(&b, "%-10s", e.Step)
	switch e.Kind {
	case EventStart:
		fmt.Fprintf(&b, " %s", e.Text)
		return strings.TrimRight(b.String(), " ")
	case EventSkip:
		fmt.Fprintf(&b, " skipped: %s", e.Text)
		return b.String()
	case EventFail:
		fmt.Fprintf(&b, " failed after %s: %s", seconds(e.Elapsed), e.Text)
		return b.String()
	case EventDone:
		fmt.Fprintf(&b, " done in %s", seconds(e.Elapsed))
	default:
		fmt.Fprintf(&b, " %s", seconds(e.Elapsed))
	}
	if e.Bytes > 0 {
		fmt.Fprintf(&b, ", %d MB", e.Bytes>>20)
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
