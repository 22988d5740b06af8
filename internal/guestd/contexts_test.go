package guestd_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

// warmed is a sandbox with one context.
func warmed(t *testing.T, change ...func(*guestd.Config)) *sandbox {
	t.Helper()
	s := start(t, change...)
	s.warm()
	s.context("default")
	return s
}

func timeout(ms int64) func(*guestapi.RunRequest) {
	return func(r *guestapi.RunRequest) { r.TimeoutMS = ms }
}

func withID(id string) func(*guestapi.RunRequest) {
	return func(r *guestapi.RunRequest) { r.ExecutionID = id }
}

func types(events []api.Event) (list []string) {
	for _, ev := range events {
		list = append(list, ev.Type)
	}
	return list
}

func TestWarmReportsImports(t *testing.T) {
	s := start(t)
	resp := s.warm(func(r *guestapi.WarmRequest) { r.Imports = []string{"json", "no_such_module"} })
	if !strings.HasPrefix(resp.Version, "3.") || len(resp.Imports) != 1 || resp.Failed["no_such_module"] == "" {
		t.Errorf("got %+v", resp)
	}
	e := s.fails("POST", "/warm", guestapi.WarmRequest{Python: "/no/python"}, 400, api.CodeInvalid)
	if e.Field != "python" {
		t.Errorf("field %q", e.Field)
	}
	e = s.fails("POST", "/warm", guestapi.WarmRequest{Python: "/usr/bin/python3", Warmup: "raise SystemExit('no fonts')"}, 400, api.CodeInvalid)
	if !strings.Contains(e.Message, "no fonts") {
		t.Errorf("the reason is missing: %q", e.Message)
	}
}

func TestStateIsKeptFromCellToCell(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 20")
	events, x := s.run("default", "print('hello')\nx + 1")
	if x.End != api.EndOK || !x.StateSurvived || x.ExecutionCount != 2 || x.ExitCode != 0 || x.Error != nil {
		t.Errorf("end %+v", x)
	}
	if events[0].Type != api.EventStarted || events[0].ExecutionCount != 2 {
		t.Errorf("the first event is %+v", events[0])
	}
	if text(events, "stdout") != "hello\n" {
		t.Errorf("stdout %q", text(events, "stdout"))
	}
	result := events[len(events)-2]
	if result.Type != api.EventResult || result.Data["text/plain"] != "21" || !result.IsLastExpression {
		t.Errorf("result %+v", result)
	}
}

func TestAnErrorHasItsTraceback(t *testing.T) {
	s := warmed(t)
	_, x := s.run("default", "{}['Antarctica']")
	if x.End != api.EndError || x.ErrorName != "KeyError" || x.ExitCode != 1 || !x.StateSurvived ||
		x.Error == nil || !strings.Contains(*x.Error, "Antarctica") {
		t.Errorf("got %+v", x)
	}
}

// The streams and results must come in the order in which Python made them.
func TestOrderIsThatOfThePython(t *testing.T) {
	s := warmed(t)
	events, _ := s.run("default", `
import sys, os
for i in range(40):
    print("o%d" % i)
    print("e%d" % i, file=sys.stderr)
    show(n=str(i))
    os.write(1, b"c%d\n" % i) if i % 2 == 0 else None
`)
	var got strings.Builder
	for _, ev := range events {
		switch ev.Type {
		case api.EventStdout, api.EventStderr:
			got.WriteString(ev.Text)
		case api.EventResult:
			got.WriteString("r" + ev.Data["n"] + "\n")
		}
	}
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintf(&want, "o%d\ne%d\nr%d\n", i, i, i)
	}
	// os.write bypasses the order between streams, but not that within one.
	python := regexp.MustCompile(`c\d+\n`).ReplaceAllString(got.String(), "")
	if python != want.String() {
		t.Errorf("got\n%s", got.String())
	}
}

func TestAllOutputComesBeforeTheEnd(t *testing.T) {
	s := warmed(t)
	for range 20 {
		events, x := s.run("default", "import os\nos.system('echo from a child; echo complaint >&2')\nos.write(2, b'last\\n')")
		if x.End != api.EndOK || text(events, "stdout") != "from a child\n" || text(events, "stderr") != "complaint\nlast\n" {
			t.Fatalf("got %q %q", text(events, "stdout"), text(events, "stderr"))
		}
	}
}

func TestDeadlineInterruptsAndStateSurvives(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 1")
	events, x := s.run("default", "print('before')\nwhile True: pass", timeout(300))
	if x.End != api.EndTimeout || x.Step != "interrupt" || !x.StateSurvived || x.ExitCode != 1 {
		t.Errorf("end %+v", x)
	}
	if x.Error == nil || !strings.Contains(*x.Error, "variables are still there") {
		t.Errorf("error %v", x.Error)
	}
	if text(events, "stdout") != "before\n" {
		t.Errorf("partial output is lost: %q", text(events, "stdout"))
	}
	events, x = s.run("default", "x")
	if x.End != api.EndOK || events[1].Data["text/plain"] != "1" {
		t.Errorf("state is lost after all: %+v", events)
	}
}

