package agent

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Of long output the model is told how much it does not see, all of it counted:
// what the guest left out, what the loop did not hold, and what has no room. How
// it was cut before is no difference.
func TestHowMuchIsLeftOutIsAllThatIs(t *testing.T) {
	var digests []string
	for _, lost := range []int64{1000, 500_000} {
		w := new(watched)
		line := strings.Repeat("x", 99)
		total := int64(0)
		for i := range 20_000 {
			text := fmt.Sprintf("%06d %s\n", i, line)
			w.add(printed(text))
			total += int64(len(text))
			if i == 10_000 {
				w.add(api.Event{Type: api.EventGap, Stream: api.EventStdout, Dropped: lost})
				total += lost
			}
		}
		w.add(ok())
		o, _ := w.outcome(1, 1, time.Second, 1000)
		told := regexp.MustCompile(`\[… (\d+) bytes left out …\]`).FindAllStringSubmatch(o.Text, -1)
		if len(told) != 1 || !o.Cut {
			t.Fatalf("told %v", told)
		}
		shown := int64(len(o.Text))
		if left, _ := strconv.ParseInt(told[0][1], 10, 64); left+shown < total-200 || left+shown > total+200 {
			t.Errorf("%d bytes are shown, %d left out, of %d", shown, left, total)
		}
		digests = append(digests, o.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("the same output is not the same: %v", digests)
	}
}
