package guestd_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func onTerminal(rows, cols int) func(*guestapi.StartProcess) {
	return func(r *guestapi.StartProcess) { r.PTY = &api.PTY{Rows: rows, Cols: cols} }
}

// screen reads what a process with a terminal writes.
type screen struct {
	*sandbox
	pid   int
	resp  *http.Response
	lines *bufio.Reader
	seen  string
	last  int64
	exit  *api.Exit
}

func (s *sandbox) screen(pid int, after int64) *screen {
	s.Helper()
	resp := s.request("GET", fmt.Sprintf("/processes/%d/events?follow=1&after=%d", pid, after), nil)
	s.Cleanup(func() { resp.Body.Close() })
	return &screen{sandbox: s, pid: pid, resp: resp, lines: bufio.NewReader(resp.Body)}
}

// until reads on until some words were written.
func (s *screen) until(words string) {
	s.Helper()
	for !strings.Contains(s.seen, words) {
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			s.Fatalf("%v after %q, and no %q", err, s.seen, words)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e api.Event
		if err := json.Unmarshal(line, &e); err != nil {
			s.Fatal(err)
		}
		if e.Type == api.EventStderr {
			s.Errorf("a terminal has one stream: %+v", e)
		}
		s.seen += e.Text + string(e.Raw)
		s.last = e.Seq
		if s.exit = e.Exit; s.exit != nil && !strings.Contains(s.seen, words) {
			s.Fatalf("it has ended with %+v after %q, and no %q", *s.exit, s.seen, words)
		}
	}
}

// end reads on to the end.
func (s *screen) end() api.Exit {
	s.Helper()
	for s.exit == nil {
		s.seen += "\x00"
		s.until("\x00")
		s.seen = strings.ReplaceAll(s.seen, "\x00", "")
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			s.Fatal(err)
		}
		var e api.Event
		if len(bytes.TrimSpace(line)) > 0 {
			if err := json.Unmarshal(line, &e); err != nil {
				s.Fatal(err)
			}
			s.seen, s.exit = s.seen+e.Text+string(e.Raw), e.Exit
		}
	}
	return *s.exit
}

func (s *screen) typed(text string) {
	s.Helper()
	s.do("POST", fmt.Sprintf("/processes/%d/stdin", s.pid), text, nil)
}