func TestCellThatIgnoresInterruptsIsTerminated(t *testing.T) {
	s := warmed(t)
	_, x := s.run("default", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout(100))
	if x.End != api.EndTimeout || x.Step != "terminate" || x.StateSurvived {
		t.Errorf("end %+v", x)
	}
	if x.Error == nil || !strings.Contains(*x.Error, "variables and imports are gone") {
		t.Errorf("error %v", x.Error)
	}
	s.freshInterpreter("default")
}

func TestCellThatIgnoresAllIsKilledWithItsChildren(t *testing.T) {
	s := warmed(t)
	events, x := s.run("default", `
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
p = subprocess.Popen(["sleep", "1000"])
q = subprocess.Popen(["setsid", "-w", "sleep", "1000"], start_new_session=False)
print(p.pid)
while True: pass`, timeout(2000))
	if x.End != api.EndTimeout || x.Step != "kill" || x.StateSurvived {
		t.Errorf("end %+v", x)
	}
	var pid int
	fmt.Sscan(text(events, "stdout"), &pid)
	eventually(t, "the child of the cell is gone", func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
	s.freshInterpreter("default")
}

// freshInterpreter checks that a context answers with no state from before.
func (s *sandbox) freshInterpreter(cid string) {
	s.Helper()
	events, x := s.run(cid, "len([k for k in globals() if k in ('x', 'signal', 'os')])")
	if x.End != api.EndOK || x.ExecutionCount != 1 || text(events, "stderr") != "" {
		s.Errorf("no fresh interpreter: %+v %+v", x, events)
	}
	var c api.Context
	s.do("GET", "/contexts/"+cid, nil, &c)
	if c.Incarnation < 2 {
		s.Errorf("incarnation %d", c.Incarnation)
	}
}

func TestDeathOfTheInterpreter(t *testing.T) {
	for _, c := range []struct{ name, code, words string }{
		{"exit", "import os\nprint('partial')\nos._exit(7)", "exit status 7"},
		{"crash", "import os, signal\nprint('partial')\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"},
		{"kill", "import os, signal\nprint('partial')\nos.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"},
		{"group", "import os, signal\nprint('partial')\nos.killpg(0, signal.SIGKILL)", "SIGKILL"},
		{"channel", "import os\nprint('partial')\nos.closerange(3, 256)\nimport time\ntime.sleep(1000)", "closed its channel"},
		{"garbage", "print('partial')\nkernel.control.sendall(b'\\x7f\\xff\\xff\\xff garbage')\nimport time\ntime.sleep(1000)", "too long"},
		{"no JSON", "print('partial')\nkernel.control.sendall(b'\\0\\0\\0\\2{{')\nimport time\ntime.sleep(1000)", "not understood"},
		{"held open", "import os, subprocess\nprint('partial')\nsubprocess.Popen(['sleep', '1000'], close_fds=False)\nfor fd in range(3, 9):\n  try: os.set_inheritable(fd, True)\n  except OSError: pass\nif os.fork() == 0:\n  os.setsid()\n  import time; time.sleep(2); os._exit(0)\nos._exit(9)", "exit status 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := warmed(t)
			s.run("default", "x = 1")
			events, x := s.run("default", c.code)
			if x.End != api.EndKernelDied || x.StateSurvived || x.Error == nil || !strings.Contains(*x.Error, c.words) {
				t.Errorf("got %+v, error %v", x, *x.Error)
			}
			if text(events, "stdout") != "partial\n" {
				t.Errorf("partial output is lost: %q", text(events, "stdout"))
			}
			s.freshInterpreter("default")
		})
	}
}

func TestDeathBetweenCellsIsToldOnce(t *testing.T) {
	s := warmed(t)
	events, _ := s.run("default", "import os\nos.getpid()")
	var pid int
	fmt.Sscan(events[1].Data["text/plain"], &pid)
	_ = unix.Kill(pid, unix.SIGKILL)
	eventually(t, "the interpreter is replaced", func() bool {
		var c api.Context
		s.do("GET", "/contexts/default", nil, &c)
		return c.Incarnation == 2 && c.State == "idle"
	})
	events, _ = s.run("default", "1")
	if got := text(events, "stderr"); !strings.Contains(got, "SIGKILL") || !strings.Contains(got, "are gone") {
		t.Errorf("the next cell is not told: %q", got)
	}
	if events, _ = s.run("default", "1"); text(events, "stderr") != "" {
		t.Error("it is told twice")
	}
}

// The worst fault of a kernel is to give a cell the output of an earlier one.
func TestOutputOfAnEarlierCellIsNotTheNextOnes(t *testing.T) {
	s := warmed(t)
	events, _ := s.run("default", `
import threading, time, subprocess
child = subprocess.Popen("sleep 0.2; echo late child", shell=True)
print("first")`)
	if text(events, "stdout") != "first\n" {
		t.Errorf("stdout %q", text(events, "stdout"))
	}
	_, _ = s.run("default", "pass")
	late := filepath.Join(s.cfg.OutputDir, "context-default.late.log")
	eventually(t, "late output is kept in a file", func() bool {
		b, _ := os.ReadFile(late)
		return string(b) == "late child\n"
	})
	events, _ = s.run("default", "print('mine')")
	if text(events, "stdout") != "mine\n" {
		t.Errorf("stdout %q", text(events, "stdout"))
	}
}

