package guestd_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd"
)

func (s *sandbox) log(after int64) []guestapi.LogLine {
	s.Helper()
	res := s.request("GET", fmt.Sprintf("/log?after=%d", after), nil)
	defer res.Body.Close()
	var out []guestapi.LogLine
	for dec := json.NewDecoder(res.Body); ; {
		var l guestapi.LogLine
		if err := dec.Decode(&l); err == io.EOF {
			return out
		} else if err != nil {
			s.Fatal(err)
		}
		out = append(out, l)
	}
}

// The last lines are kept, and no more than a certain number and size of them.
func TestConsoleIsBounded(t *testing.T) {
	s := start(t)
	agent, console := s.cfg.Console.Stream("stderr"), s.cfg.Console.Stream("stdout")
	fmt.Fprint(console, "half a ")
	fmt.Fprint(agent, "of the agent\n")
	fmt.Fprint(console, "line\n\xff\n")
	fmt.Fprintln(console, strings.Repeat("x", 1<<20))
	got := s.log(0)
	if len(got) != 4 || got[0].Line != "of the agent" || got[0].Stream != "stderr" || got[1].Line != "half a line" || got[1].Stream != "stdout" ||
		got[2].Line != "�" || len(got[3].Line) != guestapi.MaxLogLine || got[3].Seq != 4 {
		t.Errorf("%.300v", got)
	}
	for i := range 10 * guestapi.KeepLogLines {
		fmt.Fprintln(agent, i)
	}
	got = s.log(0)
	last := got[len(got)-1]
	if len(got) != guestapi.KeepLogLines || last.Line != fmt.Sprint(10*guestapi.KeepLogLines-1) || got[0].Seq != last.Seq-guestapi.KeepLogLines+1 {
		t.Errorf("%d lines, the last %+v", len(got), last)
	}
	if got := s.log(last.Seq - 1); len(got) != 1 || got[0].Seq != last.Seq {
		t.Errorf("after a number: %+v", got)
	}
	for range 200 {
		fmt.Fprintln(agent, strings.Repeat("y", 4000))
	}
	size := 0
	for _, l := range s.log(0) {
		size += len(l.Line)
	}
	if size > guestapi.KeepLogBytes || size < guestapi.KeepLogBytes/2 {
		t.Errorf("%d bytes are kept", size)
	}
}

func TestLogIsFollowed(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://guest/log?follow=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for i := range 3 {
		fmt.Fprintln(s.cfg.Console.Stream("stdout"), i)
		var l guestapi.LogLine
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &l) != nil || l.Line != fmt.Sprint(i) {
			t.Fatalf("line %d: %q", i, lines.Text())
		}
	}
}

// The agent logs the id of each request that has one, and what went wrong.
func TestRequestsAreLoggedWithTheirID(t *testing.T) {
	var log bytes.Buffer
	console := guestd.NewConsole(io.Discard)
	s := start(t, func(c *guestd.Config) {
		c.Console, c.Log = console, slog.New(slog.NewTextHandler(console.Stream("stderr"), nil))
	})
	for path, id := range map[string]string{"/health": "", "/contexts": "id-1", "/contexts/none": "id-2"} {
		req, err := http.NewRequest("GET", "http://guest"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			req.Header.Set("X-Request-Id", id)
		}
		res, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	for _, l := range s.log(0) {
		fmt.Fprintln(&log, l.Line)
	}
	if text := log.String(); !strings.Contains(text, "request_id=id-1 method=GET path=/contexts ") || !strings.Contains(text, "request_id=id-2") ||
		!strings.Contains(text, "error=") || strings.Contains(text, "/health") {
		t.Errorf("%s", text)
	}
}
