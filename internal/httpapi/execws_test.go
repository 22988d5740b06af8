package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

// socket is a client's end of exec/ws.
type socket struct {
	*testing.T
	conn *websocket.Conn
}

type message struct {
	ID      string `json:"id"`
	Stream  string `json:"stream"`
	Data    string `json:"data"`
	Exit    *int   `json:"exit"`
	Error   string `json:"error"`
	Code    string `json:"code"`
	Field   string `json:"field"`
	Dropped int64  `json:"dropped"`
}

func (l *live) socket(path, key string) *socket {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	l.t.Cleanup(cancel)
	conn, _, err := websocket.Dial(ctx, l.url+path+"/exec/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(1 << 20)
	return &socket{l.t, conn}
}

func (s *socket) say(text string) {
	s.Helper()
	if err := s.conn.Write(s.Context(), websocket.MessageText, []byte(text)); err != nil {
		s.Fatal(err)
	}
}

func (s *socket) hear() (m message) {
	s.Helper()
	_, raw, err := s.conn.Read(s.Context())
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		s.Fatal(err)
	}
	return m
}

func TestCommandsOverOneWebSocket(t *testing.T) {
	l := newLive(t)
	path, id := l.sandbox()
	s := l.socket(path, "ann")
	s.say(`{"id":"slow","cmd":"echo first; wait go; exit 3"}`)
	if m := s.hear(); m.ID != "slow" || m.Stream != "stdout" || m.Data != "first\n" {
		t.Fatalf("%+v", m)
	}
	// Another one runs meanwhile, and its messages have its id.
	s.say(`{"id":"quick","cmd":["x","warn no"]}`)
	if m := s.hear(); m.ID != "quick" || m.Stream != "stderr" || m.Data != "no\n" {
		t.Errorf("%+v", m)
	}
	if m := s.hear(); m.ID != "quick" || m.Exit == nil || *m.Exit != 0 {
		t.Errorf("%+v", m)
	}
	s.say(`{"id":"slow","cmd":"echo"}`)
	if m := s.hear(); m.ID != "slow" || m.Code != "conflict" {
		t.Errorf("an id that is in use: %+v", m)
	}
	l.host.Guest(id).Signal("go")
	if m := s.hear(); m.ID != "slow" || m.Exit == nil || *m.Exit != 3 {
		t.Errorf("%+v", m)
	}
	// Deadlines, cancelling and nonsense end one command and not the connection.
	s.say(`{"id":"late","cmd":"wait never","timeout_seconds":0.05}`)
	if m := s.hear(); m.ID != "late" || !strings.Contains(m.Error, "timeout") || m.Exit != nil {
		t.Errorf("%+v", m)
	}
	s.say(`{"id":"dropped","cmd":"echo up; wait never"}`)
	s.hear()
	s.say(`{"id":"dropped","cancel":true}`)
	if m := s.hear(); m.ID != "dropped" || !strings.HasPrefix(m.Error, "cancelled") {
		t.Errorf("%+v", m)
	}
	s.say(`{"id":"dropped","cancel":true}`)
	for text, field := range map[string]string{
		`{"cmd":"ls"}`: "id", `{"id":"x"}`: "cmd", `{"id":"x","cmd":"ls","cwd":"rel"}`: "cwd", `{"id":"x","cmd":7}`: "cmd", `nonsense`: "",
	} {
		s.say(text)
		if m := s.hear(); m.Error == "" || m.Code != "invalid" || m.Field != field {
			t.Errorf("%s: %+v", text, m)
		}
	}
	s.say(`{"id":"dropped","cmd":"exit 0"}`)
	if m := s.hear(); m.Exit == nil || *m.Exit != 0 {
		t.Errorf("%+v", m)
	}
}

func TestCommandsEndWithTheirWebSocket(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	s := l.socket(path, "ann")
	s.say(`{"id":"1","cmd":"echo up; wait never"}`)
	s.hear()
	if err := s.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		var list []api.Process
		l.into(&list, 200, "GET", path+"/processes", "")
		if len(list) == 1 && !list[0].Running {
			if list[0].Exit.Reason != api.ReasonKilled {
				t.Errorf("%+v", list[0].Exit)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("it runs on: %+v", list)
		}
	}
}

func TestTooManyCommandsOnAWebSocket(t *testing.T) {
	l := newLive(t)
	path, _ := l.sandbox()
	s := l.socket(path, "ann")
	for i := range 33 {
		s.say(`{"id":"` + fmt.Sprint(i) + `","cmd":"wait never"}`)
	}
	if m := s.hear(); m.Code != "rate_limited" {
		t.Errorf("%+v", m)
	}
}

func TestWebSocketNeedsASandbox(t *testing.T) {
	l := newLive(t)
	_, res, err := websocket.Dial(t.Context(), l.url+"/v1/sandboxes/none/exec/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer ann"}}})
	if err == nil || res == nil || res.StatusCode != 404 {
		t.Errorf("%v %v", res, err)
	}
	path, _ := l.sandbox()
	l.do(426, "GET", path+"/exec/ws", "")
}
