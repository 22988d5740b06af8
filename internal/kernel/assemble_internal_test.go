package kernel

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// The metadata comes from the sandbox as much as the data does.
func TestMetadataCountsForTheSizeOfResults(t *testing.T) {
	big := json.RawMessage(`"` + strings.Repeat("m", 20<<20) + `"`)
	events := func(yield func(api.Event, error) bool) {
		for i := range 10 {
			e := api.Event{Seq: int64(i + 1), Type: api.EventResult, Data: api.Bundle{"text/plain": "x"}, Metadata: map[string]json.RawMessage{"a": big}}
			if !yield(e, nil) {
				return
			}
		}
		yield(api.Event{Seq: 11, Type: api.EventEnd, Execution: &api.Execution{End: api.EndOK}}, nil)
	}
	share, done := newBudget(1<<30).share(context.Background(), "ann")
	defer done()
	x, err := assemble(events, share)
	if err != nil || len(x.Results) != maxResultsBytes/(20<<20) || !x.Truncated {
		t.Errorf("%d results kept, truncated %v, %v", len(x.Results), x.Truncated, err)
	}
}

// cell is one that shows so many results of so many bytes and prints as much.
func cell(results, bytes int) func(yield func(api.Event, error) bool) {
	return func(yield func(api.Event, error) bool) {
		text := strings.Repeat("x", bytes)
		for range results {
			if !yield(api.Event{Type: api.EventResult, Data: api.Bundle{"t": text}}, nil) {
				return
			}
			if !yield(api.Event{Type: api.EventStdout, Text: text}, nil) {
				return
			}
		}
		yield(api.Event{Type: api.EventEnd, Execution: &api.Execution{End: api.EndOK}}, nil)
	}
}

// Many runs of one owner at once hold no more than half of the budget, so that
// another's still have their whole output; what is left out is said; and all
// of it is given back when the answers are written.
func TestManyRunsOfOneOwnerHoldNoMoreThanTheirHalf(t *testing.T) {
	b := newBudget(1 << 20)
	requests, written := context.WithCancel(context.Background())
	held, dropped := 0, 0
	for range 20 {
		share, done := b.share(requests, "ann")
		x, err := assemble(cell(2, 50<<10), share)
		done()
		if err != nil || x.End != api.EndOK {
			t.Fatalf("a cell for which there is no room is no failure: %+v, %v", x, err)
		}
		left := x.ResultsDropped > 0 || x.StdoutDropped > 0
		if left != x.Truncated {
			t.Errorf("%d results and %d bytes are left out, truncated %v", x.ResultsDropped, x.StdoutDropped, x.Truncated)
		}
		for _, r := range x.Results {
			held += len(r["t"])
		}
		held += len(x.Stdout)
		dropped += x.ResultsDropped
	}
	if held > 1<<20/2+20*100 || dropped == 0 { // each note of what is missing has some bytes
		t.Errorf("one owner's answers hold %d bytes, %d results left out", held, dropped)
	}
	share, done := b.share(context.Background(), "bob")
	if x, err := assemble(cell(2, 50<<10), share); err != nil || x.Truncated || len(x.Results) != 2 {
		t.Errorf("another owner's answer beside them: %d results, truncated %v, %v", len(x.Results), x.Truncated, err)
	}
	done()
	written()
	for end := time.Now().Add(10 * time.Second); b.total() != 0; time.Sleep(time.Millisecond) { // it is given back from a goroutine of its own
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still held", b.total())
		}
	}
	share, done = b.share(context.Background(), "ann")
	defer done()
	if x, err := assemble(cell(2, 50<<10), share); err != nil || x.Truncated {
		t.Errorf("after the answers were written: truncated %v, %v", x.Truncated, err)
	}
}
