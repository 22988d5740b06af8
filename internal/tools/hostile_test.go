package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/store"
)

// world is a Service with a store, and a sandbox in which hostile code calls.
type world struct {
	*Service
	sb   store.Sandbox
	done chan api.ToolMessage // calls that came to the program
}

func hostile(t *testing.T, policy api.ToolPolicy) *world {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	s, err := New(Options{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w := &world{Service: s, done: make(chan api.ToolMessage, 1000)}
	parameters := json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}`)
	w.sb = store.Sandbox{ID: "sb-1", Owner: "me", Tools: &api.Tools{
		Functions: []api.ToolFunction{{Name: "read", Parameters: parameters}, {Name: "send", Parameters: parameters}}, Policy: policy,
	}}
	var c *Connection
	c = s.Connect(w.sb.ID, func(m api.ToolMessage) error {
		if m.Type == "tool_call" {
			w.done <- m
			go c.Hear(api.ToolResult{Type: "tool_result", CallID: m.CallID, Result: json.RawMessage("1")})
		}
		return nil
	})
	return w
}

// calls makes a call as the guest may present it, and gives the kind of its end.
func (w *world) calls(ctx context.Context, head guestapi.CallHead, tool, arguments string) string {
	raw := w.Caller(func() store.Sandbox { return w.sb }).Call(ctx, head, fmt.Appendf(nil, `{"op":"call","tool":%q,"arguments":%s}`, tool, arguments), func(bool) {})
	var said struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return err.Error()
	}
	if said.Error == nil {
		return "ok"
	}
	return said.Error.Kind
}

// waiting gives the approvals that are pending, as soon as there are n.
func (w *world) waiting(t *testing.T, n int) []api.Approval {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		list, err := w.Approvals(t.Context(), "me", "", "", api.ApprovalPending, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(end) {
			t.Fatalf("%d approvals wait, not %d", len(list), n)
		}
	}
}

// The guest keeps what it was told is held, whatever becomes of the daemon; so it is told before somebody can decide.
func TestACallIsHeldBeforeAnybodySeesIt(t *testing.T) {
	w := hostile(t, api.ToolPolicy{Approve: api.ApproveAlways})
	var said []bool
	answer := make(chan []byte, 1)
	go func() {
		call := w.Caller(func() store.Sandbox { return w.sb })
		answer <- call.Call(t.Context(), guestapi.CallHead{Key: "k"}, []byte(`{"op":"call","tool":"read","arguments":{"to":"me"}}`), func(held bool) {
			list, err := w.Approvals(t.Context(), "me", "", "", api.ApprovalPending, 10)
			if err != nil || held && len(list) > 0 {
				t.Errorf("held %t, with %d to decide about, %v", held, len(list), err)
			}
			said = append(said, held)
		})
	}()
	if _, err := w.Decide(t.Context(), "me", "key", w.waiting(t, 1)[0].ID, api.Decision{Approve: true}); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; !bytes.Contains(got, []byte("1")) || !slices.Equal(said, []bool{true, false}) {
		t.Errorf("%s, held %v", got, said)
	}
}

// The guest says itself that it presents a call again. What was approved is that
// call, and no other with its key.
func TestAnApprovalIsForTheCallThatWasShown(t *testing.T) {
	w := hostile(t, api.ToolPolicy{Approve: api.ApproveAlways})
	ctx, cut := context.WithCancel(t.Context())
	broke := make(chan string)
	go func() { broke <- w.calls(ctx, guestapi.CallHead{Key: "k"}, "read", `{"to":"me"}`) }()
	a := w.waiting(t, 1)[0]
	cut() // the link breaks while somebody thinks
	<-broke
	if _, err := w.Decide(t.Context(), "me", "key", a.ID, api.Decision{Approve: true}); err != nil {
		t.Fatal(err)
	}
	for _, other := range [][2]string{{"send", `{"to":"me"}`}, {"read", `{"to":"you"}`}} {
		if kind := w.calls(t.Context(), guestapi.CallHead{Key: "k", Again: true}, other[0], other[1]); kind != KindInvalid {
			t.Errorf("%s %s, which nobody has seen, ends with %s", other[0], other[1], kind)
		}
	}
	if len(w.done) > 0 {
		t.Errorf("carried out was %+v", <-w.done)
	}
	if kind := w.calls(t.Context(), guestapi.CallHead{Key: "k", Again: true}, "read", `{ "to": "me" }`); kind != "ok" {
		t.Errorf("the call that was approved ends with %s", kind)
	}
}

// Approvals are kept on the host's disk: a sandbox must not fill it.
func TestASandboxKeepsFewApprovals(t *testing.T) {
	w := hostile(t, api.ToolPolicy{Approve: api.ApproveAlways})
	if kind := w.calls(t.Context(), guestapi.CallHead{Key: "large"}, "read", `{"to":"`+strings.Repeat("x", maxShown)+`"}`); kind != KindTooLarge {
		t.Errorf("a call that is too large to be shown ends with %s", kind)
	}
	ctx, cut := context.WithCancel(t.Context())
	ends := make(chan string)
	for i := range maxPending {
		go func() { ends <- w.calls(ctx, guestapi.CallHead{Key: fmt.Sprint("k", i)}, "read", `{"to":"me"}`) }()
	}
	w.waiting(t, maxPending)
	cut() // whoever breaks the link leaves them pending
	for range maxPending {
		<-ends
	}
	if kind := w.calls(t.Context(), guestapi.CallHead{Key: "more"}, "read", `{"to":"me"}`); kind != KindRateLimited {
		t.Errorf("one more ends with %s", kind)
	}
	for _, a := range w.waiting(t, maxPending) {
		if _, err := w.Decide(t.Context(), "me", "key", a.ID, api.Decision{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range keepDecided {
		gone := make(chan string)
		go func() {
			gone <- w.calls(t.Context(), guestapi.CallHead{Key: fmt.Sprint("n", i)}, "read", `{"to":"me"}`)
		}()
		if _, err := w.Decide(t.Context(), "me", "key", w.waiting(t, 1)[0].ID, api.Decision{}); err != nil {
			t.Fatal(err)
		}
		<-gone
	}
	all, err := w.Approvals(t.Context(), "me", "", "", "", 10000)
	if err != nil || len(all) > keepDecided+1 {
		t.Errorf("%d approvals are kept (%v)", len(all), err)
	}
}

// A service that does not answer keeps its own sandbox waiting, and nobody else's.
func TestASlowServiceStopsNoOtherSandbox(t *testing.T) {
	w := hostile(t, api.ToolPolicy{})
	asked, answer := make(chan bool), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- true; <-answer }))
	defer slow.Close()
	defer close(answer)
	stuck := store.Sandbox{ID: "sb-2", Owner: "other", Tools: &api.Tools{HTTP: map[string]api.ToolHTTP{"slow": {URL: slow.URL}}}}
	go func() { _, _ = w.Show(t.Context(), stuck) }()
	<-asked
	done := make(chan string)
	go func() { w.connection(stuck); w.Held(stuck.ID); w.Forget(stuck.ID); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("ending the sandbox waits for the service")
	}
	ended := make(chan string, 1)
	go func() { ended <- w.calls(t.Context(), guestapi.CallHead{}, "read", `{"to":"me"}`) }()
	select {
	case kind := <-ended:
		if kind != "ok" {
			t.Errorf("a call of another sandbox ends with %s", kind)
		}
	case <-time.After(5 * time.Second):
		t.Error("a call of another sandbox waits for the service")
	}
}

// A call that ends after its sandbox leaves nothing behind.
func TestNothingIsKeptOfASandboxThatHasEnded(t *testing.T) {
	w := hostile(t, api.ToolPolicy{Approve: api.ApproveAlways})
	ctx, cut := context.WithCancel(t.Context())
	ended := make(chan string)
	go func() { ended <- w.calls(ctx, guestapi.CallHead{Key: "k"}, "read", `{"to":"me"}`) }()
	w.waiting(t, 1)
	w.sb.State = store.Stopping
	w.Forget(w.sb.ID)
	cut()
	<-ended
	// What was on its way comes later, and so does what a run says of its cells.
	if kind := w.calls(t.Context(), guestapi.CallHead{Key: "l"}, "read", `{"to":"me"}`); kind != KindUnavailable {
		t.Errorf("a call after the end is %s", kind)
	}
	w.Reading(w.sb.ID)
	w.Noticed(w.sb.ID, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.boxes) > 0 {
		t.Errorf("%d sandboxes are kept", len(w.boxes))
	}
}

// Schema and arguments are both of strangers: what it takes to hold one against
// the other is bounded before it begins.
func TestArgumentsThatTakeForEverAreRefused(t *testing.T) {
	var twice strings.Builder
	for i := range 60 {
		fmt.Fprintf(&twice, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	deep := strings.Repeat(`{"x":`, 60) + "1" + strings.Repeat("}", 60)
	for name, c := range map[string]struct{ schema, arguments string }{
		"doubling":                   {`{"type":"object","properties":{"x":{"$ref":"#/$defs/a0"}},"$defs":{` + twice.String() + `"a60":{"type":"integer"}}}`, `{"x":"no"}`},
		"doubling, by depth":         {`{"type":"object","anyOf":[{"properties":{"x":{"$ref":"#"}},"required":["y"]},{"properties":{"x":{"$ref":"#"}},"required":["z"]}]}`, deep},
		"a number that is too large": {`{"type":"object","properties":{"x":{"type":"number","minimum":0}}}`, `{"x":1e99999999}`},
		"large exponents":            {`{"type":"object","properties":{"x":{"type":"array","items":{"type":"integer"}}}}`, `{"x":[` + strings.Repeat("1e1000000,", 100_000) + `1]}`},
		"very long numbers":          {`{"type":"object","properties":{"x":{"type":"integer"}}}`, `{"x":` + strings.Repeat("9", 8<<20) + `}`},
		"much to choose from":        {`{"type":"object","properties":{"x":{"items":{"enum":[` + strings.Repeat("1,", 100_000) + `1]}}}}`, `{"x":[` + strings.Repeat("2,", 100_000) + `2]}`},
	} {
		t.Run(name, func(t *testing.T) {
			tool := Tool{Name: "f", Parameters: json.RawMessage(c.schema)}
			if tool.schema = compiled(tool.Parameters); tool.schema == nil {
				t.Fatal("the schema does not compile")
			}
			done := make(chan error)
			go func() {
				_, err := checkArguments(&tool, json.RawMessage(c.arguments))
				done <- err
			}()
			select {
			case err := <-done:
				if e := (*Error)(nil); err == nil || !asKind(err, &e) || e.Kind != KindTooLarge {
					t.Errorf("it ends with %.200v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it takes for ever")
			}
		})
	}
}

func asKind(err error, e **Error) bool { *e = asError(err); return *e != nil }

func TestLargeArgumentsThatFitAreTaken(t *testing.T) {
	tool := Tool{Name: "f", Parameters: json.RawMessage(`{"type":"object","properties":{"rows":{"type":"array","items":{"$ref":"#/$defs/Row"}}},
		"$defs":{"Row":{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"in":{"anyOf":[{"$ref":"#/$defs/Row"},{"type":"null"}]}}}}}`)}
	tool.schema = compiled(tool.Parameters)
	row := `{"id":1,"in":{"id":12345678901234567890,"in":null}}`
	if _, err := checkArguments(&tool, json.RawMessage(`{"rows":[`+strings.Repeat(row+",", 50_000)+row+`]}`)); err != nil {
		t.Error(err)
	}
	if _, err := checkArguments(&tool, json.RawMessage(`{"rows":[{"id":1,"in":{"id":"x"}}]}`)); err == nil {
		t.Error("what does not fit is taken")
	}
}

// The path that is called is that of the operation, with the server's key: code
// must not get to another one, at servers that undo %2F before they look.
func TestArgumentsLeadToNoOtherPath(t *testing.T) {
	var got []string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = append(got, r.RequestURI) }))
	defer service.Close()
	base, err := url.Parse(service.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	w := hostile(t, api.ToolPolicy{})
	r := &route{service: w.Service, base: base, method: http.MethodGet, path: "/customers/{id}", params: []parameter{{Name: "id", In: "path"}}}
	for _, id := range []string{"", ".", "..", "../admin", "a/../../admin", `..\admin`, "a/.."} {
		arguments, _ := json.Marshal(map[string]string{"id": id})
		if _, err := r.do(t.Context(), Call{Arguments: arguments}); err == nil || asError(err).Kind != KindInvalid {
			t.Errorf("%q: %v", id, err)
		}
	}
	if len(got) > 0 {
		t.Errorf("called: %q", got)
	}
	for _, id := range []string{"7", "a/b", "a..b", "..."} {
		arguments, _ := json.Marshal(map[string]string{"id": id})
		if _, err := r.do(t.Context(), Call{Arguments: arguments}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// Tools that come with a snapshot of another server start no programs here.
func TestToolsFromElsewhereStartNothing(t *testing.T) {
	w := hostile(t, api.ToolPolicy{})
	for what, mcp := range map[string]api.ToolMCP{
		"a program":        {Command: []string{"touch", "/tmp/x"}},
		"an environment":   {URL: "https://example.com", Envs: map[string]string{"LD_PRELOAD": "x"}},
		"neither of these": {},
	} {
		if err := w.Check(&api.Tools{MCP: map[string]api.ToolMCP{"x": mcp}}); !errors.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := w.Check(&api.Tools{MCP: map[string]api.ToolMCP{"x": {URL: "https://example.com"}}, Use: []string{"not-here"}}); err != nil {
		t.Errorf("what a caller can give: %v", err)
	}
}
