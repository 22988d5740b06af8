package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/pandastack/pandastack/api"
)

type order struct {
	Number int      `json:"number" jsonschema:"of the order"`
	Goods  []string `json:"goods"`
	Note   *string  `json:"note,omitempty"`
}

type total struct {
	Order order   `json:"order"`
	Rate  float64 `json:"rate,omitzero"`
}

func sum(_ context.Context, in total) (map[string]int, error) {
	if in.Order.Number == 0 {
		return nil, &ToolError{Kind: "unfit", Message: "no such order", Hint: "look again"}
	}
	return map[string]int{"total": 10 * len(in.Order.Goods)}, nil
}

func TestFuncsSayTheirTypes(t *testing.T) {
	f := Func("shop.total", "Add an order up.", sum)
	if f.Name != "shop.total" || f.Description != "Add an order up." {
		t.Errorf("%+v", f.ToolFunction)
	}
	for raw, want := range map[string]string{
		string(f.Parameters): `{"type": "object", "additionalProperties": false, "required": ["order"], "properties": {
			"order": {"type": "object", "additionalProperties": false, "required": ["number", "goods"], "properties": {
				"number": {"type": "integer", "description": "of the order"}, "goods": {"type": "array", "items": {"type": "string"}}, "note": {"type": ["null", "string"]}}},
			"rate": {"type": "number"}}}`,
		string(f.Returns): `{"type": "object", "additionalProperties": {"type": "integer"}}`,
		string(Func("none", "", func(context.Context, struct{}) (any, error) { return nil, nil }).Parameters):      `{"type": "object", "additionalProperties": false}`,
		string(Func("list", "", func(context.Context, struct{}) ([]int, error) { return nil, nil }).Returns):       `{"type": "array", "items": {"type": "integer"}}`,
		string(Func("any", "", func(context.Context, map[string]any) (any, error) { return nil, nil }).Parameters): `{"type": "object", "additionalProperties": true}`,
	} {
		var got, wanted any
		if err := errors.Join(json.Unmarshal([]byte(raw), &got), json.Unmarshal([]byte(want), &wanted)); err != nil || !reflect.DeepEqual(got, wanted) {
			t.Errorf("%s\nis not\n%s (%v)", raw, want, err)
		}
	}
	if any := Func("any", "", func(context.Context, struct{}) (any, error) { return nil, nil }); any.Returns != nil {
		t.Errorf("any is said to be %s", any.Returns)
	}
}

func TestFuncsThatCannotBeAreSaidAtOnce(t *testing.T) {
	for words, make := range map[string]func(){
		"bad: its arguments must be a struct, not int": func() { Func("bad", "", func(context.Context, int) (any, error) { return nil, nil }) },
		"has no JSON schema":                           func() { Func("bad", "", func(context.Context, struct{ C chan int }) (any, error) { return nil, nil }) },
	} {
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, words) {
					t.Errorf("%q instead of %q", said, words)
				}
			}()
			make()
		}()
	}
}

// calling is a server that makes a sandbox, lets programs connect for it and for the
// run ag-1, and makes these calls, in order.
type calling struct {
	*Client
	calls []api.ToolMessage

	mu     sync.Mutex
	bodies map[string][]json.RawMessage // by method and path
	paths  []string                     // at which programs connected
	said   chan api.ToolResult
}

func newCalling(t *testing.T, answers map[string]string, calls ...api.ToolMessage) *calling {
	s := &calling{calls: calls, bodies: map[string][]json.RawMessage{}, said: make(chan api.ToolResult, len(calls))}
	s.Client = serve(t, func(w http.ResponseWriter, r *http.Request) {
		at := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1")
		if strings.HasSuffix(at, "/connect") {
			s.connected(t, w, r)
			return
		}
		var body json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body) // a GET has none
		s.mu.Lock()
		s.bodies[at] = append(s.bodies[at], body)
		s.mu.Unlock()
		answer, ok := answers[at]
		if !ok {
			t.Errorf("%s was not expected", at)
		}
		fmt.Fprint(w, answer)
	})
	return s
}

func (s *calling) connected(t *testing.T, w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	s.mu.Lock()
	s.paths = append(s.paths, strings.TrimPrefix(r.URL.Path, "/v1"))
	calls := s.calls
	s.calls = nil
	s.mu.Unlock()
	err = wsjson.Write(r.Context(), conn, api.ToolMessage{Type: "connected"})
	for _, call := range calls {
		call.Type = "tool_call"
		var said api.ToolResult
		if err = errors.Join(err, wsjson.Write(r.Context(), conn, call), wsjson.Read(r.Context(), conn, &said)); err != nil {
			t.Error(err)
			return
		}
		s.said <- said
	}
	_, _, _ = conn.Read(r.Context()) // until the program leaves
}

