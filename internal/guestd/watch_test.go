package guestd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// watched reads a watch.
type watched struct {
	s     *sandbox
	resp  *http.Response
	lines *bufio.Scanner
}

func (s *sandbox) watch(id, path string, after int64) *watched {
	s.Helper()
	resp := s.request("GET", fmt.Sprintf("/watches/%s?path=%s&after=%d", id, url.QueryEscape(path), after), nil)
	if resp.StatusCode != 200 {
		b, _ := io.ReadAll(resp.Body)
		s.Fatalf("%s: %s", resp.Status, b)
	}
	s.Cleanup(func() { resp.Body.Close() })
	return &watched{s, resp, bufio.NewScanner(resp.Body)}
}

func (w *watched) next() (e api.FileEvent) {
	w.s.Helper()
	for w.lines.Scan() {
		if line := w.lines.Text(); line != "" {
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				w.s.Fatal(err)
			}
			return e
		}
	}
	w.s.Fatalf("the stream has ended: %v", w.lines.Err())
	return e
}

func (w *watched) is(kind, path string) api.FileEvent {
	w.s.Helper()
	e := w.next()
	if e.Type != kind || e.Path != path {
		w.s.Fatalf("got %+v, want %s %s", e, kind, path)
	}
	return e
}

func TestWatchesAreComeBackTo(t *testing.T) {
	s := start(t)
	dir := filepath.Join(s.dir, "w")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := s.watch("mine", dir, 0)
	if e := w.is(api.FileStarted, ""); e.WatchID != "mine" || e.Seq != 1 {
		t.Errorf("%+v", e)
	}
	s.put(filepath.Join(dir, "a"), []byte("x"))
	w.is(api.FileCreate, filepath.Join(dir, "a"))
	w.resp.Body.Close()
	// While nobody reads it goes on, and two may read it.
	s.put(filepath.Join(dir, "b"), []byte("x"))
	for range 2 {
		again := s.watch("mine", dir, 2)
		again.is(api.FileClose, filepath.Join(dir, "a"))
		again.is(api.FileCreate, filepath.Join(dir, "b"))
	}
	at := func(id, path, query string) string {
		return "/watches/" + id + "?path=" + url.QueryEscape(path) + query
	}
	s.fails("GET", at("mine", s.dir, ""), nil, 409, api.CodeConflict)
	s.fails("GET", at("mine", dir, "&recursive=1"), nil, 409, api.CodeConflict)
	s.fails("GET", at("mine", dir, "&after=99"), nil, 400, api.CodeInvalid)
	s.fails("GET", at("a%2Fb", dir, ""), nil, 400, api.CodeInvalid)
	s.fails("GET", at("none", dir+"/none", ""), nil, 404, api.CodeNotFound)

	// One that is no more is begun anew under its id, which is said; numbers go on.
	anew := s.watch("lost", dir, 41)
	if e := anew.is(api.FileStarted, ""); e.Seq != 42 {
		t.Errorf("%+v", e)
	}
	if e := anew.is(api.FileOverflow, ""); e.Reason != api.OverflowLost || e.Seq != 43 {
		t.Errorf("%+v", e)
	}

	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for e := anew.next(); e.Type != api.FileEnded; e = anew.next() {
		if e.Type != api.FileRemove && e.Type != api.FileChmod {
			t.Errorf("%+v", e)
		}
	}
	if anew.lines.Scan() {
		t.Errorf("after the end: %s", anew.lines.Text())
	}
}

func TestThereAreSoManyWatches(t *testing.T) {
	s := start(t)
	var left []*watched
	for i := range guestapi.MaxWatches {
		w := s.watch(fmt.Sprint(i), s.dir, 0)
		w.is(api.FileStarted, "")
		if i < 5 {
			left = append(left, w)
		}
	}
	e := s.fails("GET", "/watches/more?path="+url.QueryEscape(s.dir), nil, 429, api.CodeRateLimited)
	if !strings.Contains(e.Message, "32") {
		t.Errorf("%+v", e)
	}
	s.watch("9", s.dir, 0).is(api.FileStarted, "") // one that is there takes no place
	// Those that nobody reads any more make room, once the agent has heard that they were left.
	for i, w := range left {
		w.resp.Body.Close()
		path := fmt.Sprintf("/watches/new%d?path=%s", i, url.QueryEscape(s.dir))
		resp := s.request("GET", path, nil)
		for ; resp.StatusCode == http.StatusTooManyRequests; resp = s.request("GET", path, nil) {
			resp.Body.Close()
		}
		s.Cleanup(func() { resp.Body.Close() })
	}
	s.fails("GET", "/watches/more?path="+url.QueryEscape(s.dir), nil, 429, api.CodeRateLimited)
}
