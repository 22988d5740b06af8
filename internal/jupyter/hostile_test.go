package jupyter

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/kernel"
)

// slow is Kernels in which everything waits until it is released.
type slow struct {
	release chan struct{}
	shows   api.Bundle // what each cell displays
	mu      sync.Mutex
	asked   int
	told    func(kernel.Told)
}

func (k *slow) wait(ctx context.Context) error {
	k.mu.Lock()
	k.asked++
	k.mu.Unlock()
	select {
	case <-k.release:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *slow) Notebook(ctx context.Context, _, _, _ string, run guestapi.RunRequest) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if err := k.wait(ctx); err != nil {
			yield(api.Event{}, err)
			return
		}
		if k.shows != nil && run.Ask == nil && !yield(api.Event{Seq: 1, Type: api.EventResult, Data: k.shows}, nil) {
			return
		}
		yield(api.Event{Seq: 2, Type: api.EventEnd, Execution: &api.Execution{End: api.EndOK}, Reply: json.RawMessage(`{}`)}, nil)
	}
}

func (k *slow) Input(ctx context.Context, _, _, _, _, _ string) error { return k.wait(ctx) }
func (k *slow) Interrupt(ctx context.Context, _, _, _ string) error   { return k.wait(ctx) }
func (k *slow) Restart(ctx context.Context, _, _, _ string) (api.Context, error) {
	return api.Context{}, k.wait(ctx)
}

func (k *slow) Tap(_, _ string, f func(kernel.Told)) (stop func()) {
	k.told = f
	return func() {}
}

// stage is a Server that front ends connect to.
type stage struct {
	*Server
	t *testing.T
	k *slow
	u string
}

func newStage(t *testing.T) *stage {
	k := &slow{release: make(chan struct{})}
	s := NewServer(k, slog.New(slog.DiscardHandler))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			_ = s.Serve(r.Context(), "me", "sb", r.URL.Query().Get("context"), r.URL.Query().Get("session"), conn)
			_ = conn.CloseNow()
		}
	}))
	t.Cleanup(func() { s.Close(); web.Close() })
	return &stage{s, t, k, "ws" + strings.TrimPrefix(web.URL, "http")}
}