func TestSameIDNeverRunsTwice(t *testing.T) {
	s := warmed(t)
	file := filepath.Join(s.dir, "lines")
	code := fmt.Sprintf("with open(%q, 'a') as f: f.write('once\\n')\nprint('done')", file)
	first, _ := s.run("default", code, withID("same"))
	again, x := s.run("default", code, withID("same"))
	if x.End != api.EndOK || text(again, "stdout") != text(first, "stdout") || len(again) != len(first) {
		t.Errorf("attaching gives %+v", again)
	}
	if b, _ := os.ReadFile(file); string(b) != "once\n" {
		t.Errorf("it ran again: %q", b)
	}
	s.fails("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "same", Code: "other"}, 409, api.CodeConflict)
	s.context("second")
	s.fails("POST", "/contexts/second/executions", guestapi.RunRequest{ExecutionID: "same", Code: code}, 409, api.CodeConflict)
	s.do("DELETE", "/contexts/default", nil, nil)
	s.context("default")
	s.fails("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "same", Code: code}, 404, api.CodeNotFound)
	if b, _ := os.ReadFile(file); string(b) != "once\n" {
		t.Errorf("it ran again: %q", b)
	}
}

func TestAttachFromANumber(t *testing.T) {
	s := warmed(t)
	all, _ := s.run("default", "for i in range(5): show(n=str(i))", withID("e1"))
	for _, ev := range all[:len(all)-1] {
		rest, _ := s.ended(s.events(s.request("GET", fmt.Sprintf("/contexts/default/executions/e1?after=%d&follow=1", ev.Seq), nil)))
		if rest[0].Seq != ev.Seq+1 || len(rest) != len(all)-int(ev.Seq) {
			t.Errorf("after %d came %v", ev.Seq, types(rest))
		}
	}
	whole, _ := s.ended(s.events(s.request("GET", "/contexts/default/executions/e1", nil)))
	if !slices.Equal(types(whole), types(all)) {
		t.Errorf("without follow came %v", types(whole))
	}
	e := s.fails("GET", "/contexts/default/executions/e1?after=x", nil, 400, api.CodeInvalid)
	if e.Field != "after" {
		t.Errorf("field %q", e.Field)
	}
	s.fails("GET", "/contexts/default/executions/none", nil, 404, api.CodeNotFound)
	for _, after := range []int64{all[len(all)-1].Seq, 1 << 40} {
		for _, follow := range []string{"", "&follow=1"} {
			e := s.fails("GET", fmt.Sprintf("/contexts/default/executions/e1?after=%d%s", after, follow), nil, 400, api.CodeInvalid)
			if e.Field != "after" || !strings.Contains(e.Message, "the last one is") {
				t.Errorf("after %d: %+v", after, e)
			}
		}
	}
}

func TestCellGoesOnWhenTheHostIsGone(t *testing.T) {
	s := warmed(t)
	fifo := filepath.Join(s.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	resp := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{
		ExecutionID: "e1", Code: fmt.Sprintf("print('waiting')\nopen(%q).read()\nprint('went on')", fifo), TimeoutMS: 60_000, Follow: true,
	})
	resp.Body.Close()
	s.client.CloseIdleConnections()
	s.breakLink()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	events, x := s.ended(s.events(s.request("GET", "/contexts/default/executions/e1?follow=1", nil)))
	if x.End != api.EndOK || text(events, "stdout") != "waiting\nwent on\n" {
		t.Errorf("got %+v", events)
	}
}

func TestInterruptStopsTheRunningCellOnly(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 5")
	first := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", Code: "print('go', flush=True)\nimport time\ntime.sleep(1000)", TimeoutMS: 60_000, Follow: true})
	second := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e2", Code: "x", TimeoutMS: 60_000, Follow: true})
	third := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e3", Code: "x = 6", TimeoutMS: 60_000, Follow: true})
	s.do("POST", "/contexts/default/executions/e3/interrupt", nil, nil)
	s.do("POST", "/contexts/default/executions/e1/interrupt", nil, nil)
	_, x := s.ended(s.events(first))
	if x.End != api.EndInterrupted || !x.StateSurvived {
		t.Errorf("running: %+v", x)
	}
	events, x := s.ended(s.events(second))
	if x.End != api.EndOK || events[1].Data["text/plain"] != "5" {
		t.Errorf("next: %+v", events)
	}
	events, x = s.ended(s.events(third))
	if x.End != api.EndInterrupted || !x.StateSurvived || len(events) != 1 {
		t.Errorf("waiting: %+v", events)
	}
	s.do("POST", "/contexts/default/interrupt", nil, nil) // nothing runs: it does nothing
	if _, x = s.run("default", "x"); x.End != api.EndOK {
		t.Errorf("after: %+v", x)
	}
}

func TestQueueIsInOrderAndBounded(t *testing.T) {
	s := warmed(t)
	fifo := filepath.Join(s.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	first := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{
		ExecutionID: "first", Code: fmt.Sprintf("order = []\nopen(%q).read()", fifo), TimeoutMS: 60_000, Follow: true})
	eventually(t, "the first runs", func() bool {
		var c api.Context
		s.do("GET", "/contexts/default", nil, &c)
		return c.RunningID == "first" && c.State == "busy"
	})
	var waiting []*http.Response
	for i := range guestapi.MaxQueue {
		waiting = append(waiting, s.request("POST", "/contexts/default/executions", guestapi.RunRequest{
			ExecutionID: fmt.Sprintf("w%d", i), Code: fmt.Sprintf("order.append(%d)", i), TimeoutMS: 60_000, Follow: true}))
	}
	e := s.fails("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "toomany", Code: "1"}, 429, api.CodeRateLimited)
	if e.Hint == "" {
		t.Error("no hint")
	}
	var h guestapi.Health
	s.do("GET", "/health", nil, &h)
	if !h.Busy {
		t.Error("health says that nothing runs")
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	s.events(first)
	for _, resp := range waiting {
		if _, x := s.ended(s.events(resp)); x.End != api.EndOK {
			t.Errorf("got %+v", x)
		}
	}
	events, _ := s.run("default", "order == list(range(32))")
	if events[1].Data["text/plain"] != "True" {
		t.Error("the order is wrong")
	}
	// An id that was turned away was not used up.
	if _, x := s.run("default", "1", withID("toomany")); x.End != api.EndOK {
		t.Errorf("got %+v", x)
	}
}

func TestRestartGivesANewInterpreter(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 1")
	running := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", Code: "import time\ntime.sleep(1000)", TimeoutMS: 60_000, Follow: true})
	waiting := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e2", Code: "x", TimeoutMS: 60_000, Follow: true})
	var c api.Context
	s.do("POST", "/contexts/default/restart", nil, &c)
	if c.Incarnation != 2 {
		t.Errorf("got %+v", c)
	}
	for _, resp := range []*http.Response{running, waiting} {
		if _, x := s.ended(s.events(resp)); x.End != api.EndInterrupted || x.StateSurvived || !strings.Contains(*x.Error, "restarted") {
			t.Errorf("got %+v", x)
		}
	}
	s.freshInterpreter("default")
}

func TestCloseEndsEverythingOfAContext(t *testing.T) {
	s := warmed(t)
	events, _ := s.run("default", "import os, subprocess\nsubprocess.Popen(['sleep', '1000'])\nos.getpid()")
	var pid int
	fmt.Sscan(events[1].Data["text/plain"], &pid)
	running := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", Code: "import time\ntime.sleep(1000)", TimeoutMS: 60_000, Follow: true})
	s.do("DELETE", "/contexts/default", nil, nil)
	if _, x := s.ended(s.events(running)); x.End != api.EndInterrupted || !strings.Contains(*x.Error, "closed") {
		t.Errorf("got %+v", x)
	}
	s.fails("GET", "/contexts/default", nil, 404, api.CodeNotFound)
	s.fails("DELETE", "/contexts/default", nil, 404, api.CodeNotFound)
	eventually(t, "its session is gone", func() bool {
		all, _ := child.List()
		return !slices.ContainsFunc(all, func(p child.Info) bool { return p.Session == pid && !p.Zombie })
	})
}

func TestContextsAreApart(t *testing.T) {
	s := warmed(t)
	s.context("b")
	s.run("default", "x = 1")
	_, x := s.run("b", "x")
	if x.ErrorName != "NameError" {
		t.Errorf("got %+v", x)
	}
	var list []api.Context
	s.do("GET", "/contexts", nil, &list)
	if len(list) != 2 || list[0].ID != "default" || list[1].ID != "b" || list[0].ExecutionCount != 1 || list[0].State != "idle" {
		t.Errorf("got %+v", list)
	}
	s.fails("POST", "/contexts", api.CreateContextRequest{ID: "b"}, 409, api.CodeConflict)
	e := s.fails("GET", "/contexts/c", nil, 404, api.CodeNotFound)
	if !strings.Contains(e.Hint, "default") {
		t.Errorf("hint %q", e.Hint)
	}
}

func TestContextRequestsAreChecked(t *testing.T) {
	s := start(t)
	s.fails("POST", "/contexts", api.CreateContextRequest{}, 501, api.CodeUnsupported) // not warmed
	s.warm()
	for _, c := range []struct {
		body  any
		field string
	}{
		{api.CreateContextRequest{Language: "ruby"}, "language"},
		{api.CreateContextRequest{CWD: "relative"}, "cwd"},
		{api.CreateContextRequest{CWD: "/no/such/folder"}, "cwd"},
		{api.CreateContextRequest{ID: "a/b"}, "id"},
		{api.CreateContextRequest{ID: strings.Repeat("a", 200)}, "id"},
		{api.CreateContextRequest{Envs: map[string]string{"A=B": "c"}}, "envs"},
		{`{"id": 5}`, "id"},
	} {
		if e := s.fails("POST", "/contexts", c.body, 400, api.CodeInvalid); e.Field != c.field {
			t.Errorf("%+v: field %q, want %q", c.body, e.Field, c.field)
		}
	}
	e := s.fails("POST", "/contexts", api.CreateContextRequest{Language: "ruby"}, 400, api.CodeInvalid)
	if !strings.Contains(e.Hint, "python") {
		t.Errorf("the hint does not list the languages: %q", e.Hint)
	}
	s.fails("POST", "/contexts", "{", 400, api.CodeInvalid)
	s.context("default")
	for _, c := range []struct {
		req   guestapi.RunRequest
		field string
	}{
		{guestapi.RunRequest{ExecutionID: "a", Code: " \n"}, "code"},
		{guestapi.RunRequest{Code: "1"}, "execution_id"},
		{guestapi.RunRequest{ExecutionID: "a b", Code: "1"}, "execution_id"},
		{guestapi.RunRequest{ExecutionID: "a", Code: "1", TimeoutMS: -1}, "timeout_ms"},
		{guestapi.RunRequest{ExecutionID: "a", Code: "1", TimeoutMS: 1 << 60}, "timeout_ms"},
		{guestapi.RunRequest{ExecutionID: "a", Code: "1", After: -1}, "after"},
	} {
		if e := s.fails("POST", "/contexts/default/executions", c.req, 400, api.CodeInvalid); e.Field != c.field {
			t.Errorf("%+v: field %q, want %q", c.req, e.Field, c.field)
		}
	}
	s.fails("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "a", Code: strings.Repeat("#", guestapi.MaxCode+1)}, 413, api.CodeTooLarge)
	for i := 1; i < guestapi.MaxContexts; i++ {
		s.context(fmt.Sprint("c", i))
	}
	s.fails("POST", "/contexts", api.CreateContextRequest{}, 429, api.CodeRateLimited)
}

func TestContextGetsItsEnvironmentAndFolder(t *testing.T) {
	s := start(t)
	s.warm()
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb1", Generation: 1, Envs: map[string]string{"A": "sandbox", "B": "sandbox"}}, nil)
	dir := t.TempDir()
	s.do("POST", "/contexts", api.CreateContextRequest{ID: "c", CWD: dir, Envs: map[string]string{"B": "context"}}, nil)
	events, _ := s.run("c", "import os, subprocess\nprint(os.environ['A'], os.environ['B'], os.getcwd(), os.environ['HOME'], os.environ['LANG'], os.environ['PANDASTACK_SANDBOX_ID'], 'PYTHONPATH' in os.environ)")
	if got, want := text(events, "stdout"), "sandbox context "+dir+" /root C.UTF-8 sb1 False\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHugeOutputIsKeptAtBothEnds(t *testing.T) {
	s := warmed(t)
	events, x := s.run("default", `
import os
print("first line")
block = b"0123456789abcde\n" * 4096
for _ in range(400): os.write(1, block)   # 25 MiB
print("last line")`, func(r *guestapi.RunRequest) { r.Follow = false })
	out := text(events, "stdout")
	total := int64(len("first line\n") + 400*65536 + len("last line\n"))
	if x.End != api.EndOK || !x.Truncated || x.StdoutDropped != total-int64(len(out)) {
		t.Errorf("dropped %d, kept %d of %d", x.StdoutDropped, len(out), total)
	}
	if !strings.HasPrefix(out, "first line\n0123") || !strings.HasSuffix(out, "\nlast line\n") || len(out) > guestapi.KeepHead+guestapi.KeepTail {
		t.Errorf("kept %.20q … %q, %d bytes", out, out[len(out)-20:], len(out))
	}
	if !slices.Contains(types(events), api.EventGap) {
		t.Error("there is no gap event")
	}
	st, err := os.Stat(x.OutputPath)
	if err != nil || st.Size() != total {
		t.Errorf("the whole output is not in %s: %v", x.OutputPath, err)
	}
}

func TestNonASCIIPassesWhole(t *testing.T) {
	s := warmed(t)
	events, x := s.run("default", "größe = '日本語 🐼'\nfor c in (größe + 'é').encode(): os.write(1, bytes([c])) if 'os' in globals() else None\nimport os\nos.write(1, größe.encode()[:4]); os.write(2, b''); os.write(1, größe.encode()[4:])\nos.write(1, b' \\xff')\ngröße")
	if got := text(events, "stdout"); x.End != api.EndOK || got != "日本語 🐼 \uFFFD" {
		t.Errorf("stdout %q, %+v", got, x)
	}
	if got := events[len(events)-2].Data["text/plain"]; got != "'日本語 🐼'" {
		t.Errorf("result %q", got)
	}
}

func TestResultsAreBounded(t *testing.T) {
	s := warmed(t)
	events, x := s.run("default", "for i in range(6): show(big='x' * (10 << 20))\nprint('done')", func(r *guestapi.RunRequest) { r.Follow = false })
	results := 0
	for _, ev := range events {
		if ev.Type == api.EventResult {
			results++
		}
	}
	if x.End != api.EndOK || !x.Truncated || results != 4 || text(events, "stdout") != "done\n" {
		t.Errorf("%d results, %+v", results, x)
	}
}

// The host refuses an event with more than was agreed, and with it the whole
// execution, so none must leave the guest.
func TestResultsDescribedInTooManyWaysAreCut(t *testing.T) {
	s := warmed(t)
	events, x := s.run("default", `
show(**{"text/plain": "words", **{"type/%d" % i: "v" for i in range(100)}})
show(**{"text/plain": "words", "t" * 129: "v"})
def deep(n): return [deep(n - 1)] if n else []
kernel.send(op="result", id=kernel.id, data={"text/plain": "words"}, last=False,
            metadata={"deep": deep(100), "m" * 200: 1, **{"k%d" % i: i for i in range(100)}})
`)
	var results []api.Event
	for _, ev := range events {
		if ev.Type == api.EventResult {
			results = append(results, ev)
		}
	}
	if x.End != api.EndOK || len(results) != 3 {
		t.Fatalf("%d results, %+v", len(results), x)
	}
	for i, n := range []int{guestapi.MaxTypes, 1} {
		if r := results[i]; len(r.Data) != n || !strings.HasPrefix(r.Data["text/plain"], "words\n[") {
			t.Errorf("%d types, %q", len(r.Data), r.Data["text/plain"])
		}
	}
	if m := results[2].Metadata; len(m) != guestapi.MaxMetadata || m["deep"] != nil || string(m["k0"]) != "0" || results[2].Data["text/plain"] != "words" {
		t.Errorf("%d entries of metadata, %v", len(m), results[2].Data)
	}
}

func TestSparesAreTakenAndRefilled(t *testing.T) {
	s := start(t)
	s.warm(func(r *guestapi.WarmRequest) { r.Spares = 2 })
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, Spares: 2}, nil)
	spares := func() float64 {
		var h guestapi.Health
		s.do("GET", "/health", nil, &h)
		return h.Detail["kernels"].(map[string]any)["spares"].(float64)
	}
	if spares() != 2 {
		t.Fatalf("%v spares", spares())
	}
	s.context("a")
	if spares() != 1 {
		t.Errorf("%v spares after one was taken", spares())
	}
	s.context("b")
	eventually(t, "they are refilled for one with several contexts", func() bool { return spares() == 2 })
}

// A snapshot that is taken after warming must not have a spare in it that still rehearses.
func TestWarmingWaitsForTheSpares(t *testing.T) {
	s := start(t)
	s.warm(func(r *guestapi.WarmRequest) { r.Spares = 2 })
	for _, cid := range []string{"a", "b"} {
		s.context(cid)
		if events, x := s.run(cid, "REHEARSED"); x.End != api.EndOK {
			t.Errorf("%s: %+v", cid, events)
		}
	}
}

func TestSparesRehearseAgainWhenAsked(t *testing.T) {
	s := start(t)
	s.warm(func(r *guestapi.WarmRequest) { r.Spares = 1 })
	for i, asked := range []bool{true, false} {
		var resp guestapi.AssignResponse
		s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, Spares: 1, Rehearse: asked}, &resp)
		if step := steps(resp)["rehearsal"]; !step.OK {
			t.Errorf("%+v", step)
		}
		cid := strconv.Itoa(i)
		s.context(cid)
		events, _ := s.run(cid, "REHEARSED")
		if _, x := s.run(cid, "REHEARSED"); (x.End == api.EndOK) != asked {
			t.Errorf("asked %v: %+v", asked, events)
		}
	}
}

// What runs in a sandbox may remove its Python: whoever asks for a context is
// told, and what runs already goes on.
func TestPythonThatIsGone(t *testing.T) {
	s := start(t)
	python := filepath.Join(t.TempDir(), "python3")
	if err := os.Symlink("/usr/bin/python3", python); err != nil {
		t.Fatal(err)
	}
	s.warm(func(r *guestapi.WarmRequest) { r.Python = python })
	s.context("default")
	s.run("default", fmt.Sprintf("import os, signal\nos.remove(%q)\nos.kill(os.getppid(), signal.SIGKILL)", python))
	e := s.fails("POST", "/contexts", api.CreateContextRequest{ID: "another"}, 409, api.CodeConflict)
	if !strings.Contains(e.Message, python) || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	if events, _ := s.run("default", "6 * 7"); events[1].Data["text/plain"] != "42" {
		t.Errorf("the context that had an interpreter: %+v", events)
	}
}

func TestZygoteThatDiesIsReplaced(t *testing.T) {
	s := warmed(t)
	s.run("default", "x = 1")
	events, _ := s.run("default", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nx")
	_ = events
	events, x := s.run("default", "x")
	if x.End != api.EndOK || events[1].Data["text/plain"] != "1" {
		t.Errorf("the context did not outlive the zygote: %+v", events)
	}
	// Its end is still seen, now by the agent itself, and a new zygote is made.
	_, x = s.run("default", "import os\nos._exit(5)")
	if x.End != api.EndKernelDied || !strings.Contains(*x.Error, "exit status 5") {
		t.Errorf("got %+v %v", x, *x.Error)
	}
	s.freshInterpreter("default")
	s.context("another")
}

func TestReseedReachesContextsThatExist(t *testing.T) {
	s := warmed(t)
	assign := guestapi.AssignRequest{SandboxID: "sb", Generation: 2, Reseed: true, Entropy: randomBytes(64)}
	s.do("POST", "/assign", assign, nil)
	events, _ := s.run("default", "len(SEED) >= 64, SEED == INIT['entropy']")
	if got := events[1].Data["text/plain"]; got != "(True, False)" {
		t.Errorf("got %s", got)
	}
	s.context("b")
	a, _ := s.run("default", "SEED")
	b, _ := s.run("b", "INIT['entropy']")
	if a[1].Data["text/plain"] == b[1].Data["text/plain"] {
		t.Error("two contexts got the same entropy")
	}
	assign.Reseed = false
	s.do("POST", "/assign", assign, nil)
	s.context("c")
	events, _ = s.run("c", "INIT['reseed'], 'SEED' in globals()")
	if got := events[1].Data["text/plain"]; got != "(False, False)" {
		t.Errorf("got %s", got)
	}
}

func TestWatchdogEndsTheLargestContextOnly(t *testing.T) {
	var used memoryGauge
	s := warmed(t, func(c *guestd.Config) { c.Memory = used.read })
	s.context("small")
	s.run("small", "x = 'kept'")
	s.run("default", "x = bytearray(64 << 20)")
	running := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", Code: "print('partial')\nimport time\ntime.sleep(1000)", TimeoutMS: 60_000, Follow: true})
	eventually(t, "it runs", func() bool {
		var c api.Context
		s.do("GET", "/contexts/default", nil, &c)
		return c.RunningID == "e1" && c.ExecutionCount == 1
	})
	used.set(1020 << 20)
	used.dropAfterNextRead()
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, MemoryMB: 1024}, nil)
	_, x := s.ended(s.events(running))
	if x.End != api.EndOOM || x.StateSurvived || x.ErrorName != "OutOfMemory" {
		t.Errorf("got %+v", x)
	}
	events, x := s.run("small", "x")
	if x.End != api.EndOK || events[1].Data["text/plain"] != "'kept'" {
		t.Errorf("the other context is harmed: %+v", events)
	}
	s.freshInterpreter("default")
}

