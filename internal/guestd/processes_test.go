package guestd_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

func TestCommandRunsToItsEnd(t *testing.T) {
	s := start(t)
	events, exit := s.shell("echo out; echo err >&2; pwd; exit 3")
	if got, want := text(events, "stdout"), "out\n"+s.cfg.Workspace+"\n"; got != want || text(events, "stderr") != "err\n" {
		t.Errorf("got %q %q", got, text(events, "stderr"))
	}
	if exit.Code != 3 || exit.Reason != "exited" || events[0].Type != api.EventStarted || events[0].PID == 0 {
		t.Errorf("exit %+v, first %+v", exit, events[0])
	}
}

func TestArgumentsAreNotForTheShell(t *testing.T) {
	s := start(t)
	events, exit := s.shell("", func(r *guestapi.StartProcess) { r.Argv = []string{"printf", "%s|", "$HOME", "a b", "日本", ""} })
	if got := text(events, "stdout"); exit.Code != 0 || got != "$HOME|a b|日本||" {
		t.Errorf("got %q", got)
	}
}

func TestCommandHasItsEnvironmentFolderAndUser(t *testing.T) {
	s := start(t)
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, Envs: map[string]string{"A": "sandbox", "B": "sandbox"}}, nil)
	dir := t.TempDir()
	_ = os.Chmod(dir, 0o755)
	events, _ := s.shell("echo $A $B $HOME $USER $LANG $(pwd) $(id -u) $(id -g) $(id -G)", func(r *guestapi.StartProcess) {
		r.CWD, r.User, r.Envs = "/", "panda", map[string]string{"B": "command"}
	})
	if got, want := text(events, "stdout"), "sandbox command /tmp panda C.UTF-8 / 1234 1234 1234 555\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	events, _ = s.shell("id -u; echo $HOME", func(r *guestapi.StartProcess) { r.CWD, r.User = "/", "4321" })
	if got := text(events, "stdout"); got != "4321\n/\n" {
		t.Errorf("got %q", got)
	}
}

func TestSignalsEndTheWholeGroup(t *testing.T) {
	s := start(t)
	p := s.start("sleep 1000 & echo $!; wait")
	var pid int
	r := s.request("GET", fmt.Sprintf("/processes/%d/events?follow=1", p.PID), nil)
	fmt.Fscanf(lineOf(r.Body, `"text":"`), "%d", &pid)
	s.do("POST", fmt.Sprintf("/processes/%d/signal", p.PID), api.SignalRequest{Signal: "TERM"}, nil)
	events, exit := s.finish(p)
	if exit.Reason != "signaled" || exit.Signal != "SIGTERM" || exit.Code != 143 {
		t.Errorf("got %+v %+v", exit, events)
	}
	eventually(t, "the child is gone", func() bool { return pid > 1 && unix.Kill(pid, 0) == unix.ESRCH })
	s.fails("POST", fmt.Sprintf("/processes/%d/signal", p.PID), api.SignalRequest{Signal: "15"}, 409, api.CodeConflict)
	if e := s.fails("POST", fmt.Sprintf("/processes/%d/signal", s.start("sleep 1000").PID), api.SignalRequest{Signal: "SIGFOO"}, 400, api.CodeInvalid); e.Field != "signal" {
		t.Errorf("field %q", e.Field)
	}
}

// lineOf reads up to a mark and returns the rest.
func lineOf(r io.Reader, mark string) io.Reader {
	seen := ""
	b := make([]byte, 1)
	for !strings.HasSuffix(seen, mark) {
		if _, err := io.ReadFull(r, b); err != nil {
			break
		}
		seen += string(b)
	}
	return r
}

func TestTimeoutEndsTheWholeGroup(t *testing.T) {
	s := start(t)
	p := s.start("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1000; done", func(r *guestapi.StartProcess) { r.TimeoutMS = 200 })
	events, exit := s.finish(p)
	if exit.Reason != "timeout" || exit.Signal != "SIGKILL" || exit.Code != 137 {
		t.Errorf("got %+v", exit)
	}
	var pid int
	fmt.Sscan(text(events, "stdout"), &pid)
	eventually(t, "the child is gone", func() bool { return pid > 1 && unix.Kill(pid, 0) == unix.ESRCH })
}

func TestTimeoutEndsChildrenThatIgnoreTheFirstSignal(t *testing.T) {
	s := start(t)
	p := s.start("(trap '' TERM; echo $BASHPID; sleep 1000; sleep 1000) & wait", func(r *guestapi.StartProcess) { r.TimeoutMS = 300 })
	events, exit := s.finish(p)
	if exit.Reason != "timeout" || exit.Signal != "SIGTERM" {
		t.Errorf("got %+v", exit)
	}
	var pid int
	fmt.Sscan(text(events, "stdout"), &pid)
	eventually(t, "the child is gone", func() bool { return pid > 1 && unix.Kill(pid, 0) == unix.ESRCH })
}