func TestTerminalHasItsSizeItsUserAndItsSession(t *testing.T) {
	s := start(t)
	p := s.start("trap 'resized=1' WINCH; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; stat -c 'owned by %u' $(tty); ps -o tpgid= -o pgid= -p $$; "+
		"echo $TERM-$PAGER-; until test -n \"$resized\"; do sleep 0.01; done; echo now $(stty size); read line; echo got $line; exit 3", onTerminal(31, 101),
		func(r *guestapi.StartProcess) { r.CWD, r.User = "/", "panda" })
	if p.PTY == nil || *p.PTY != (api.PTY{Rows: 31, Cols: 101}) || p.LastEvent < 1 {
		t.Errorf("%+v", p)
	}
	c := s.screen(p.PID, 0)
	c.until("xterm-256color--\r\n")
	var foreground, group int
	if _, err := fmt.Sscanf(c.seen, "31 101\r\nall\r\nowned by 1234\r\n%d %d\r\n", &foreground, &group); err != nil || foreground != group {
		t.Errorf("got %q, %v", c.seen, err)
	}
	s.do("POST", fmt.Sprintf("/processes/%d/resize", p.PID), api.PTY{Rows: 7, Cols: 9}, nil)
	c.until("now 7 9\r\n")
	c.typed("a line\n")
	c.until("a line\r\ngot a line\r\n") // with the terminal's echo
	if exit := c.end(); exit.Code != 3 || exit.Reason != api.ReasonExited {
		t.Errorf("%+v", exit)
	}
	s.fails("POST", fmt.Sprintf("/processes/%d/resize", p.PID), api.PTY{Rows: 7, Cols: 9}, 409, api.CodeConflict)
	s.fails("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), "late", 409, api.CodeConflict)
}

func TestKeysOfATerminal(t *testing.T) {
	s := start(t)
	c := s.screen(s.start("cat; trap stop=1 INT; echo looping; until test -n \"$stop\"; do sleep 0.01; done; echo on; trap - INT; sleep 1000", onTerminal(0, 0)).PID, 0)
	c.typed("first\n")
	c.until("first\r\nfirst\r\n")
	s.do("POST", fmt.Sprintf("/processes/%d/stdin/close", c.pid), nil, nil) // a Ctrl-D, after which it can be typed on
	c.until("looping\r\n")
	c.typed("\x03")
	c.until("^C")
	c.until("on\r\n")
	c.typed("\x1c") // Ctrl-\
	if exit := c.end(); exit.Signal != "SIGQUIT" && exit.Signal != "SIGINT" {
		t.Errorf("%+v", exit)
	}
}

// Whoever comes back with a number has every byte once.
func TestTerminalIsAttachedAgainWithoutALoss(t *testing.T) {
	s := start(t)
	const count = 20000
	p := s.start(fmt.Sprintf("stty -echo; echo ready; read go; for ((i=0; i<%d; i++)); do echo $i; done; read go", count), onTerminal(0, 0))
	first := s.screen(p.PID, 0)
	first.until("ready\r\n")
	first.typed("\n")
	first.until("\r\n100\r\n")
	first.resp.Body.Close()
	s.breakLink()
	s.client.CloseIdleConnections() // the one that broke
	second := s.screen(p.PID, first.last)
	second.until(fmt.Sprintf("\r\n%d\r\n", count-1))
	var want strings.Builder
	want.WriteString("ready\r\n")
	for i := range count {
		fmt.Fprintf(&want, "%d\r\n", i)
	}
	if got := first.seen + second.seen; got != want.String() {
		t.Errorf("%d bytes, want %d", len(got), want.Len())
	}
	second.typed("\n")
	if exit := second.end(); exit.Code != 0 {
		t.Errorf("%+v", exit)
	}
	// From the start it is the same again.
	if events := s.events(s.request("GET", fmt.Sprintf("/processes/%d/events", p.PID), nil)); text(events, "stdout") != want.String() {
		t.Errorf("%d bytes", len(text(events, "stdout")))
	}
}

// A terminal that ends hangs up on what was left behind on it.
func TestTerminalHangsUp(t *testing.T) {
	s := start(t)
	events, exit := s.shell("trap '' HUP; setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; trap - HUP; cat </dev/tty >/dev/null & echo $!", onTerminal(0, 0))
	var apart, reader int
	if _, err := fmt.Sscan(text(events, "stdout"), &apart, &reader); err != nil || exit.Code != 0 {
		t.Fatalf("%q %+v", text(events, "stdout"), exit)
	}
	eventually(t, "the reader has ended", func() bool { return unix.Kill(reader, 0) == unix.ESRCH })
	if err := unix.Kill(apart, unix.SIGKILL); err != nil {
		t.Errorf("what left the session: %v", err)
	}
}

func TestTerminalIsKilledWithItsSession(t *testing.T) {
	s := start(t)
	p := s.start("set -m; sleep 1000 & sleep 1000", onTerminal(0, 0))
	s.do("DELETE", fmt.Sprintf("/processes/%d", p.PID), nil, nil)
	if _, exit := s.finish(p); exit.Reason != api.ReasonKilled {
		t.Errorf("%+v", exit)
	}
}

func TestWhatATerminalRefuses(t *testing.T) {
	s := start(t)
	for _, size := range []api.PTY{{Rows: 1001}, {Cols: 1001}, {Rows: -1}} {
		s.fails("POST", "/processes", guestapi.StartProcess{Argv: []string{"true"}, PTY: &size}, 400, api.CodeInvalid)
	}
	p := s.start("read")
	s.fails("POST", fmt.Sprintf("/processes/%d/resize", p.PID), api.PTY{}, 409, api.CodeConflict)
}
