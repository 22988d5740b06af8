package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// screen is a client's end of a terminal.
type screen struct {
	*testing.T
	conn *websocket.Conn
	last int64 // number of the event that came last
}

type words struct {
	Seq     int64  `json:"seq"`
	Dropped int64  `json:"dropped"`
	Exit    *int   `json:"exit"`
	Reason  string `json:"reason"`
	Error   string `json:"error"`
	Code    string `json:"code"`
	Field   string `json:"field"`
}

func (l *live) screen(path string) *screen {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	l.t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, l.url+path, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer ann"}}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.CloseNow() })
	return &screen{T: l.t, conn: conn}
}

func (s *screen) write(kind websocket.MessageType, text string) {
	s.Helper()
	if err := s.conn.Write(s.Context(), kind, []byte(text)); err != nil {
		s.Fatal(err)
	}
}

// hear reads one message: output, or words.
func (s *screen) hear() (output string, said words) {
	s.Helper()
	kind, raw, err := s.conn.Read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	if kind == websocket.MessageBinary {
		s.last++
		return string(raw), words{}
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		s.Fatal(err)
	}
	if said.Seq > 0 {
		s.last = said.Seq - 1
	}
	return "", said
}

// see reads output, and the numbers before it.
func (s *screen) see(want string) {
	s.Helper()
	got := ""
	for len(got) < len(want) {
		output, said := s.hear()
		if said.Seq == 0 && output == "" {
			s.Fatalf("%q, then %+v, want %q", got, said, want)
		}
		got += output
	}
	if got != want {
		s.Fatalf("got %q, want %q", got, want)
	}
}

func (s *screen) exit() words {
	s.Helper()
	output, said := s.hear()
	if said.Exit == nil {
		s.Fatalf("%q %+v, want an exit", output, said)
	}
	if _, _, err := s.conn.Read(s.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		s.Errorf("after the exit: %v", err)
	}
	return said
}

// What published clients speak: bytes both ways, and the size as text.
func TestShellOverAWebSocket(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	s := l.screen(path + "/exec/pty?rows=30&cols=100&cmd=tty%3Bresized%3Btype%3Bexit+7")
	s.see("30x100\n")
	// Nobody notices, since nothing is on its way in: what may or may not have been typed is told.
	l.host.Guest(id).BreakLink()
	s.write(websocket.MessageText, `{"resize":{"rows":5,"cols":6}}`)
	s.see("5x6\n")
	s.write(websocket.MessageBinary, "a\xff")
	s.see("a\xff")
	s.write(websocket.MessageText, `{"stdin":"b"}`)
	s.see("b")
	for text, field := range map[string]string{`nonsense`: "", `{"resize":{"rows":-1}}`: "rows", `{"stdin":5}`: "stdin"} {
		s.write(websocket.MessageText, text)
		if _, said := s.hear(); said.Code != "invalid" || said.Field != field {
			t.Errorf("%s: %+v", text, said)
		}
	}
	s.write(websocket.MessageBinary, "\x04")
	if said := s.exit(); *said.Exit != 7 || said.Reason != "exited" {
		t.Errorf("%+v", said)
	}
}

func TestShellEndsWithItsWebSocket(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	s := l.screen(path + "/exec/pty?cmd=tty%3Btype")
	s.see("24x80\n")
	if err := s.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	l.eventually("the shell has ended", func() bool {
		list := l.processes(path)
		return len(list) == 1 && !list[0].Running && list[0].Exit.Reason == api.ReasonKilled
	})
	// And nothing is started for a request that is none for a WebSocket.
	l.do(426, "GET", path+"/exec/pty", "")
	if n := len(l.processes(path)); n != 1 {
		t.Errorf("%d processes", n)
	}
}

func (l *live) processes(path string) (list []api.Process) {
	l.t.Helper()
	l.into(&list, 200, "GET", path+"/processes", "")
	return list
}

func (l *live) eventually(what string, holds func() bool) {
	l.t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("it never came true: %s", what)
		}
	}
}

