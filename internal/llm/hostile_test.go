package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/llm"
)

// provider is a server that answers each request as the test has it.
func provider(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) string {
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice who leaves
		w.Header().Set("Content-Type", "text/event-stream")
		answer(w, r)
	}))
	t.Cleanup(ts.Close)
	return ts.URL
}

// pieces are how each protocol writes a piece of text, a piece of a call's
// arguments, and what surrounds them.
var pieces = map[string]struct{ begin, text, call, argument, end string }{
	"openai": {
		"", `data: {"choices":[{"delta":{"content":%q}}]}` + "\n\n",
		`data: {"choices":[{"delta":{"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":""}}]}}]}` + "\n\n",
		`data: {"choices":[{"delta":{"tool_calls":[{"index":%d,"function":{"arguments":%q}}]}}]}` + "\n\n",
		`data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}` + "\n\ndata: [DONE]\n\n",
	},
	"anthropic": {
		`data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}` + "\n\n",
		`data: {"type":"content_block_delta","index":900,"delta":{"type":"text_delta","text":%q}}` + "\n\n",
		`data: {"type":"content_block_start","index":%d,"content_block":{"type":"tool_use","id":%q,"name":%q}}` + "\n\n",
		`data: {"type":"content_block_delta","index":%d,"delta":{"type":"input_json_delta","partial_json":%q}}` + "\n\n",
		`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
	},
}

// A server that pays no heed to max_tokens is cut off at about a megabyte, as a
// reply at its limit, and its connection is closed; retries would only repeat it.
func TestAReplyThatNeverEndsIsCut(t *testing.T) {
	for name, of := range protocols {
		p := pieces[name]
		for kind, piece := range map[string]string{
			"of large pieces": fmt.Sprintf(p.text, strings.Repeat("x", 100_000)),
			"of tiny pieces":  strings.Repeat(fmt.Sprintf(p.text, "y"), 1000),
			"of arguments":    strings.Repeat(fmt.Sprintf(p.argument, 0, strings.Repeat("z", 1000)), 20),
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				left := make(chan struct{}, 1)
				url := provider(t, func(w http.ResponseWriter, _ *http.Request) {
					begin := p.begin + fmt.Sprintf(p.call, 0, "a", "run_python")
					for _, err := io.WriteString(w, begin); err == nil; {
						_, err = io.WriteString(w, piece)
					}
					left <- struct{}{}
				})
				again, waits := retrying(of(llm.Endpoint{BaseURL: url}))
				heard := 0
				req := hello()
				req.MaxTokens = 1000
				got, err := again.Complete(context.Background(), req, func(d llm.Delta) { heard += len(d.Text) })
				<-left
				size := len(got.Text) + len(got.Calls[0].Arguments)
				least := 1 << 20
				if kind == "of tiny pieces" {
					least = 1 << 15 // the stream itself is too long
				}
				if err != nil || got.Stop != llm.StopLength || !got.Usage.Estimated || size < least || size > 1<<20+100_100 || len(*waits) > 0 {
					t.Errorf("%d bytes, stop %q, heard %d, waited %v: %v", size, got.Stop, heard, *waits, err)
				}
			})
		}
	}
}

// What says nothing is given up, also when it keeps the connection warm.
func TestAStreamWithoutAWordIsGivenUp(t *testing.T) {
	for name, of := range protocols {
		for kind, piece := range map[string]string{
			"comments":     ": processing\n\n",
			"pings":        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
			"empty pieces": fmt.Sprintf(pieces[name].text, ""),
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				url := provider(t, func(w http.ResponseWriter, r *http.Request) {
					for r.Context().Err() == nil {
						_, _ = io.WriteString(w, piece)
						_ = http.NewResponseController(w).Flush()
						time.Sleep(time.Millisecond) // the server's own pace
					}
				})
				_, err := of(llm.Endpoint{BaseURL: url, Idle: 50 * time.Millisecond}).Complete(context.Background(), hello(), nil)
				if !llm.Temporary(err) || !strings.Contains(err.Error(), "without a word") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

func TestALineWithoutAnEnd(t *testing.T) {
	for name, of := range protocols {
		url := provider(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.WriteString(w, "data: ")
			for err == nil {
				_, err = io.WriteString(w, strings.Repeat("x", 1<<16))
			}
		})
		if _, err := of(llm.Endpoint{BaseURL: url}).Complete(context.Background(), hello(), nil); !llm.Temporary(err) || !strings.Contains(err.Error(), "longer than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Calls with the same id, without one, with names and ids that no provider takes
// back, and many more than anybody means.
func TestCallsAreMadeFit(t *testing.T) {
	for name, of := range protocols {
		p := pieces[name]
		t.Run(name, func(t *testing.T) {
			url := provider(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, p.begin)
				for i, id := range []string{"same", "same", "", "not: fit!", strings.Repeat("l", 200)} {
					_, _ = fmt.Fprintf(w, p.call, i, id, "run_python")
					_, _ = fmt.Fprintf(w, p.argument, i, fmt.Sprintf(`{"code":"%d`, i)) // broken JSON
				}
				for i := 5; i < 1000; i++ {
					_, _ = fmt.Fprintf(w, p.call, i, fmt.Sprint("id", i), "run_python")
					_, _ = fmt.Fprintf(w, p.argument, i, "{}")
				}
				_, _ = io.WriteString(w, p.end)
			})
			got, err := of(llm.Endpoint{BaseURL: url}).Complete(context.Background(), hello(), nil)
			if err != nil || len(got.Calls) != 128 || got.MoreCalls != 1000-128 {
				t.Fatalf("%d calls and %d more, %v", len(got.Calls), got.MoreCalls, err)
			}
			seen := map[string]bool{}
			for i, c := range got.Calls {
				if c.ID == "" || len(c.ID) > 64 || strings.ContainsAny(c.ID, ": !") || seen[c.ID] {
					t.Errorf("call %d has the id %q", i, c.ID)
				}
				seen[c.ID] = true
			}
			if got.Calls[0].ID != "same" || got.Calls[3].ID != "not__fit_" || got.Calls[2].Arguments != `{"code":"2` {
				t.Errorf("%+v", got.Calls[:5])
			}
		})
	}
}