// runOutOfMemory lets the watchdog end the interpreter of the context default, which is idle and the only one.
func (s *sandbox) runOutOfMemory(used *memoryGauge) {
	s.Helper()
	used.set(1020 << 20)
	used.dropAfterNextRead()
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, MemoryMB: 1024}, nil)
	eventually(s.T, "it has ended", func() bool {
		c := s.contextInfo("default")
		return c.Incarnation == 2 && c.State == "idle"
	})
}

func (s *sandbox) contextInfo(cid string) (c api.Context) {
	s.Helper()
	s.do("GET", "/contexts/"+cid, nil, &c)
	return c
}

// The interpreter of that cell comes after the watchdog was told of the cell.
func TestTheCellAfterAnEndForMemoryIsWatchedToo(t *testing.T) {
	var used memoryGauge
	s := warmed(t, func(c *guestd.Config) { c.Memory = used.read })
	s.runOutOfMemory(&used)
	running := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", Code: "import time\ntime.sleep(1000)", TimeoutMS: 60_000, Follow: true})
	eventually(t, "it runs", func() bool { return s.contextInfo("default").RunningID == "e1" })
	used.set(1020 << 20)
	used.dropAfterNextRead()
	if _, x := s.ended(s.events(running)); x.End != api.EndOOM {
		t.Errorf("got %+v", x)
	}
}

