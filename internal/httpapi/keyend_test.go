package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
)

// keyMemory keeps keys for one test.
type keyMemory struct {
	mu   sync.Mutex
	keys map[string]auth.Key
}

func (m *keyMemory) Keys(context.Context) ([]auth.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.keys)), nil
}

func (m *keyMemory) AddKey(_ context.Context, k auth.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[k.Prefix] = k
	return nil
}

func (m *keyMemory) DeleteKey(_ context.Context, prefix string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, prefix)
	return nil
}

func (m *keyMemory) TouchKeys(context.Context, map[string]time.Time) error { return nil }

func realKeys(t *testing.T) *auth.Keys {
	t.Helper()
	keys, err := auth.Open(t.Context(), &keyMemory{keys: map[string]auth.Key{}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newKey(t *testing.T, keys *auth.Keys, g auth.Grant) (secret, prefix string) {
	t.Helper()
	secret, key, err := keys.Create(t.Context(), auth.Host, g)
	if err != nil {
		t.Fatal(err)
	}
	return secret, key.Prefix
}

// Whatever is in progress with a key ends with the key: streams and calls that
// wait, for every kind of them. Another key of the workspace goes on.
func TestWhatIsOpenEndsWithItsKey(t *testing.T) {
	keys := realKeys(t)
	l := newLiveWith(t, keys, nil)
	first, prefix := newKey(t, keys, auth.Grant{})
	second, _ := newKey(t, keys, auth.Grant{})
	path := "/v1/sandboxes/" + create(l, first)
	cells := path + "/repl/sessions/default"
	l.as(first, http.StatusCreated, "POST", path+"/repl/sessions", `{"id":"other"}`)
	var p api.Process
	if err := json.Unmarshal([]byte(l.as(first, http.StatusCreated, "POST", path+"/processes", `{"cmd":"echo up; sleep 60"}`)), &p); err != nil {
		t.Fatal(err)
	}

	open := []struct {
		name, method, path, body string
		begun                    string // the stream has begun when this came; "" for a call that waits
		end                      string // what is read then
		broken                   bool   // or the connection breaks, so that the client attaches again
	}{
		{"a command's stream", "POST", path + "/exec/stream", `{"cmd":"echo up; sleep 60"}`, "up", `"code":"unauthenticated"`, false},
		{"a process's stream", "GET", fmt.Sprintf("%s/processes/%d/stream", path, p.PID), "", "up", "", true},
		{"a cell's stream", "POST", cells + "/run/stream", `{"code":"print('up')\nwait('never')","execution_id":"e-1"}`, "up", "", true},
		{"a command", "POST", path + "/exec", `{"cmd":"echo up; sleep 60"}`, "", `"code":"unauthenticated"`, false},
		{"a cell", "POST", path + "/repl/sessions/other/run", `{"code":"wait('never')","execution_id":"e-2"}`, "", `"code":"unauthenticated"`, false},
	}
	socket := l.socket(path, first)
	socket.say(`{"id":"1","cmd":"echo up; sleep 60"}`)
	socket.hear()
	var ended sync.WaitGroup
	begun := make(chan string, len(open))
	for _, o := range open {
		ended.Go(func() {
			if o.begun == "" {
				begun <- o.name // at worst it is refused when it comes
			}
			res, err := l.request(t.Context(), first, o.method, o.path, strings.NewReader(o.body))
			if err != nil {
				t.Errorf("%s: %v", o.name, err)
				begun <- o.name
				return
			}
			defer res.Body.Close()
			read := bufio.NewReader(res.Body)
			for line := ""; o.begun != "" && !strings.Contains(line, o.begun); {
				if line, err = read.ReadString('\n'); err != nil {
					t.Errorf("%s: %v", o.name, err)
					break
				}
			}
			if o.begun != "" {
				begun <- o.name
			}
			rest, err := io.ReadAll(read)
			if (err != nil) != o.broken || !strings.Contains(string(rest), o.end) {
				t.Errorf("%s ends with %v: %s", o.name, err, rest)
			}
			if o.begun == "" && res.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: status %d", o.name, res.StatusCode)
			}
		})
	}
	for range open {
		<-begun
	}
	for state := ""; !strings.Contains(state, `"busy"`); {
		state = l.as(second, http.StatusOK, "GET", path+"/repl/sessions/other", "")
	}
	if err := keys.Revoke(t.Context(), auth.Host, prefix); err != nil {
		t.Fatal(err)
	}
	ended.Wait() // else the test runs into its deadline
	for err := error(nil); err == nil; {
		_, _, err = socket.conn.Read(t.Context())
	}
	l.as(first, http.StatusUnauthorized, "GET", path, "")
	l.as(second, http.StatusOK, "POST", path+"/exec", `{"cmd":"echo hi"}`)
}