func TestWhatIsNoText(t *testing.T) {
	for name, of := range protocols {
		p := pieces[name]
		url := provider(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, p.begin+strings.Replace(fmt.Sprintf(p.text, "a%b"), "%", "\xff\xfe\x80", 1)+strings.Replace(fmt.Sprintf(p.text, "c%d"), "%", `\ud800`, 1)+p.end)
		})
		got, err := of(llm.Endpoint{BaseURL: url}).Complete(context.Background(), hello(), nil)
		if err != nil || got.Text != "a\uFFFD\uFFFD\uFFFDbc\uFFFDd" {
			t.Errorf("%s: %q, %v", name, got.Text, err)
		}
	}
}

// Claims about tokens that would lift or end every budget.
func TestAbsurdUsage(t *testing.T) {
	for name, of := range protocols {
		for claim, want := range map[string]int{"-5000000": 0, "9000000000000000000": 1e9} {
			p := pieces[name]
			url := provider(t, func(w http.ResponseWriter, _ *http.Request) {
				whole := p.begin + fmt.Sprintf(p.text, "x") + p.end
				_, _ = io.WriteString(w, strings.NewReplacer(`tokens":3`, `tokens":`+claim, `tokens":4`, `tokens":`+claim).Replace(whole))
			})
			got, err := of(llm.Endpoint{BaseURL: url}).Complete(context.Background(), hello(), nil)
			if err != nil || got.Usage.Input != want || got.Usage.Output != want {
				t.Errorf("%s, %s: %+v, %v", name, claim, got.Usage, err)
			}
		}
	}
}

// An address that is no provider's says so, with what it says.
func TestWhatIsNoStream(t *testing.T) {
	for name, of := range protocols {
		for kind, body := range map[string]string{"text/html; charset=utf-8": "<html>Welcome</html>", "application/json": `{"choices":[{"message":{"content":"x"}}]}`} {
			url := provider(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = io.WriteString(w, body)
			})
			_, err := of(llm.Endpoint{BaseURL: url}).Complete(context.Background(), hello(), nil)
			var e *llm.Error
			if !errors.As(err, &e) || e.Kind != llm.Unreadable || !strings.Contains(e.Message, body) {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
		}
	}
}

func TestBaseURLs(t *testing.T) {
	c := &llm.Catalog{}
	for _, url := range []string{"x", "ftp://a/v1", "http://", "http://u:p@a/v1", "http://a/v1?to=", "http://a/v1#x", "http://[::1/v1"} {
		if _, _, err := c.Open("openai:m", url, ""); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
	if _, _, err := c.Open("openai:m", "http://127.0.0.1:8080/v1", ""); err != nil {
		t.Error(err)
	}
}
