package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// The subprotocols of a page. The only header of a handshake that it can set
// names subprotocols, so its key stands there: not in the address, which logs
// and histories keep. A key is as it is, without an encoding, so that whatever
// looks for keys in logs and headers finds it here, too.
const (
	pageProtocol = "pandastack.v1" // one that the server chooses, or a browser gives up
	keyProtocol  = "pandastack.bearer."
)

const protocolHeader = "Sec-WebSocket-Protocol"

// wsPing is how often a client must show that it is there, and wsPong how long
// it may take for that.
var wsPing = 20 * time.Second

const wsPong = 20 * time.Second

// offeredKey takes the key out of the subprotocols that a handshake offers, so
// that nobody behind sees it; "" without one, or with several.
func offeredKey(r *http.Request) string {
	if !wantsWebSocket(r) {
		return ""
	}
	var keys, others []string
	for offered := range strings.SplitSeq(strings.Join(r.Header.Values(protocolHeader), ","), ",") {
		offered = strings.TrimSpace(offered)
		if key, is := strings.CutPrefix(offered, keyProtocol); is {
			keys = append(keys, key)
		} else if offered != "" {
			others = append(others, offered)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	r.Header.Del(protocolHeader)
	if len(others) > 0 {
		r.Header.Set(protocolHeader, strings.Join(others, ", "))
	}
	if len(keys) > 1 {
		return ""
	}
	return keys[0]
}

func wantsWebSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// upgrade makes a WebSocket of a request. Without one and an error it has
// answered already.
func upgrade(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return upgradeTo(w, r, pageProtocol)
}

// upgradeTo speaks one of these subprotocols, or none when none is offered.
func upgradeTo(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	if !wantsWebSocket(r) {
		return nil, errNoWebSocket
	}
	// Foreign origins were refused already. The library would refuse those, too, that the operator has named.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols, InsecureSkipVerify: true})
	if err != nil {
		stateOf(r.Context()).err = err
		return nil, nil
	}
	return conn, nil
}

var errNoWebSocket = &withStatus{
	fault.New(api.CodeInvalid, "this route speaks WebSocket").
		WithHint("commands run without one by POST …/exec/stream, terminals by POST …/processes, cells by POST …/run; pandastack sandbox forward leads to ports"),
	http.StatusUpgradeRequired, "Upgrade", "websocket",
}

// goodbye ends a WebSocket, and says so when it is because the server stops.
func goodbye(r *http.Request, conn *websocket.Conn) {
	status, why := websocket.StatusNormalClosure, ""
	if errors.Is(context.Cause(r.Context()), ErrStopping) {
		status, why = websocket.StatusGoingAway, ErrStopping.Error()
	}
	_ = conn.Close(status, why) // it may be gone
}

// say writes one message as JSON.
func say(ctx context.Context, conn *websocket.Conn, message any) error {
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return write(ctx, conn, websocket.MessageText, raw)
}

// write writes one message. A client that does not read for long is cut off.
func write(ctx context.Context, conn *websocket.Conn, kind websocket.MessageType, raw []byte) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streamStall)
	defer cancel()
	return conn.Write(ctx, kind, raw)
}

// ping finds out about a client that is gone without a word.
func ping(ctx context.Context, conn *websocket.Conn) {
	every(ctx, wsPing, func() bool {
		pong, cancel := context.WithTimeout(ctx, wsPong)
		defer cancel()
		err := conn.Ping(pong)
		if err != nil {
			_ = conn.CloseNow() // which ends the reading
		}
		return err == nil
	})
}

// every does something again and again, until it says that it was the last time.
func every(ctx context.Context, interval time.Duration, do func() bool) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !do() {
			return
		}
	}
}
