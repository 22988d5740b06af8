package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/pandastack/pandastack/internal/config"
)

// Whoever is interrupted while the server starts something leaves nothing behind.
func TestWhatIsBegunByAnInterruptedCallerIsEnded(t *testing.T) {
	for _, c := range []struct {
		name    string
		run     func(*app) error
		started string // the call that starts it
		answer  string
		ended   string // the call that ends it
	}{
		{
			"exec", (&sandboxExecCmd{ID: "sb-1", Command: []string{"sleep", "9"}}).Run,
			"POST /v1/sandboxes/sb-1/processes", `{"pid":7,"running":true}`, "DELETE /v1/sandboxes/sb-1/processes/7",
		},
		{
			"exec -d", (&sandboxExecCmd{ID: "sb-1", Command: []string{"sleep", "9"}, Detach: true}).Run,
			"POST /v1/sandboxes/sb-1/processes", `{"pid":7,"running":true}`, "DELETE /v1/sandboxes/sb-1/processes/7",
		},
		{
			"run", (&runCmd{Code: "1", Template: "base", Timeout: 1}).Run,
			"POST /v1/sandboxes", `{"id":"sb-1","status":"running"}`, "DELETE /v1/sandboxes/sb-1",
		},
		{
			"sandbox create", (&sandboxCreateCmd{Template: "base"}).Run,
			"POST /v1/sandboxes", `{"id":"sb-1","status":"running"}`, "DELETE /v1/sandboxes/sb-1",
		},
		{
			"agent run", (&agentRunCmd{Task: "add", Keep: "kill"}).Run,
			"POST /v1/agents", `{"id":"ru-1","status":"running"}`, "POST /v1/agents/ru-1/cancel",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			ended := make(chan string, 9)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				call := r.Method + " " + r.URL.Path
				if call == c.started {
					interrupt() // and only then the answer, so that it is on its way in any case
					fmt.Fprint(w, c.answer)
					return
				}
				ended <- call
				fmt.Fprint(w, c.answer)
			}))
			defer server.Close()
			a := &app{
				Streams: Streams{In: bytes.NewReader(nil), Out: io.Discard, Err: io.Discard}, ctx: ctx,
				flags: &grammar{API: server.URL}, env: config.OS(),
			}
			if err := c.run(a); !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			select {
			case call := <-ended:
				if call != c.ended {
					t.Errorf("%s was called, not %s", call, c.ended)
				}
			default:
				t.Error("what was started goes on")
			}
		})
	}
}