// A terminal goes on without anybody at it, and whoever comes back misses and
// repeats nothing.
func TestAttachToATerminalAgain(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	var p api.Process
	l.into(&p, 201, "POST", path+"/processes", `{"cmd":"tty;type;wait go;echo late;exit 3","pty":{"rows":10}}`)
	if p.PTY == nil || *p.PTY != (api.PTY{Rows: 10, Cols: 80}) {
		t.Fatalf("%+v", p.PTY)
	}
	attach := path + "/processes/100/attach"
	s := l.screen(attach)
	s.see("10x80\n")
	s.write(websocket.MessageBinary, "one")
	s.see("one")
	first := s.last
	_ = s.conn.CloseNow()

	other := l.screen(attach + "?after=0")
	other.see("10x80\none")
	other.write(websocket.MessageBinary, "two")
	other.see("two")

	s = l.screen(attach + "?after=" + itoa(first))
	s.last = first
	s.see("two")
	if s.last != first+1 {
		t.Errorf("event %d after event %d", s.last, first)
	}
	l.do(204, "POST", path+"/processes/100/resize", `{"rows":7,"cols":8}`)
	if list := l.processes(path); *list[0].PTY != (api.PTY{Rows: 7, Cols: 8}) || list[0].LastEvent != s.last {
		t.Errorf("%+v", list[0])
	}
	l.do(204, "DELETE", path+"/processes/100/stdin", "") // a Ctrl-D
	l.host.Guest(id).Signal("go")
	for _, end := range []*screen{s, other} {
		end.see("late\n")
		if said := end.exit(); *said.Exit != 3 {
			t.Errorf("%+v", said)
		}
	}
	// What has ended can still be read, up to its end and not behind it.
	s = l.screen(attach + "?after=" + itoa(first))
	s.see("twolate\n")
	s.exit()
	l.do(400, "GET", attach+"?after=99", "")
}

func itoa(n int64) string { raw, _ := json.Marshal(n); return string(raw) }

func TestWhatATerminalRefuses(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	l.do(201, "POST", path+"/processes", `{"cmd":"wait never"}`)
	for body, field := range map[string]string{
		`{"cmd":"tty","pty":{"rows":1001}}`: "rows", `{"cmd":"tty","pty":{"cols":-1}}`: "cols", `{"cmd":"tty","pty":{"cols":"x"}}`: "pty.cols",
	} {
		var e api.Error
		l.into(&e, 400, "POST", path+"/processes", body)
		if e.Field != field {
			t.Errorf("%s: %+v", body, e)
		}
	}
	l.do(409, "POST", path+"/processes/100/resize", `{"rows":7,"cols":8}`)
	l.do(409, "GET", path+"/processes/100/attach", "")
	l.do(404, "GET", path+"/processes/1/attach", "")
	l.do(400, "GET", path+"/exec/pty?rows=9999", "")
	l.do(400, "GET", path+"/exec/pty?cwd=rel", "")
	_, res, err := websocket.Dial(t.Context(), l.url+"/v1/sandboxes/none/exec/pty", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer ann"}}})
	if err == nil || res == nil || res.StatusCode != 404 {
		t.Errorf("%v %v", res, err)
	}
	// What nobody reads is bounded, and does not hold up the rest.
	s := l.screen(path + "/exec/pty?cmd=wait+never")
	for range 3 {
		s.write(websocket.MessageBinary, strings.Repeat("x", 600<<10))
	}
	if _, said := s.hear(); said.Code != "rate_limited" {
		t.Errorf("%+v", said)
	}
}

func TestATerminalEndsWithItsSandbox(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	s := l.screen(path + "/exec/pty?cmd=tty%3Btype")
	s.see("24x80\n")
	l.do(204, "DELETE", path, "")
	for {
		kind, raw, err := s.conn.Read(s.Context())
		if err != nil {
			var closed websocket.CloseError
			if !errors.As(err, &closed) {
				t.Errorf("%v", err)
			}
			return
		}
		if kind == websocket.MessageText && !strings.Contains(string(raw), "killed") {
			t.Errorf("%s", raw)
		}
	}
}