func TestFunctionsOfASandbox(t *testing.T) {
	s := newCalling(t, map[string]string{"POST /sandboxes": `{"id": "sb-1"}`, "POST /sandboxes/sb-1/fork": `{"children": [{"id": "sb-2"}]}`, "DELETE /sandboxes/sb-1": ""},
		api.ToolMessage{CallID: "1", Tool: "shop.total", Arguments: json.RawMessage(`{"order": {"number": 7, "goods": ["a", "b"]}}`)},
		api.ToolMessage{CallID: "2", Tool: "shop.total", Arguments: json.RawMessage(`{"order": {"number": "x"}}`)},
		api.ToolMessage{CallID: "3", Tool: "shop.total", Arguments: json.RawMessage(`{"order": {"number": 0}}`)},
		api.ToolMessage{CallID: "4", Tool: "none"},
		api.ToolMessage{CallID: "5", Tool: "large"},
		api.ToolMessage{CallID: "6", Tool: "odd"},
	)
	nothing := Func("none", "", func(context.Context, struct{}) ([]int, error) { return nil, nil })
	large := Func("large", "", func(context.Context, struct{}) (string, error) { return strings.Repeat("x", toolsResult), nil })
	odd := Func("odd", "", func(context.Context, struct{}) (any, error) { return func() {}, nil })
	sb, err := s.Create(t.Context(), CreateOptions{Tools: &api.Tools{Use: []string{"server"}}}, Func("shop.total", "", sum), nothing, large, odd)
	if err != nil {
		t.Fatal(err)
	}
	var asked struct{ Tools api.Tools }
	if err := json.Unmarshal(s.bodies["POST /sandboxes"][0], &asked); err != nil || len(asked.Tools.Functions) != 4 || asked.Tools.Functions[0].Name != "shop.total" || asked.Tools.Use[0] != "server" {
		t.Errorf("asked for %+v, %v", asked.Tools, err)
	}
	if one := <-s.said; string(one.Result) != `{"total":20}` || one.Error != nil {
		t.Errorf("%+v", one)
	}
	if two := <-s.said; two.Error == nil || two.Error.Kind != "invalid" || !strings.Contains(two.Error.Message, "its arguments do not fit: ") {
		t.Errorf("%+v", two.Error)
	}
	if three := <-s.said; three.Error == nil || *three.Error != (api.ToolFailure{Kind: "unfit", Message: "no such order", Hint: "look again"}) {
		t.Errorf("%+v", three.Error)
	}
	if four := <-s.said; string(four.Result) != "[]" {
		t.Errorf("%+v", four)
	}
	for _, kind := range []string{"too_large", "bad_result"} {
		if said := <-s.said; said.Error == nil || said.Error.Kind != kind || said.Result != nil {
			t.Errorf("%s: %+v", kind, said.Error)
		}
	}
	forked, err := sb.Fork(t.Context(), api.ForkRequest{})
	if err != nil || len(forked.Sandboxes) != 1 || !slices.Equal(s.paths, []string{"/sandboxes/sb-1/tools/connect", "/sandboxes/sb-2/tools/connect"}) {
		t.Errorf("connected at %q, %v", s.paths, err)
	}
	forked.Sandboxes[0].CloseTools()
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// A sandbox whose functions nobody could call does not stay.
func TestASandboxWhoseFunctionsAreRefusedIsEnded(t *testing.T) {
	var killed bool
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch killed = killed || r.Method == http.MethodDelete; r.Method {
		case http.MethodGet:
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprint(w, `{"error": "this server has no tools", "code": "unsupported"}`)
		case http.MethodPost:
			fmt.Fprint(w, `{"id": "sb-1"}`)
		}
	})
	if _, err := c.Create(t.Context(), CreateOptions{}, Func("f", "", sum)); !errors.Is(err, ErrUnsupported) || !killed {
		t.Errorf("%v, killed %v", err, killed)
	}
}

// A run, what is done again of it, and what follows it, call functions of the program
// that begins it; without them it is not begun.
func TestFunctionsOfAgents(t *testing.T) {
	total := []Function{Func("shop.total", "", sum)}
	had := `{"id": "ag-0", "status": "ended", "functions": ["shop.total"]}`
	for name, tc := range map[string]struct {
		o    AgentOptions
		says bool // the request says what they are
	}{
		"a run":       {AgentOptions{AgentRequest: api.AgentRequest{Task: "x"}}, true},
		"a follow-up": {AgentOptions{AgentRequest: api.AgentRequest{Task: "x", Follows: "ag-0"}}, true},
		"a fork":      {AgentOptions{AgentRequest: api.AgentRequest{Fork: &api.AgentFork{Of: "ag-0", At: 1}}}, false},
		"a replay":    {AgentOptions{AgentRequest: api.AgentRequest{ReplayOf: "ag-0"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			call := api.ToolMessage{CallID: "1", Tool: "shop.total", Arguments: json.RawMessage(`{"order": {"number": 7, "goods": ["a"]}}`)}
			s := newCalling(t, map[string]string{"POST /agents": `{"id": "ag-1", "status": "running"}`, "GET /agents/ag-0": had}, call)
			if name != "a run" {
				_, err := s.StartAgent(t.Context(), tc.o)
				var e *Error
				if !errors.As(err, &e) || !errors.Is(err, ErrInvalid) || !strings.Contains(e.Message, "ag-0 calls functions of a program that are not here: shop.total") || len(s.bodies["POST /agents"]) > 0 {
					t.Errorf("without them: %v", err)
				}
			}
			tc.o.Functions = total
			if _, err := s.StartAgent(t.Context(), tc.o); err != nil {
				t.Fatal(err)
			}
			var asked api.AgentRequest
			if err := json.Unmarshal(s.bodies["POST /agents"][0], &asked); err != nil || tc.says != (asked.Tools != nil && asked.Tools.Functions[0].Name == "shop.total") {
				t.Errorf("asked for %+v, %v", asked, err)
			}
			if said := <-s.said; string(said.Result) != `{"total":10}` {
				t.Errorf("%+v", said)
			}
		})
	}
}
