package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
)

// follower reads a watch.
type follower struct {
	t     *testing.T
	res   *http.Response
	lines *bufio.Reader
	leave context.CancelFunc
}

func (l *live) watch(path, query string, header ...string) *follower {
	l.t.Helper()
	ctx, leave := context.WithCancel(l.t.Context())
	res, err := l.request(ctx, "ann", "GET", path+"/fs/watch?"+query, nil, header...)
	if err != nil {
		l.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		raw, _ := io.ReadAll(res.Body)
		l.t.Fatalf("%d: %s", res.StatusCode, raw)
	}
	l.t.Cleanup(func() { leave(); res.Body.Close() })
	return &follower{l.t, res, bufio.NewReader(res.Body), leave}
}

// next gives the next event, false at the end of the stream.
func (f *follower) next() (e api.FileEvent, more bool) {
	f.t.Helper()
	id := ""
	for {
		line, err := f.lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return e, false
		}
		if err != nil {
			f.t.Fatal(err)
		}
		if rest, is := strings.CutPrefix(line, "id: "); is {
			id = strings.TrimSpace(rest)
		}
		if rest, is := strings.CutPrefix(line, "data: "); is {
			if err := json.Unmarshal([]byte(rest), &e); err != nil {
				f.t.Fatal(err)
			}
			if id != strconv.FormatInt(e.Seq, 10) {
				f.t.Errorf("the id is %q, and seq %d", id, e.Seq)
			}
			return e, true
		}
	}
}

func (f *follower) is(kind, path string) api.FileEvent {
	f.t.Helper()
	e, more := f.next()
	if !more || e.Type != kind || e.Path != path {
		f.t.Fatalf("got %+v, %v, want %s %s", e, more, kind, path)
	}
	return e
}

func TestWatch(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	put := func(name string) { l.do(200, "PUT", path+"/fs?path="+url.QueryEscape(name), "x") }
	put("/w/old")
	w := l.watch(path, "path=/w")
	started := w.is(api.FileStarted, "")
	put("/w/new")
	put("/w/deep/er")
	put("/w/old")
	w.is(api.FileCreate, "/w/new")
	w.is(api.FileClose, "/w/new")
	w.is(api.FileWrite, "/w/old") // it is not recursive
	last := w.is(api.FileClose, "/w/old")

	// A broken link is not noticed.
	l.host.Guest(id).BreakLink()
	put("/w/later")
	after := w.is(api.FileCreate, "/w/later")
	if after.Seq != last.Seq+1 {
		t.Errorf("event %d after event %d", after.Seq, last.Seq)
	}

	// A broken connection is taken up where it was.
	w.leave()
	put("/w/meanwhile")
	again := l.watch(path, "path=/w&watch_id="+started.WatchID, "Last-Event-ID", strconv.FormatInt(after.Seq, 10))
	again.is(api.FileClose, "/w/later")
	again.is(api.FileCreate, "/w/meanwhile")
	l.do(409, "GET", path+"/fs/watch?path=/w/deep&watch_id="+started.WatchID, "")
	again.leave()

	// Or it is said that it is not.
	l.host.Guest(id).ForgetWatches()
	anew := l.watch(path, "path=/w&watch_id="+started.WatchID+"&after=7")
	if e := anew.is(api.FileStarted, ""); e.Seq != 8 {
		t.Errorf("%+v", e)
	}
	if e := anew.is(api.FileOverflow, ""); e.Reason != api.OverflowLost {
		t.Errorf("%+v", e)
	}
	l.host.Guest(id).EndWatches()
	if e := anew.is(api.FileEnded, ""); e.Reason != api.WatchRemoved {
		t.Errorf("%+v", e)
	}
	if e, more := anew.next(); more {
		t.Errorf("after the end: %+v", e)
	}

	l.do(404, "GET", path+"/fs/watch?path=/none", "")
	for query, field := range map[string]string{"": "path", "path=w": "path", "path=/w&recursive=2": "recursive", "path=/w&watch_id=a/b": "watch_id", "path=/w&after=-1": "after"} {
		if got := l.do(400, "GET", path+"/fs/watch?"+query, ""); !strings.Contains(got, `"field":"`+field+`"`) {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// Through a pause a watch waits.
func TestWatchOfAPausedSandbox(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	l.do(200, "PUT", path+"/fs?path=/w/f", "x")
	w := l.watch(path, "path=/w")
	w.is(api.FileStarted, "")
	l.do(204, "POST", path+"/pause", "")
	l.do(409, "GET", path+"/fs/watch?path=/w", "")
	l.do(204, "POST", path+"/resume", "")
	l.do(200, "PUT", path+"/fs?path=/w/g", "x")
	w.is(api.FileCreate, "/w/g")
}

// Whoever watches a sandbox is told when it is put to sleep, and does not wake
// it; a new watch does.
func TestWatchOfASandboxThatSleeps(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	l.do(200, "PUT", path+"/fs?path=/w/f", "x")
	status := func() string {
		var info api.SandboxInfo
		l.into(&info, 200, "GET", path, "")
		return string(info.Status)
	}
	for _, o := range []struct{ verb, reason, status string }{
		{"/hibernate", api.WatchHibernated, "hibernated"}, {"", api.WatchSandbox, ""},
	} {
		w := l.watch(path, "path=/w")
		w.is(api.FileStarted, "")
		logs, err := l.request(t.Context(), "ann", "GET", path+"/logs?follow=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		if o.verb == "" {
			l.do(204, "DELETE", path, "")
		} else {
			res, err := l.request(t.Context(), "ann", "POST", path+o.verb, nil)
			if err != nil || res.StatusCode/100 != 2 {
				t.Fatal(err, res)
			}
		}
		if e := w.is(api.FileEnded, ""); e.Reason != o.reason {
			t.Errorf("%s: %+v", o.verb, e)
		}
		if e, more := w.next(); more {
			t.Errorf("%s: %+v after the end", o.verb, e)
		}
		if _, err := io.Copy(io.Discard, logs.Body); err != nil { // they end, too, and wake nobody
			t.Errorf("%s: a log that is followed: %v", o.verb, err)
		}
		logs.Body.Close()
		if o.status == "" {
			return
		}
		if got := status(); got != o.status {
			t.Errorf("%s: the sandbox is %s", o.verb, got)
		}
	}
}