// A new interpreter has a random state of its own: one that the user's code has set since is left alone.
func TestAReseedIsOverWithTheInterpreterItWasFor(t *testing.T) {
	var used memoryGauge
	s := warmed(t, func(c *guestd.Config) { c.Memory = used.read })
	s.runOutOfMemory(&used)
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 2, MemoryMB: 1024, Reseed: true, Entropy: randomBytes(64)}, nil)
	s.run("default", "x = 1")
	events, _ := s.run("default", "INIT['reseed'], 'SEED' in globals()")
	if got := events[1].Data["text/plain"]; got != "(True, False)" {
		t.Errorf("got %s", got)
	}
}

func TestAContextThatWasEndedForItsMemorySaysSoToTheNextCell(t *testing.T) {
	var used memoryGauge
	s := warmed(t, func(c *guestd.Config) { c.Memory = used.read })
	s.run("default", "x = 1")
	s.runOutOfMemory(&used)
	events, x := s.run("default", "x")
	if got := text(events, "stderr"); x.ErrorName != "NameError" || !strings.Contains(got, "no memory left") {
		t.Errorf("%+v %q", x, got)
	}
}

// Idle contexts take memory, too. One more than fits would cost the sandbox.
func TestNoContextIsMadeWithoutMemoryForIt(t *testing.T) {
	var used memoryGauge
	s := start(t, func(c *guestd.Config) { c.Memory = used.read })
	s.warm()
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, MemoryMB: 2048}, nil)
	used.set(1800 << 20)
	s.context("first") // a sandbox without any is of no use
	e := s.fails("POST", "/contexts", api.CreateContextRequest{ID: "second"}, 409, api.CodeConflict)
	if !strings.Contains(e.Message, "memory") || e.Hint == "" {
		t.Errorf("got %+v", e)
	}
	used.set(500 << 20)
	s.context("second")
}

