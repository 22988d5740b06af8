package mcpserver

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
)

// A flood is held in bounded memory; its beginning and its end stay, and what
// is missing is counted to the byte.
func TestSpoolKeepsBothEnds(t *testing.T) {
	var s spool
	total := 0
	for i := range 10_000 {
		line := strings.Repeat("ü", i%50) + "\n"
		if i == 0 {
			line = "first\n"
		} else if i == 9_999 {
			line = "last\n"
		}
		total += len(line)
		s.add(line)
		if held := s.head.Len() + s.tail.Len(); held > 6*maxText {
			t.Fatalf("%d bytes are held", held)
		}
	}
	out := s.String()
	if !strings.HasPrefix(out, "first\n") || !strings.HasSuffix(out, "last\n") || !utf8.ValidString(out) {
		t.Errorf("an end is missing: %.40q … %q", out, out[len(out)-40:])
	}
	if len(out) > maxText+200 {
		t.Errorf("%d bytes are given, more than %d", len(out), maxText)
	}
	if got := s.lost + int64(s.head.Len()+s.tail.Len()); got != int64(total) {
		t.Errorf("%d bytes are accounted for, %d came", got, total)
	}
}

func TestSpoolIsExactBelowItsSize(t *testing.T) {
	var s spool
	want := strings.Repeat("0123456789\n", 2000) // 22,000 bytes
	for chunk := range strings.Lines(want) {
		s.add(chunk)
	}
	if got := s.String(); got != want {
		t.Errorf("%d bytes became %d", len(want), len(got))
	}
}

func TestMiddle(t *testing.T) {
	long := "a" + strings.Repeat("é", 10_000) + "z"
	got := middle(long, 1000)
	if !utf8.ValidString(got) || !strings.HasPrefix(got, "aé") || !strings.HasSuffix(got, "éz") || len(got) > 1100 {
		t.Errorf("got %d bytes: %.40q", len(got), got)
	}
	if got := middle("short", 1000); got != "short" {
		t.Errorf("got %q", got)
	}
}

func TestIsText(t *testing.T) {
	for words, want := range map[string]bool{"": true, "täxt": true, "t\xc3": true, "a\x00b": false, "\xff\xfe\xff\xfe\xff": false} {
		if got := isText(words); got != want {
			t.Errorf("isText(%q) is %v", words, got)
		}
	}
}

// Code shows as many results as it likes, for as long as an hour.
func TestAnAnswerHasSoManyResults(t *testing.T) {
	c := &cell{session: New(nil, Options{}), end: &api.Execution{End: api.EndOK}}
	for i := range 10_000 {
		c.take(api.Event{Type: api.EventResult, Data: api.Bundle{"text/plain": strings.Repeat("x", maxValue)}, IsLastExpression: i == 9_999})
	}
	blocks := c.blocks()
	if n := len(blocks); n != maxResults+2 {
		t.Errorf("%d blocks", n)
	}
	if last := blocks[len(blocks)-1].(*mcp.TextContent).Text; !strings.Contains(last, "10000 results") {
		t.Error(last)
	}
}

// What sessions of one key keep to be fetched is bounded, all together.
func TestShelvesOfAKeyAreBounded(t *testing.T) {
	all := new(stock)
	data := make([]byte, 8<<20)
	var sessions []*Session
	for i := range 20 {
		s := New(nil, Options{stock: all})
		sessions = append(sessions, s)
		for j := range 4 {
			s.shelve(resultURI("sb", fmt.Sprint(i), fmt.Sprint(j)), "image/png", data)
		}
	}
	if all.bytes > stockBytes || all.bytes < stockBytes/2 {
		t.Errorf("%d bytes are kept", all.bytes)
	}
	for _, s := range sessions {
		_ = s.Close(t.Context())
		s.shelve("late", "image/png", data)
	}
	if all.bytes != 0 {
		t.Errorf("%d bytes are kept of sessions that have ended", all.bytes)
	}
}
