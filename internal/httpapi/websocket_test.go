package httpapi_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/httpapi"
	"github.com/pandastack/pandastack/internal/tools"
)

const namedPage = "https://app.example.com" // an origin that the operator has named

func withPages(o *httpapi.Options) { o.Origins = []string{namedPage} }

// A page's key stands among the subprotocols of its handshake. Origins are
// looked at before keys, and the key is not said back.
func TestKeysOfPages(t *testing.T) {
	keys := realKeys(t)
	var log buffer
	l := newLiveWith(t, keys, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), withPages)
	key, _ := newKey(t, keys, auth.Grant{})
	reader, _ := newKey(t, keys, auth.Grant{Scope: auth.Read})
	path := "/v1/sandboxes/" + create(l, key)
	const offer = "pandastack.bearer."
	for _, tc := range []struct {
		name, origin string
		protocols    []string
		header       http.Header
		status       int
	}{
		{name: "the key", origin: namedPage, protocols: []string{"pandastack.v1", offer + key}, status: 101},
		{name: "the key first, of no page", protocols: []string{offer + key, "pandastack.v1"}, status: 101},
		{name: "a wrong key", origin: namedPage, protocols: []string{"pandastack.v1", offer + "pds_ffeeddccbbaa99887766554433221100"}, status: 401},
		{name: "none", origin: namedPage, protocols: []string{"pandastack.v1"}, status: 401},
		{name: "two", origin: namedPage, protocols: []string{"pandastack.v1", offer + key, offer + key}, status: 401},
		{name: "one that may not", origin: namedPage, protocols: []string{"pandastack.v1", offer + reader}, status: 403},
		{name: "a header says another", protocols: []string{"pandastack.v1", offer + key}, header: http.Header{"Authorization": {"Bearer " + reader}}, status: 403},
		{name: "a foreign origin", origin: "https://evil.example", protocols: []string{"pandastack.v1", offer + key}, status: 403},
		{name: "no origin", origin: "null", protocols: []string{"pandastack.v1", offer + key}, status: 403},
		{name: "a named origin with the key in a header", origin: namedPage, header: http.Header{"Authorization": {"Bearer " + key}}, status: 101},
	} {
		t.Run(tc.name, func(t *testing.T) {
			header := tc.header.Clone()
			if header == nil {
				header = http.Header{}
			}
			if tc.origin != "" {
				header.Set("Origin", tc.origin)
			}
			conn, res, err := websocket.Dial(t.Context(), l.url+path+"/exec/pty?cmd=type", &websocket.DialOptions{HTTPHeader: header, Subprotocols: tc.protocols})
			if res == nil {
				t.Fatal(err)
			}
			if err == nil {
				defer conn.CloseNow()
			}
			if res.StatusCode != tc.status {
				t.Errorf("status %d, want %d", res.StatusCode, tc.status)
			}
			if said := fmt.Sprint(res.Header); strings.Contains(said, key) {
				t.Errorf("the key is said back: %s", said)
			}
			if err == nil && len(tc.protocols) > 0 && conn.Subprotocol() != "pandastack.v1" {
				t.Errorf("the subprotocol is %q, without which a browser gives up", conn.Subprotocol())
			}
		})
	}
	// It is for handshakes alone.
	res, err := l.request(t.Context(), "", "GET", path, nil, "Authorization", "", "Sec-WebSocket-Protocol", "pandastack.v1, "+offer+key)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a handshake: %d", res.StatusCode)
	}
	if seen := log.String(); strings.Contains(seen, key) || !strings.Contains(seen, "/exec/pty") {
		t.Errorf("the log: %s", seen)
	}
}

// A server in the sandbox sees neither the key nor that there was one.
func TestKeysOfPagesStayOutside(t *testing.T) {
	seen := make(chan string, 1)
	p := newPort(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- fmt.Sprint(r.Header)
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"chat"}})
		if err == nil {
			_ = conn.Close(websocket.StatusNormalClosure, "")
		}
	})
	for _, protocols := range [][]string{{"chat", "pandastack.bearer.ann"}, {"pandastack.bearer.ann", "chat"}} {
		conn, _, err := websocket.Dial(t.Context(), p.url+p.path+"/proxy/8000/ws", &websocket.DialOptions{Subprotocols: protocols})
		if err != nil {
			t.Fatal(err)
		}
		if conn.Subprotocol() != "chat" {
			t.Errorf("the subprotocol is %q", conn.Subprotocol())
		}
		_ = conn.CloseNow()
		if got := <-seen; strings.Contains(got, "pandastack.bearer") || strings.Contains(got, "ann") || !strings.Contains(got, "[chat]") {
			t.Errorf("the sandbox saw %s", got)
		}
	}
}

// Code of a page does not hear of pings, so it is told in words that the server is there.
func TestPagesAreToldThatTheServerIsThere(t *testing.T) {
	httpapi.PingEvery(t, 10*time.Millisecond)
	service, err := tools.New(tools.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLiveWith(t, oneKey{}, nil, withPages, func(o *httpapi.Options) { o.Tools = service })
	path, _ := l.sandbox()
	header := http.Header{"Origin": {namedPage}}
	conn, _, err := websocket.Dial(t.Context(), l.url+path+"/tools/connect", &websocket.DialOptions{HTTPHeader: header, Subprotocols: []string{"pandastack.v1", "pandastack.bearer.ann"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	for _, want := range []string{"connected", "ping", "ping"} {
		_, raw, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var said api.ToolMessage
		if err := json.Unmarshal(raw, &said); err != nil || said.Type != want {
			t.Errorf("%s, want %s", raw, want)
		}
	}
}
