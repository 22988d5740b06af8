package scripted_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pandastack/pandastack/internal/llm/scripted"
)

// looking sees how much of the script is left when the end of a reply is written.
type looking struct {
	*httptest.ResponseRecorder
	end    string
	script *scripted.Script
	left   int
}

func (l *looking) Write(p []byte) (int, error) {
	if strings.Contains(string(p), l.end) {
		l.left = l.script.Left()
	}
	return l.ResponseRecorder.Write(p)
}

// Whoever has read a reply may ask for the next turn before the server has done anything more.
func TestATurnIsSaidWhenItsEndIsRead(t *testing.T) {
	for path, end := range map[string]string{"/v1/messages": "stop_reason", "/v1/chat/completions": `"finish_reason":"stop"`} {
		script := scripted.Of(scripted.Turn{Say: "one"}, scripted.Turn{Say: "two"})
		w := &looking{ResponseRecorder: httptest.NewRecorder(), end: end, script: script, left: -1}
		body := `{"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}]}`
		(&scripted.Server{Script: script}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		if w.left != 1 {
			t.Errorf("%s: %d turns were left when its end was written: %s", path, w.left, w.Body)
		}
	}
}