// A program that ends well when it is told to stop has not done its work.
func TestTimeoutIsNoSuccess(t *testing.T) {
	s := start(t)
	p := s.start("trap 'exit 0' TERM; while :; do sleep 0.01; done", func(r *guestapi.StartProcess) { r.TimeoutMS = 200 })
	if _, exit := s.finish(p); exit.Reason != api.ReasonTimeout || exit.Code != 124 || exit.Signal != "" {
		t.Errorf("got %+v", exit)
	}
}

// Grandchildren in other groups of the session go with it; what has made
// itself a session of its own stays.
func TestKillEndsTheSessionAndNotAnother(t *testing.T) {
	s := start(t)
	p := s.start("setsid sleep 1000 & set -m; (sleep 1000 & wait) & wait")
	alive := func() (own, other int) {
		all, err := child.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			switch {
			case i.Session == p.PID && !i.Zombie:
				own++
			case i.Parent == p.PID && i.PID == i.Session:
				other = i.PID
			}
		}
		return own, other
	}
	var daemon int
	eventually(t, "all have started", func() bool {
		own, other := alive()
		daemon = other
		return own >= 3 && other != 0
	})
	s.do("DELETE", fmt.Sprintf("/processes/%d", p.PID), nil, nil)
	s.finish(p)
	eventually(t, "the session is gone", func() bool { own, _ := alive(); return own == 0 })
	if err := unix.Kill(daemon, 0); err != nil {
		t.Errorf("the other session: %v", err)
	}
	child.KillSession(daemon)
}

func TestChildLeftBehindDoesNotHoldUpTheEnd(t *testing.T) {
	s := start(t)
	marker := filepath.Join(s.dir, "marker")
	p := s.start(fmt.Sprintf("(sleep 0.5; echo late; echo later; touch %s; sleep 1000) & echo now", marker))
	events, exit := s.finish(p)
	if exit.Code != 0 || text(events, "stdout") != "now\n" {
		t.Errorf("got %q %+v", text(events, "stdout"), exit)
	}
	// It goes on, and its output does not end it.
	eventually(t, "the child goes on", func() bool { _, err := os.Stat(marker); return err == nil })
	child.KillSession(p.PID)
}