func TestKernelsHaveASoftLimitOfMemory(t *testing.T) {
	s := start(t)
	s.warm()
	s.do("POST", "/assign", guestapi.AssignRequest{SandboxID: "sb", Generation: 1, MemoryMB: 1000}, nil)
	s.context("default")
	events, _ := s.run("default", "INIT['memory_limit'] == 850 * 2**20")
	if events[1].Data["text/plain"] != "True" {
		t.Error("memory_limit is not the share of the sandbox that a kernel may take")
	}
}

// An interpreter that hangs while it is forked, or before it begins, does not
// hang whoever waits for its context. The next one has another.
func TestInterpreterThatHangsAtItsStart(t *testing.T) {
	hang := filepath.Join(t.TempDir(), "hang")
	for name, warmup := range map[string]string{
		// In the interpreter that is forked: it never says that it has a child.
		"fork": `
import os, time
fork = os.fork
os.fork = lambda: time.sleep(1000) if os.path.exists(%q) else fork()`,
		// In the child: it is there and does not begin.
		"start": `
import os, time
fork = os.fork
def hanging():
    pid = fork()
    if pid == 0 and os.path.exists(%q):
        time.sleep(1000)
    return pid
os.fork = hanging`,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(c *guestd.Config) { c.StartTime = 300 * time.Millisecond })
			s.warm(func(r *guestapi.WarmRequest) { r.Warmup = fmt.Sprintf(warmup, hang) })
			write(t, hang, "")
			e := s.fails("POST", "/contexts", api.CreateContextRequest{ID: "a"}, 409, api.CodeConflict)
			if !strings.Contains(e.Message, "did not answer within 300ms") || e.Hint == "" {
				t.Errorf("%+v", e)
			}
			if err := os.Remove(hang); err != nil {
				t.Fatal(err)
			}
			eventually(t, "there is another one", func() bool {
				resp := s.request("POST", "/contexts", api.CreateContextRequest{ID: "a"})
				resp.Body.Close()
				return resp.StatusCode/100 == 2
			})
			if events, x := s.run("a", "6 * 7"); x.End != api.EndOK || events[1].Data["text/plain"] != "42" {
				t.Errorf("%+v", events)
			}
		})
	}
}

