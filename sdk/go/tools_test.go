package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/pandastack/pandastack/api"
)

var doubles = []Function{{ToolFunction: api.ToolFunction{Name: "double"}, Do: func(_ context.Context, c api.ToolMessage) (any, error) {
	var given struct{ N int }
	if err := json.Unmarshal(c.Arguments, &given); err != nil {
		return nil, err
	}
	if given.N == 0 {
		return nil, &ToolError{Kind: "unfit", Message: "nothing to double"}
	}
	return 2 * given.N, nil
}}}

// toolServerOf plays a server: each connection is for one of these, the last of
// them for all that come after.
func toolServerOf(t *testing.T, connections ...func(ctx context.Context, conn *websocket.Conn)) *Sandbox {
	var n atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/sandboxes/sb-1/tools/connect" || r.Header.Get("Authorization") != "Bearer pds_k" {
			t.Errorf("%s with %q", r.URL.Path, r.Header.Get("Authorization"))
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		if err := wsjson.Write(r.Context(), conn, api.ToolMessage{Type: "connected"}); err != nil {
			t.Error(err)
		}
		connections[min(int(n.Add(1)), len(connections))-1](r.Context(), conn)
	})
	return c.Sandbox("sb-1")
}

// answerTo makes a call.
func answerTo(t *testing.T, ctx context.Context, conn *websocket.Conn, arguments string) api.ToolResult {
	t.Helper()
	call := api.ToolMessage{Type: "tool_call", CallID: "c", Tool: "double", Arguments: json.RawMessage(arguments)}
	var said api.ToolResult
	if err := errors.Join(wsjson.Write(ctx, conn, call), wsjson.Read(ctx, conn, &said)); err != nil {
		t.Error(err)
	}
	return said
}

func TestToolsAreServedOverBrokenConnections(t *testing.T) {
	results := make(chan string, 2)
	first := func(ctx context.Context, conn *websocket.Conn) {
		results <- string(answerTo(t, ctx, conn, `{"n": 4}`).Result)
		_ = conn.CloseNow() // as a daemon that is killed
	}
	second := func(ctx context.Context, conn *websocket.Conn) {
		if said := answerTo(t, ctx, conn, `{"n": 0}`); said.Error == nil || said.Error.Kind != "unfit" {
			t.Errorf("%+v", said)
		}
		results <- string(answerTo(t, ctx, conn, `{"n": 5}`).Result)
		_ = conn.Close(websocket.StatusPolicyViolation, "another program connected in its place")
	}
	ready := 0
	err := toolServerOf(t, first, second).ServeTools(t.Context(), doubles, func() { ready++ })
	if one, two := <-results, <-results; one != "8" || two != "10" || ready != 1 {
		t.Errorf("results %s and %s, ready %d times", one, two, ready)
	}
	if err == nil || !strings.Contains(err.Error(), "another program connected in its place") {
		t.Error(err)
	}
}

// A call that is in flight when the connection breaks is not answered over the next
// one, and does not hold that up, even when its function heeds nothing.
func TestACallInFlightHoldsUpNoOtherConnection(t *testing.T) {
	begun, goOn, results := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	slow := []Function{doubles[0], {ToolFunction: api.ToolFunction{Name: "slow"}, Do: func(context.Context, api.ToolMessage) (any, error) {
		close(begun)
		<-goOn
		return "late", nil
	}}}
	first := func(ctx context.Context, conn *websocket.Conn) {
		if err := wsjson.Write(ctx, conn, api.ToolMessage{Type: "tool_call", CallID: "s", Tool: "slow"}); err != nil {
			t.Error(err)
		}
		<-begun
		_ = conn.CloseNow()
	}
	second := func(ctx context.Context, conn *websocket.Conn) {
		results <- string(answerTo(t, ctx, conn, `{"n": 5}`).Result)
		close(goOn)
		_ = conn.Close(websocket.StatusPolicyViolation, "enough")
	}
	err := toolServerOf(t, first, second).ServeTools(t.Context(), slow, nil)
	if got := <-results; got != "10" || err == nil {
		t.Errorf("%s, %v", got, err)
	}
}

func TestToolsAreServedUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	sb := toolServerOf(t, func(ctx context.Context, conn *websocket.Conn) { _, _, _ = conn.Read(ctx) })
	if err := sb.ServeTools(ctx, doubles, func() { cancel(enough) }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestToolsThatAreRefusedAreNotTriedAgain(t *testing.T) {
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":"there is no sandbox","code":"not_found"}`))
	})
	if err := c.Sandbox("sb-1").ServeTools(t.Context(), doubles, nil); !errors.Is(err, ErrNotFound) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}
