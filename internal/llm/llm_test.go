package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pandastack/pandastack/internal/llm"
	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// protocols are both ways of speaking to a model, over real HTTP.
var protocols = map[string]func(llm.Endpoint) llm.Provider{
	"openai":    func(at llm.Endpoint) llm.Provider { at.BaseURL += "/v1"; return llm.NewOpenAI(at) },
	"anthropic": func(at llm.Endpoint) llm.Provider { return llm.NewAnthropic(at) },
}

// eachProtocol runs a test with a scripted model behind each.
func eachProtocol(t *testing.T, script func() *scripted.Script, test func(t *testing.T, model llm.Provider, server *scripted.Server)) {
	for name, of := range protocols {
		t.Run(name, func(t *testing.T) {
			server := &scripted.Server{Script: script(), Key: "secret-key"}
			ts := httptest.NewServer(server)
			defer ts.Close()
			test(t, of(llm.Endpoint{BaseURL: ts.URL, Key: "secret-key"}), server)
			if p := server.Problems(); len(p) > 0 {
				t.Errorf("the server refused: %v", p)
			}
		})
	}
}

func hello() llm.Request {
	return llm.Request{Model: "m", System: "Be brief.", Messages: []llm.Message{{Role: llm.User, Text: "hello"}}}
}

func TestReply(t *testing.T) {
	script := func() *scripted.Script {
		return scripted.Of(scripted.Turn{
			Say: "Grüße, I look at the file now.", Reasoning: "what is asked?", Usage: &scripted.Usage{Input: 100, Output: 7, Cached: 40},
			Calls: []scripted.Call{
				{ID: "a", Name: "run_python", Arguments: json.RawMessage(`{"code":"print('long enough to come in pieces')"}`)},
				{ID: "b", Name: "run_python", Arguments: json.RawMessage(`{"code":"2"}`)},
			},
		})
	}
	eachProtocol(t, script, func(t *testing.T, model llm.Provider, _ *scripted.Server) {
		req := hello()
		req.Tools = []llm.Tool{{Name: "run_python", Parameters: json.RawMessage(`{"type":"object"}`)}}
		var text, reasoning strings.Builder
		pieces := 0
		got, err := model.Complete(context.Background(), req, func(d llm.Delta) {
			text.WriteString(d.Text)
			reasoning.WriteString(d.Reasoning)
			pieces++
		})
		want := llm.Reply{
			Text: "Grüße, I look at the file now.", Reasoning: "what is asked?", Stop: llm.StopTool, ID: "scripted-1", Model: "scripted",
			Usage: llm.Usage{Input: 100, Output: 7, CacheRead: 40},
			Calls: []llm.Call{
				{ID: "a", Name: "run_python", Arguments: `{"code":"print('long enough to come in pieces')"}`},
				{ID: "b", Name: "run_python", Arguments: `{"code":"2"}`},
			},
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if text.String() != want.Text || reasoning.String() != want.Reasoning || pieces < 4 {
			t.Errorf("in %d pieces: %q, %q", pieces, text.String(), reasoning.String())
		}
	})
}

func TestStopsAndMissingUsage(t *testing.T) {
	for _, stop := range []llm.Stop{llm.StopEnd, llm.StopLength, llm.StopFilter} {
		script := func() *scripted.Script {
			return scripted.Of(scripted.Turn{Say: "x", Stop: stop, Usage: &scripted.Usage{Silent: true}})
		}
		eachProtocol(t, script, func(t *testing.T, model llm.Provider, _ *scripted.Server) {
			got, err := model.Complete(context.Background(), hello(), nil)
			if err != nil || got.Stop != stop || !got.Usage.Estimated {
				t.Errorf("%s: %+v, %v", stop, got, err)
			}
		})
	}
}

// A conversation with calls, their answers, pictures and an empty text is
// accepted by both protocols, which the server holds it against.
func TestWholeConversation(t *testing.T) {
	picture := llm.Image{MIME: "image/png", Data: []byte("png")}
	script := func() *scripted.Script {
		return scripted.Of(scripted.Turn{Say: "done", Image: true, Expect: []string{"second"}})
	}
	eachProtocol(t, script, func(t *testing.T, model llm.Provider, server *scripted.Server) {
		req := hello()
		req.Messages = append(req.Messages,
			llm.Message{Role: llm.Assistant, Calls: []llm.Call{{ID: "a", Name: "run_python", Arguments: `{"code":"1"}`}, {ID: "b", Name: "run_python", Arguments: `{"co`}}},
			llm.Message{Role: llm.ToolRole, CallID: "a", Text: "first", Images: []llm.Image{picture}},
			llm.Message{Role: llm.ToolRole, CallID: "b", Text: "second"},
		)
		if got, err := model.Complete(context.Background(), req, nil); err != nil || got.Text != "done" {
			t.Errorf("%+v, %v", got, err)
		}
		if raw := string(server.Requests()[0]); strings.Contains(raw, "secret-key") {
			t.Errorf("the key is in the body: %s", raw)
		}
	})
}

func TestAnthropicIsToldWhatToCache(t *testing.T) {
	server := &scripted.Server{Script: scripted.Of(scripted.Turn{Say: "x"})}
	ts := httptest.NewServer(server)
	defer ts.Close()
	if _, err := llm.NewAnthropic(llm.Endpoint{BaseURL: ts.URL + "/v1"}).Complete(context.Background(), hello(), nil); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(server.Requests()[0]), `"cache_control":{"type":"ephemeral"}`); n != 2 {
		t.Errorf("%d marks for the cache, want the system prompt's and the last message's: %s", n, server.Requests()[0])
	}
}

