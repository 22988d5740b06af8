package eventlog_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestd/eventlog"
)

func readAll(c *eventlog.Cursor) (events []api.Event, end bool) {
	for {
		evs, _, done := c.Next(7)
		events = append(events, evs...)
		if done || len(evs) == 0 {
			return events, done
		}
	}
}

func text(events []api.Event, typ string) string {
	var b strings.Builder
	for _, ev := range events {
		if ev.Type == typ {
			b.WriteString(ev.Text)
			b.Write(ev.Raw)
		}
	}
	return b.String()
}

func end(out eventlog.Outcome) api.Event { return api.Event{Type: api.EventEnd} }

func increasing(t *testing.T, events []api.Event) {
	t.Helper()
	for i := 1; i < len(events); i++ {
		if events[i].Seq <= events[i-1].Seq {
			t.Fatalf("event %d has number %d after %d", i, events[i].Seq, events[i-1].Seq)
		}
	}
}

func TestSplitCharactersAreJoined(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 1 << 10, Tail: 1 << 10, Text: true})
	for _, b := range []byte("naïve 日本 🐼\n") {
		l.Output(eventlog.Stdout, []byte{b})
	}
	l.Output(eventlog.Stdout, []byte{0xff, 'a', 0xe6, 0x97}) // invalid, and one never completed
	l.End(end)
	events, done := readAll(l.Cursor(0))
	if got, want := text(events, "stdout"), "naïve 日本 🐼\n\uFFFDa\uFFFD"; got != want || !done {
		t.Errorf("got %q, end %v; want %q", got, done, want)
	}
}

func TestBytesThatAreNoTextTravelRaw(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 1 << 10, Tail: 1 << 10})
	l.Output(eventlog.Stdout, []byte{0x00, 0xff, 0xfe})
	l.End(end)
	events, _ := readAll(l.Cursor(0))
	if !bytes.Equal(events[0].Raw, []byte{0x00, 0xff, 0xfe}) || events[0].Text != "" {
		t.Errorf("got %+v", events[0])
	}
}

func TestHeadAndTailAreKeptAndTheWholeIsInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "whole")
	l := eventlog.New(eventlog.Options{Head: 4 << 10, Tail: 8 << 10, Text: true, Spill: &eventlog.Spill{Path: path, Max: 1 << 20}})
	var whole strings.Builder
	fmt.Fprint(&whole, "first\n")
	l.Output(eventlog.Stdout, []byte("first\n"))
	l.Output(eventlog.Stderr, []byte("small"))
	for i := range 5000 {
		line := fmt.Sprintf("línea %d\n", i)
		whole.WriteString(line)
		l.Output(eventlog.Stdout, []byte(line))
	}
	var out eventlog.Outcome
	l.End(func(o eventlog.Outcome) api.Event { out = o; return api.Event{Type: api.EventEnd} })

	events, done := readAll(l.Cursor(0))
	increasing(t, events)
	got := text(events, "stdout")
	if !done || !strings.HasPrefix(got, "first\nlínea 0\n") || !strings.HasSuffix(got, "línea 4999\n") {
		t.Errorf("start or end is missing: %.40q … %q", got, got[len(got)-20:])
	}
	var gap int64
	for _, ev := range events {
		gap += ev.Dropped
	}
	if want := int64(whole.Len() - len(got)); gap != want || out.Dropped[0] != want || out.Dropped[1] != 0 {
		t.Errorf("gap says %d, outcome %v; want %d", gap, out.Dropped, want)
	}
	if n := l.Size(); n > 64<<10 {
		t.Errorf("the log holds %d bytes", n)
	}
	file, err := os.ReadFile(out.Path)
	if err != nil || out.Path != path {
		t.Fatalf("path %q: %v", out.Path, err)
	}
	if want := strings.Replace(whole.String(), "first\n", "first\nsmall", 1); string(file) != want {
		t.Errorf("the file has %d bytes, want %d", len(file), len(want))
	}
}

func TestWholeFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "whole")
	l := eventlog.New(eventlog.Options{Head: 1 << 10, Tail: 1 << 10, Spill: &eventlog.Spill{Path: path, Max: 10_000}})
	for range 100 {
		l.Output(eventlog.Stdout, bytes.Repeat([]byte("x"), 1000))
	}
	l.End(end)
	if st, err := os.Stat(path); err != nil || st.Size() != 10_000 {
		t.Errorf("%v %v", st, err)
	}
}