func (s *stage) connect(session string) *websocket.Conn {
	s.t.Helper()
	conn, _, err := websocket.Dial(s.t.Context(), s.u+"?context=c&session="+session, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func (s *stage) send(conn *websocket.Conn, channel, kind, more string) error {
	text := fmt.Sprintf(`{"channel":%q,"header":{"msg_id":"m","msg_type":%q%s},"content":{"code":"1"}}`, channel, kind, more)
	return conn.Write(s.t.Context(), websocket.MessageText, []byte(text))
}

// until reads until the message of that type, or the end of the connection.
func (s *stage) until(conn *websocket.Conn, kind string) (string, error) {
	for {
		_, raw, err := conn.Read(s.t.Context())
		if err != nil {
			return "", err
		}
		var m wire
		if err := json.Unmarshal(raw, &m); err != nil {
			return "", err
		}
		if m.MsgType == kind {
			return string(raw), nil
		}
	}
}

func TestAFloodOfControlMessagesStartsNoGoroutines(t *testing.T) {
	s := newStage(t)
	conn := s.connect("a")
	before := runtime.NumGoroutine()
	var err error
	for i := 0; i < 20_000 && err == nil; i++ {
		err = s.send(conn, control, "interrupt_request", "")
	}
	if _, err := s.until(conn, "interrupt_reply"); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the connection ends with %v", err)
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines more", n)
	}
}

func TestFrontEndsOfAWorkspaceAreNotWithoutNumber(t *testing.T) {
	s := newStage(t)
	for i := range maxClients {
		c, arrival, err := s.enter("me", "sb", fmt.Sprint("c", i%2), fmt.Sprint("s", i), func() {})
		if err != nil {
			t.Fatal(err)
		}
		switch { // the first is there, the next two have left in the middle of a cell, the others are idle
		case i == 0:
			continue
		case i <= 2:
			if err := c.receive(&Message{Channel: shell, Header: Header{MsgType: "execute_request"}, Content: none}); err != nil {
				t.Fatal(err)
			}
		}
		c.room.left(c, arrival)
	}
	for i := range 1000 { // of those that are idle the longest away goes
		c, arrival, err := s.enter("me", "sb", "c0", fmt.Sprint("more", i), func() {})
		if err != nil {
			t.Fatalf("%d more: %v", i, err)
		}
		c.room.left(c, arrival)
	}
	if n := s.held["me"].clients; n != maxClients {
		t.Errorf("%d are kept", n)
	}
	for i := range maxClients - 3 { // all of them come back, and stay
		if _, _, err := s.enter("me", "sb", "c0", fmt.Sprint("more", 1000-(maxClients-3)+i), func() {}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.until(s.connect("one-more"), "status")
	if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
		t.Errorf("one more ends with %v", err)
	}
	for _, session := range []string{"s0", "s2"} {
		if !s.rooms["sb/c0"].has(session) {
			t.Errorf("%s was forgotten", session)
		}
	}
	if !s.rooms["sb/c1"].has("s1") {
		t.Error("s1 was forgotten")
	}
}

// What a workspace asked for and what waits for it is bounded, all together.
func TestWhatWaitsForAWorkspaceIsBounded(t *testing.T) {
	s := newStage(t)
	m := &Message{Channel: shell, Header: Header{MsgType: "complete_request"}, Content: make([]byte, 20<<20)}
	var all []*client
	for i := range 100 {
		c, _, err := s.enter("me", "sb", "c", fmt.Sprint("s", i), func() {})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		if err := c.receive(m); (err == nil) != ((i+1)*m.size() <= maxWaiting) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	another, _, err := s.enter("you", "sb-2", "c", "s", func() {})
	if err != nil || another.receive(m) != nil {
		t.Error("another workspace has no room")
	}
	close(s.k.release) // the answers, which nobody takes, are bounded too
	for _, c := range all {
		c.put(m)
		c.put(m)
		c.put(m)
	}
	h := all[0].room.held
	h.mu.Lock()
	held := h.bytes
	h.mu.Unlock()
	if held > maxWaiting {
		t.Errorf("%d bytes are held", held)
	}
	for _, c := range all {
		c.room.drop(c, c.arrivals)
	}
	for end := time.Now().Add(20 * time.Second); !h.take(maxWaiting); time.Sleep(time.Millisecond) { // what is being done is given back a moment later
		if time.Now().After(end) {
			t.Fatal("what left is held for ever")
		}
	}
	if len(s.rooms) != 1 || len(s.held) != 1 {
		t.Errorf("%d rooms and %d workspaces are kept", len(s.rooms), len(s.held))
	}
}

// Who is told of foreign cells waits for the room: the room must not wait for that.
func TestTheLastFrontEndLeavesWhileACellSpeaks(t *testing.T) {
	s := newStage(t)
	c, arrival, err := s.enter("me", "sb", "c", "s", func() {})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan bool)
	c.room.untap = func() { s.k.told(kernel.Told{ExecutionID: "x", Event: api.Event{Seq: 1, Type: api.EventStarted}}) }
	go func() { c.room.drop(c, arrival); close(left) }()
	select {
	case <-left:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for ever")
	}
}

// A result that no message can hold must not end the connection, again and again.
func TestADeepResultIsAString(t *testing.T) {
	s := newStage(t)
	deep := strings.Repeat("[", 9999) + strings.Repeat("]", 9999)
	s.k.shows = api.Bundle{"application/json": deep}
	close(s.k.release)
	conn := s.connect("a")
	if err := s.send(conn, shell, "execute_request", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := s.until(conn, "display_data"); err != nil || !strings.Contains(got, `"application/json":"[[`) {
		t.Errorf("%.200s %v", got, err)
	}
	if _, err := s.until(conn, "execute_reply"); err != nil {
		t.Error(err)
	}
}

func TestAHeaderIsSmall(t *testing.T) {
	s := newStage(t)
	conn := s.connect("a")
	_ = s.send(conn, shell, "execute_request", `,"username":"`+strings.Repeat("x", maxHeader)+`"`)
	if _, err := s.until(conn, "execute_reply"); websocket.CloseStatus(err) != websocket.StatusInvalidFramePayloadData {
		t.Errorf("it ends with %v", err)
	}
}

// A cell of somebody else that is left, or followed twice, leaves nobody busy.
func TestForeignCellsThatAreLeft(t *testing.T) {
	s := newStage(t)
	conn := s.connect("a")
	if _, err := s.until(conn, "status"); err != nil {
		t.Fatal(err)
	}
	event := func(seq int64, kind string) kernel.Told {
		e := api.Event{Seq: seq, Type: kind}
		if kind == api.EventEnd {
			e.Execution = &api.Execution{End: api.EndOK}
		}
		return kernel.Told{ExecutionID: "x", Event: e}
	}
	room := s.rooms["sb/c"]
	for name, told := range map[string][]kernel.Told{
		"left":           {event(1, api.EventStarted), {ExecutionID: "x", Left: true}},
		"twice":          {event(1, api.EventStarted), event(1, api.EventStarted), event(2, api.EventStdout), event(2, api.EventStdout), event(3, api.EventEnd), event(3, api.EventEnd)},
		"twice and left": {event(1, api.EventStarted), event(1, api.EventStarted), {ExecutionID: "x", Left: true}, event(2, api.EventEnd), {ExecutionID: "x", Left: true}},
	} {
		for _, one := range told {
			s.k.told(one)
		}
		if room.now() != "idle" || len(room.foreign) != 0 {
			t.Errorf("%s: %s, %d cells", name, room.now(), len(room.foreign))
		}
	}
}