// retrying waits for nothing, and keeps how long it would have.
func retrying(model llm.Provider) (*llm.Retrying, *[]time.Duration) {
	var waits []time.Duration
	return &llm.Retrying{Provider: model, Sleep: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}}, &waits
}

func TestRetries(t *testing.T) {
	script := func() *scripted.Script {
		return scripted.Of(scripted.Turn{Say: "the whole reply, at last", Faults: []scripted.Fault{
			{Status: 429, Message: "slow down", RetryAfter: "7"}, {Status: 529, Message: "overloaded"}, {BreakAfter: 12}, {BreakAfter: 12, Error: true},
		}})
	}
	eachProtocol(t, script, func(t *testing.T, model llm.Provider, _ *scripted.Server) {
		again, waits := retrying(model)
		var heard strings.Builder
		got, err := again.Complete(context.Background(), hello(), func(d llm.Delta) {
			if d.Again {
				heard.Reset()
			}
			heard.WriteString(d.Text)
		})
		if err != nil || got.Text != "the whole reply, at last" || heard.String() != got.Text || got.Usage.Attempts != 5 {
			t.Errorf("%+v, heard %q, %v", got, heard.String(), err)
		}
		if w := *waits; len(w) != 4 || w[0] < 7*time.Second || w[1] < 2*time.Second || w[2] < 4*time.Second {
			t.Errorf("the pauses: %v", w)
		}
	})
}

func TestWhatPassesNotIsNotTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		fault scripted.Fault
		kind  string
	}{
		{scripted.Fault{Status: 400, Message: "no such parameter"}, llm.Refused},
		{scripted.Fault{Status: 400, Message: "This model's maximum context length is 8192 tokens"}, llm.TooLong},
		{scripted.Fault{Status: 401, Message: "who?"}, llm.BadKey},
		{scripted.Fault{Status: 404, Message: "no such model"}, llm.NotFound},
		{scripted.Fault{Status: 429, Message: "You exceeded your current quota"}, llm.NoMoney},
		{scripted.Fault{Status: 429, Message: "tomorrow", RetryAfter: "86400"}, llm.Overloaded},
	} {
		script := func() *scripted.Script {
			return scripted.Of(scripted.Turn{Say: "x", Faults: []scripted.Fault{tc.fault}})
		}
		eachProtocol(t, script, func(t *testing.T, model llm.Provider, _ *scripted.Server) {
			again, waits := retrying(model)
			_, err := again.Complete(context.Background(), hello(), nil)
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || e.Status != tc.fault.Status || !strings.Contains(e.Message, tc.fault.Message) || len(*waits) != 0 {
				t.Errorf("%d %q: %v, waited %v", tc.fault.Status, tc.fault.Message, err, *waits)
			}
		})
	}
}

