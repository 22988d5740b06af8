package capture

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatFitsIsKeptWhole(t *testing.T) {
	b := New(4, 6)
	for _, p := range []string{"ab", "", "cdef", "ghij"} {
		b.Add(p)
	}
	if got, dropped := b.Text(""); got != "abcdefghij" || dropped != 0 {
		t.Errorf("got %q with %d dropped", got, dropped)
	}
}

func TestTheMiddleIsLeftOut(t *testing.T) {
	for _, size := range []int{1, 3, 7, 100} {
		b := New(4, 6)
		all := strings.Repeat("0123456789", 10)
		for i := 0; i < len(all); i += size {
			b.Add(all[i:min(i+size, len(all))])
		}
		if got, dropped := b.Text("/all"); got != "0123\n[... 90 bytes left out; all of it is in /all ...]\n456789" || dropped != 90 {
			t.Errorf("in pieces of %d: %q with %d dropped", size, got, dropped)
		}
	}
}

func TestGap(t *testing.T) {
	b := New(100, 100)
	b.Add("before")
	b.Gap(1000)
	b.Add("after")
	if got, dropped := b.Text(""); got != "before\n[... 1000 bytes left out ...]\nafter" || dropped != 1000 {
		t.Errorf("got %q with %d dropped", got, dropped)
	}
}

// A guest can claim any number: the sum stays a number that JSON holds, and
// output is never said to be whole when something is missing.
func TestAbsurdGaps(t *testing.T) {
	for name, gaps := range map[string][]int64{
		"overflow":          {math.MaxInt64, math.MaxInt64, 1},
		"negative":          {5, -5, math.MinInt64},
		"after the ceiling": {math.MaxInt64, -1, 7},
	} {
		b := New(4, 4)
		b.Add("0123456789")
		for _, n := range gaps {
			b.Gap(n)
		}
		if text, dropped := b.Text(""); dropped < 6 || dropped >= 1<<53 || !strings.Contains(text, "left out") {
			t.Errorf("%s: %d dropped, %q", name, dropped, text)
		}
	}
}

func FuzzBuffer(f *testing.F) {
	f.Add("äöü€𝄞", 3, 5, 2)
	f.Fuzz(func(t *testing.T, s string, head, tail, piece int) {
		head, tail, piece = head&31, tail&31, piece&15+1
		b := New(head, tail)
		for i := 0; i < len(s); i += piece {
			b.Add(s[i:min(i+piece, len(s))])
		}
		got, dropped := b.Text("")
		if !utf8.ValidString(got) {
			t.Errorf("not UTF-8: %q", got)
		}
		if dropped == 0 && got != strings.ToValidUTF8(s, "�") {
			t.Errorf("nothing dropped, but %q became %q", s, got)
		}
		if note := fmt.Sprintf("[... %d bytes", dropped); dropped > 0 && !strings.Contains(got, note) {
			t.Errorf("%q does not say %q", got, note)
		}
		if dropped < int64(len(s)-head-tail) {
			t.Errorf("%d of %d bytes dropped, but only %d fit", dropped, len(s), head+tail)
		}
	})
}
