package template

import (
	"testing"
	"time"
)

func TestEventLines(t *testing.T) {
	for _, test := range []struct {
		event Event
		want  string
	}{
		{Event{Kind: EventStart, Step: "bootstrap", N: 1, Of: 10, Text: "trixie"}, "[ 1/10] bootstrap  trixie"},
		{Event{Kind: EventProgress, Step: "wheels", N: 2, Of: 9, Elapsed: 1500 * time.Millisecond, Bytes: 3 << 20}, "[2/9] wheels     1.5 s, 3 MB"},
		{Event{Kind: EventDone, Step: "fonts", N: 6, Of: 9, Elapsed: time.Second}, "[6/9] fonts      done in 1.0 s"},
		{Event{Kind: EventSkip, Step: "wheels", N: 2, Of: 9, Text: "in the cache"}, "[2/9] wheels     skipped: in the cache"},
		{Event{Kind: EventStart, Of: 9, Text: "waiting for another build"}, "waiting for another build"},
		{Event{Kind: EventFail, Step: "fonts", N: 6, Of: 9, Elapsed: time.Second, Text: "exit status 7"}, "[6/9] fonts      failed after 1.0 s: exit status 7"},
	} {
		if got := test.event.String(); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}