func TestAReplyThatBreaksOffIsAnError(t *testing.T) {
	script := func() *scripted.Script {
		return scripted.Of(scripted.Turn{Say: "a reply that is long enough", Faults: []scripted.Fault{{BreakAfter: 12}}})
	}
	eachProtocol(t, script, func(t *testing.T, model llm.Provider, _ *scripted.Server) {
		got, err := model.Complete(context.Background(), hello(), nil)
		var e *llm.Error
		if !errors.As(err, &e) || e.Kind != llm.Broken || !llm.Temporary(err) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestASilentStreamIsGivenUp(t *testing.T) {
	for name, of := range protocols {
		release := make(chan struct{})
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		_, err := of(llm.Endpoint{BaseURL: ts.URL, Quiet: 20 * time.Millisecond}).Complete(context.Background(), hello(), nil)
		close(release)
		ts.Close()
		if !llm.Temporary(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The key goes to the address that it was meant for and nowhere else.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed, with the headers %v", r.Header)
	}))
	defer elsewhere.Close()
	for name, of := range protocols {
		ts := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
		_, err := of(llm.Endpoint{BaseURL: ts.URL, Key: "secret-key"}).Complete(context.Background(), hello(), nil)
		ts.Close()
		var e *llm.Error
		if !errors.As(err, &e) || e.Status != http.StatusTemporaryRedirect {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhoCancelsIsToldSo(t *testing.T) {
	why := errors.New("the run was cancelled")
	for name, of := range protocols {
		ctx, cancel := context.WithCancelCause(context.Background())
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice who leaves
			cancel(why)
			<-r.Context().Done()
		}))
		_, err := of(llm.Endpoint{BaseURL: ts.URL}).Complete(ctx, hello(), nil)
		ts.Close()
		if !errors.Is(err, why) || llm.Temporary(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Servers differ: reasoning under another name, calls that all have index 0,
// no [DONE] at the end.
func TestDialectsOfChatCompletions(t *testing.T) {
	stream := `data: {"choices":[{"delta":{"reasoning":"hm"}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}

data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"f","arguments":"{}"}}]}}]}

data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}

`
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(stream)) }))
	defer ts.Close()
	got, err := llm.NewOpenAI(llm.Endpoint{BaseURL: ts.URL}).Complete(context.Background(), hello(), nil)
	want := llm.Reply{Reasoning: "hm", Stop: llm.StopEnd, Usage: llm.Usage{Input: 3, Output: 4},
		Calls: []llm.Call{{ID: "a", Name: "f", Arguments: `{"x":1}`}, {ID: "b", Name: "f", Arguments: "{}"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestRecordedRepliesArePlayed(t *testing.T) {
	s, err := scripted.Recorded(strings.NewReader(`{"seq":1,"type":"started"}
{"seq":2,"type":"reply","reply":{"text":"one","stop":"end","usage":{"input_tokens":5,"output_tokens":6}}}
{"seq":3,"type":"reply","reply":{"text":"","calls":[{"id":"a","name":"run_python","arguments":"{\"code\":\"1\"}"}],"stop":"tool","usage":{"estimated":true}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := &scripted.Provider{Script: s}
	one, err1 := p.Complete(context.Background(), hello(), nil)
	two, err2 := p.Complete(context.Background(), hello(), nil)
	if err1 != nil || err2 != nil || one.Text != "one" || one.Usage.Output != 6 || two.Calls[0].Arguments != `{"code":"1"}` || s.Left() != 0 {
		t.Errorf("%+v %v, %+v %v", one, err1, two, err2)
	}
}

func FuzzOpenAIStream(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	f.Add("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":9,\"id\":\"x\"}]}}]}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		for _, of := range protocols {
			client := &http.Client{Transport: answering(stream)}
			_, _ = of(llm.Endpoint{BaseURL: "http://model", Client: client}).Complete(context.Background(), hello(), nil) // must not panic
		}
	})
}

type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	_, _ = rec.WriteString(string(a))
	return rec.Result(), nil
}