// An interpreter that hangs in its imports is given up, too: one that takes the
// place of one that died.
func TestInterpreterThatHangsInItsImports(t *testing.T) {
	s := start(t, func(c *guestd.Config) { c.StartTime = time.Second })
	hang := filepath.Join(s.dir, "hang")
	s.warm(func(r *guestapi.WarmRequest) {
		r.Warmup = fmt.Sprintf("import os, time\nif os.path.exists(%q): time.sleep(1000)", hang)
	})
	s.context("default")
	write(t, hang, "")
	s.run("default", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
	e := s.fails("POST", "/contexts", api.CreateContextRequest{ID: "a"}, 409, api.CodeConflict)
	if !strings.Contains(e.Message, "did not import what it has to within 2s") || e.Hint == "" {
		t.Errorf("%+v", e)
	}
	if events, _ := s.run("default", "6 * 7"); events[1].Data["text/plain"] != "42" {
		t.Errorf("the context that had an interpreter: %+v", events)
	}
	if err := os.Remove(hang); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another one", func() bool {
		resp := s.request("POST", "/contexts", api.CreateContextRequest{ID: "a"})
		resp.Body.Close()
		return resp.StatusCode/100 == 2
	})
}

// A cell that is deaf to a client's interrupts runs on, the context says so, and
// a restart ends it.
func TestCellThatIsDeafToAClientsInterrupt(t *testing.T) {
	s := warmed(t)
	heard := filepath.Join(s.dir, "heard")
	running := s.request("POST", "/contexts/default/executions", guestapi.RunRequest{ExecutionID: "e1", TimeoutMS: 600_000, Follow: true, Code: fmt.Sprintf(`
import time
print("go", flush=True)
while True:
    try:
        open(%[1]q, "a").close()
        while True:
            time.sleep(1000)
    except KeyboardInterrupt:
        with open(%[1]q, "a") as f:
            f.write("no\n")
`, heard)})
	said := func() string { b, _ := os.ReadFile(heard); return string(b) }
	eventually(t, "it runs", func() bool { _, err := os.Stat(heard); return err == nil })
	for n := 1; n <= 2; n++ {
		s.do("POST", "/contexts/default/interrupt", nil, nil)
		eventually(t, "it heard the interrupt", func() bool { return said() == strings.Repeat("no\n", n) })
		var c api.Context
		if s.do("GET", "/contexts/default", nil, &c); c.RunningID != "e1" || c.State != "busy" {
			t.Errorf("after %d interrupts: %+v", n, c)
		}
	}
	s.do("POST", "/contexts/default/restart", nil, nil)
	if _, x := s.ended(s.events(running)); x.End != api.EndInterrupted || x.StateSurvived || !strings.Contains(*x.Error, "restarted") {
		t.Errorf("%+v", x)
	}
	s.freshInterpreter("default")
}