func TestOldestWholeFilesGo(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		path := filepath.Join(dir, fmt.Sprintf("n%d.log", i))
		l := eventlog.New(eventlog.Options{Head: 100, Tail: 100, Spill: &eventlog.Spill{Path: path, Max: 1 << 20, Keep: 3}})
		for range 100 {
			l.Output(eventlog.Stdout, bytes.Repeat([]byte("x"), 1000))
		}
		l.End(end)
		at := time.Unix(int64(i), 0)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	list, _ := os.ReadDir(dir)
	if len(list) != 3 || list[0].Name() != "n3.log" || list[2].Name() != "n5.log" {
		t.Errorf("got %v", list)
	}
}

func TestManyTinyWritesStayBounded(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 256 << 10, Tail: 768 << 10, Text: true})
	for range 300_000 { // alternating, so that nothing can be joined
		l.Output(eventlog.Stdout, []byte("o"))
		l.Output(eventlog.Stderr, []byte("e"))
	}
	if n := l.Size(); n > 16<<20 {
		t.Errorf("the log holds %d bytes", n)
	}
}

func TestReattachFromEveryNumberSeesTheRest(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 1 << 10, Tail: 2 << 10, Text: true})
	live := l.Cursor(0)
	var all []api.Event
	for i := range 200 {
		l.Output(i%2, []byte(fmt.Sprintf("%04d %s\n", i, strings.Repeat("x", 40))))
		if i%50 == 0 {
			l.Add(api.Event{Type: api.EventResult}, 10)
		}
		evs, _ := readAll(live)
		all = append(all, evs...)
	}
	l.End(end)
	evs, done := readAll(live)
	all = append(all, evs...)
	increasing(t, all)
	if !done || strings.Count(text(all, "stdout")+text(all, "stderr"), "\n") != 200 {
		t.Fatalf("a reader that keeps up must miss nothing")
	}
	for _, at := range all {
		got, done := readAll(l.Cursor(at.Seq))
		increasing(t, got)
		if !done && at.Type != api.EventEnd {
			t.Fatalf("after %d: no end", at.Seq)
		}
		if len(got) > 0 && got[0].Seq <= at.Seq {
			t.Fatalf("after %d came %d", at.Seq, got[0].Seq)
		}
	}
}

func TestSlowReaderIsToldExactlyWhatItMissed(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 1 << 10, Tail: 2 << 10, Text: true})
	c := l.Cursor(0)
	total := 0
	put := func(n int) { total += n; l.Output(eventlog.Stdout, bytes.Repeat([]byte("y"), n)) }
	put(100)
	got, _ := readAll(c)
	for range 50 {
		put(1000)
	}
	more, _ := readAll(c)
	got = append(got, more...)
	for range 50 {
		put(1000)
	}
	l.End(end)
	more, _ = readAll(c)
	got = append(got, more...)
	have := len(text(got, "stdout"))
	for _, ev := range got {
		have += int(ev.Dropped)
	}
	if have != total {
		t.Errorf("read and missed %d of %d bytes", have, total)
	}
}

func TestFollowersWakeAndEndIsLast(t *testing.T) {
	l := eventlog.New(eventlog.Options{Head: 10, Tail: 10})
	c := l.Cursor(0)
	_, more, done := c.Next(10)
	if done {
		t.Fatal("ended before it began")
	}
	go l.Output(eventlog.Stdout, []byte("hi"))
	<-more
	l.End(end)
	l.Output(eventlog.Stdout, []byte("late"))
	if l.Add(api.Event{Type: api.EventResult}, 1) {
		t.Error("an event was added after the end")
	}
	events, done := readAll(c)
	if !done || events[len(events)-1].Type != api.EventEnd || text(events, "stdout") != "hi" {
		t.Errorf("got %+v", events)
	}
}

func TestOtherEventsAreBounded(t *testing.T) {
	l := eventlog.New(eventlog.Options{MaxOther: 100})
	if !l.Add(api.Event{Type: api.EventResult}, 80) || l.Add(api.Event{Type: api.EventResult}, 30) {
		t.Error("the bound does not hold")
	}
	var out eventlog.Outcome
	l.End(func(o eventlog.Outcome) api.Event { out = o; return api.Event{Type: api.EventEnd} })
	if out.Refused != 1 {
		t.Errorf("refused %d", out.Refused)
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("a日b"), uint8(2), true)
	f.Add([]byte{0xf0, 0x9f, 0x90, 0xbc, 0xff}, uint8(1), false)
	f.Fuzz(func(t *testing.T, b []byte, step uint8, asText bool) {
		l := eventlog.New(eventlog.Options{Head: 64, Tail: 64, Text: asText})
		n := int(step%16) + 1
		for i := 0; i < len(b); i += n {
			l.Output(i%2, b[i:min(i+n, len(b))])
		}
		l.End(end)
		events, done := readAll(l.Cursor(0))
		if !done {
			t.Fatal("no end")
		}
		increasing(t, events)
	})
}