func TestStandardInput(t *testing.T) {
	s := start(t)
	// Without input there is none, and nothing waits for it.
	if events, exit := s.shell("cat; echo end"); exit.Code != 0 || text(events, "stdout") != "end\n" {
		t.Errorf("got %q", text(events, "stdout"))
	}
	// Input of any size is given and then closed.
	input := randomBytes(300_000)
	events, _ := s.shell("sha256sum | cut -c1-8; wc -c", func(r *guestapi.StartProcess) { r.Input = input })
	if lines := strings.Fields(text(events, "stdout")); len(lines) != 2 || lines[1] != "0" {
		t.Errorf("got %v", lines)
	}
	// It may be kept open and written to, then closed.
	p := s.start("cat", func(r *guestapi.StartProcess) { r.Stdin, r.Input = true, []byte("one ") })
	s.do("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), strings.NewReader("two "), nil)
	s.do("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), strings.NewReader(strings.Repeat("3", 512<<10)), nil)
	s.do("POST", fmt.Sprintf("/processes/%d/stdin/close", p.PID), nil, nil)
	s.do("POST", fmt.Sprintf("/processes/%d/stdin/close", p.PID), nil, nil)
	events, exit := s.finish(p)
	if got := text(events, "stdout"); exit.Code != 0 || !strings.HasPrefix(got, "one two 33") || len(got) != 8+512<<10 {
		t.Errorf("got %.20q, %d bytes", got, len(got))
	}
	s.fails("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), strings.NewReader("more"), 409, api.CodeConflict)
	// One that never reads and ends must not hold the writer.
	p = s.start("sleep 0.3", func(r *guestapi.StartProcess) { r.Stdin = true })
	s.fails("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), strings.NewReader(strings.Repeat("x", 4<<20)), 409, api.CodeConflict)
	// Nor one that leaves its input to a child.
	p = s.start("exec 3<&0; sleep 1000 <&3 & sleep 0.3", func(r *guestapi.StartProcess) { r.Stdin = true })
	s.fails("POST", fmt.Sprintf("/processes/%d/stdin", p.PID), strings.NewReader(strings.Repeat("x", 4<<20)), 409, api.CodeConflict)
	child.KillSession(p.PID)
}

// Input that nobody reads holds up neither the end of its process nor whoever
// closes it.
func TestInputThatNobodyReads(t *testing.T) {
	s := start(t)
	input := make([]byte, 1<<20)
	p := s.start("exec 3<&0; sleep 1000 <&3 & exit 5", func(r *guestapi.StartProcess) { r.Input = input })
	if _, exit := s.finish(p); exit.Code != 5 {
		t.Errorf("got %+v", exit)
	}
	child.KillSession(p.PID)

	p = s.start("sleep 1000", func(r *guestapi.StartProcess) { r.Stdin = true })
	at := fmt.Sprintf("/processes/%d/stdin", p.PID)
	stuck := make(chan int)
	go func() {
		r := s.request("POST", at, bytes.NewReader(input))
		r.Body.Close()
		stuck <- r.StatusCode
	}()
	s.do("POST", at+"/close", nil, nil)
	eventually(t, "no more is taken", func() bool {
		r := s.request("POST", at, strings.NewReader("more"))
		r.Body.Close()
		return r.StatusCode == http.StatusConflict
	})
	s.do("DELETE", fmt.Sprintf("/processes/%d", p.PID), nil, nil)
	if status := <-stuck; status != http.StatusConflict {
		t.Errorf("the write that was stuck: %d", status)
	}
}

// Closing waits its turn behind what is being written.
func TestInputIsClosedAfterWhatWasWritten(t *testing.T) {
	s := start(t)
	p := s.start("sleep 0.3; wc -c", func(r *guestapi.StartProcess) { r.Stdin, r.Input = true, make([]byte, 1<<20) })
	s.do("POST", fmt.Sprintf("/processes/%d/stdin/close", p.PID), nil, nil)
	if events, _ := s.finish(p); strings.TrimSpace(text(events, "stdout")) != "1048576" {
		t.Errorf("got %q", text(events, "stdout"))
	}
}

func TestBinaryOutputOfACommand(t *testing.T) {
	s := start(t)
	events, _ := s.shell("head -c 100000 /dev/urandom | tee copy; sync")
	want, err := os.ReadFile(filepath.Join(s.cfg.Workspace, "copy"))
	if err != nil || text(events, "stdout") != string(want) {
		t.Errorf("the bytes changed on the way: %d of %d, %v", len(text(events, "stdout")), len(want), err)
	}
	events, _ = s.shell("printf 'caf\\xc3'; sleep 0.2; printf '\\xa9'")
	if text(events, "stdout") != "café" || len(events[1].Raw) > 0 {
		t.Errorf("a split character: %+v", events)
	}
}

func TestHugeOutputOfACommand(t *testing.T) {
	s := start(t)
	p := s.start("echo first; yes 0123456789abcde | head -c 30000000; echo last")
	events := s.events(s.request("GET", fmt.Sprintf("/processes/%d/events", p.PID), nil))
	exit := events[len(events)-1].Exit
	out := text(events, "stdout")
	if exit.StdoutDropped != int64(30_000_011-len(out)) || !strings.HasPrefix(out, "first\n") || !strings.HasSuffix(out, "last\n") {
		t.Errorf("got %+v, %d bytes", exit, len(out))
	}
	if st, err := os.Stat(exit.OutputPath); err != nil || st.Size() != 30_000_011 {
		t.Errorf("%v %v", st, err)
	}
}

func TestProcessesAreListedAndFound(t *testing.T) {
	s := start(t)
	p := s.start("sleep 1000", func(r *guestapi.StartProcess) { r.Tag, r.Command = "web", api.Command{Shell: "sleep 1000"} })
	s.fails("POST", "/processes", guestapi.StartProcess{Argv: []string{"true"}, Tag: "web"}, 409, api.CodeConflict)
	q := s.start("true")
	s.finish(q)
	var list []api.Process
	s.do("GET", "/processes", nil, &list)
	if len(list) != 2 || list[0].PID != p.PID || !list[0].Running || list[0].Tag != "web" || list[0].Cmd.Shell != "sleep 1000" ||
		list[1].Running || list[1].Exit == nil || list[1].EndedAt == nil || list[1].User != "root" {
		t.Errorf("got %+v", list)
	}
	s.do("DELETE", fmt.Sprintf("/processes/%d", p.PID), nil, nil)
	if _, exit := s.finish(p); exit.Signal != "SIGKILL" || exit.Reason != api.ReasonKilled || exit.Code != 137 {
		t.Errorf("got %+v", exit)
	}
	s.do("DELETE", fmt.Sprintf("/processes/%d", p.PID), nil, nil)
	s.finish(s.start("true", func(r *guestapi.StartProcess) { r.Tag = "web" }))
	e := s.fails("GET", "/processes/999999999", nil, 404, api.CodeNotFound)
	if !strings.Contains(e.Hint, fmt.Sprint(q.PID)) {
		t.Errorf("hint %q", e.Hint)
	}
	s.fails("GET", "/processes/zero", nil, 400, api.CodeInvalid)
}

func TestAttachToAProcessFromANumber(t *testing.T) {
	s := start(t)
	p := s.start("for i in 1 2 3; do echo $i; sleep 0.05; done")
	all, _ := s.finish(p)
	for _, ev := range all[:len(all)-1] {
		rest := s.events(s.request("GET", fmt.Sprintf("/processes/%d/events?after=%d&follow=1", p.PID, ev.Seq), nil))
		if rest[0].Seq != ev.Seq+1 {
			t.Errorf("after %d came %+v", ev.Seq, rest[0])
		}
	}
}

func TestCommandRequestsAreChecked(t *testing.T) {
	s := start(t)
	write(t, filepath.Join(s.dir, "plain"), "not a program")
	for _, c := range []struct {
		req   guestapi.StartProcess
		field string
	}{
		{guestapi.StartProcess{}, "cmd"},
		{guestapi.StartProcess{Argv: []string{""}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{"no-such-program"}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{"/no/such/program"}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{"/tmp"}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{filepath.Join(s.dir, "plain")}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{"true", "a\x00b"}}, "cmd"},
		{guestapi.StartProcess{Argv: []string{"true"}, CWD: "tmp"}, "cwd"},
		{guestapi.StartProcess{Argv: []string{"true"}, CWD: "/no/such"}, "cwd"},
		{guestapi.StartProcess{Argv: []string{"true"}, CWD: "/etc/passwd"}, "cwd"},
		{guestapi.StartProcess{Argv: []string{"true"}, User: "nobody-here"}, "user"},
		{guestapi.StartProcess{Argv: []string{"true"}, User: "4294967295"}, "user"},
		{guestapi.StartProcess{Argv: []string{"true"}, TimeoutMS: -5}, "timeout_ms"},
		{guestapi.StartProcess{Argv: []string{"true"}, Envs: map[string]string{"": "x"}}, "envs"},
		{guestapi.StartProcess{Argv: []string{"true"}, Envs: map[string]string{"A": "x\x00"}}, "envs"},
		{guestapi.StartProcess{Argv: []string{"true"}, Tag: strings.Repeat("t", 200)}, "tag"},
	} {
		if e := s.fails("POST", "/processes", c.req, 400, api.CodeInvalid); e.Field != c.field {
			t.Errorf("%+v: field %q, want %q (%s)", c.req, e.Field, c.field, e.Message)
		}
	}
	s.fails("POST", "/processes", guestapi.StartProcess{Argv: []string{"true", strings.Repeat("x", 300_000)}}, 413, api.CodeTooLarge)
	// An error may quote what was asked for, but not at such a length that the host does not read it.
	for _, name := range []string{strings.Repeat("x", 300_000), "/" + strings.Repeat("x", 300_000)} {
		if e := s.fails("POST", "/processes", guestapi.StartProcess{Argv: []string{name}}, 400, api.CodeInvalid); len(e.Message) > 4<<10 {
			t.Errorf("an error of %d bytes", len(e.Message))
		}
	}
	// Just as much as the system takes arrives whole.
	events, _ := s.shell("echo ${#1}", func(r *guestapi.StartProcess) { r.Argv = append(r.Argv, "sh", strings.Repeat("x", 120_000)) })
	if text(events, "stdout") != "120000\n" {
		t.Errorf("got %q", text(events, "stdout"))
	}
}

func TestOrphansAreReapedAndStatusesAreNotStolen(t *testing.T) {
	s := start(t)
	var list []api.Process
	for i := range 30 {
		list = append(list, s.start(fmt.Sprintf("for j in 1 2 3 4 5; do (sleep 0.0$j & ) ; done; exit %d", i)))
	}
	for i, p := range list {
		if _, exit := s.finish(p); exit.Code != i {
			t.Errorf("process %d ended with %+v", i, exit)
		}
	}
	eventually(t, "no zombie is left", func() bool {
		all, err := child.List()
		return err == nil && !slices.ContainsFunc(all, func(p child.Info) bool { return p.Zombie && p.Parent == os.Getpid() })
	})
}

func TestTooManyProcesses(t *testing.T) {
	s := start(t)
	var last *http.Response
	for range guestapi.MaxProcesses {
		s.start("exec sleep 1000")
	}
	last = s.request("POST", "/processes", guestapi.StartProcess{Argv: []string{"true"}})
	last.Body.Close()
	if last.StatusCode != http.StatusTooManyRequests {
		t.Errorf("got %s", last.Status)
	}
}
