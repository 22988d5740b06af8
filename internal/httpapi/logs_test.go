package httpapi_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
)

// The console and the agent's log can be read and followed, also across a link
// that breaks; the id of a request is in it.
func TestLogs(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	g := l.host.Guest(id)
	l.do(200, "GET", path+"/repl/sessions", "", "X-Request-Id", "id-of-mine")
	g.Print("stdout", "from a program")
	all := l.do(200, "GET", path+"/logs", "")
	if !strings.Contains(all, "request id-of-mine GET /contexts\n") || !strings.Contains(all, "from a program\n") {
		t.Errorf("both: %q", all)
	}
	if got := l.do(200, "GET", path+"/logs?stream=stdout&follow=0", ""); got != "from a program\n" {
		t.Errorf("the console: %q", got)
	}
	if got := l.do(200, "GET", path+"/logs?stream=stderr", ""); strings.Contains(got, "program") || !strings.Contains(got, "id-of-mine") {
		t.Errorf("the agent: %q", got)
	}
	l.do(400, "GET", path+"/logs?stream=out", "")
	l.do(400, "GET", path+"/logs?follow=yes", "")
	l.do(404, "GET", "/v1/sandboxes/none/logs", "")

	res, err := l.request(t.Context(), "ann", "GET", path+"/logs?follow=1&stream=stdout", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if !strings.Contains(data, `"line":"`+want+`","stream":"stdout"`) {
					t.Errorf("%s, want %q", data, want)
				}
				return
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	next("from a program")
	g.Print("stdout", "one")
	next("one")
	g.BreakLink()
	g.Print("stdout", "two")
	next("two")
	l.do(204, "DELETE", path, "")
	for lines.Scan() { // it ends with the sandbox
		if strings.HasPrefix(lines.Text(), "data: ") {
			t.Errorf("after the end: %s", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
}
