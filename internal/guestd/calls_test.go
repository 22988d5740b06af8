package guestd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
)

// deaf is a program that reads no answers.
type deaf struct{ net.Conn }

func (deaf) Write(b []byte) (int, error) { return len(b), nil }

// A call goes to one stream, whichever stream comes while it begins.
func TestACallIsPresentedOnce(t *testing.T) {
	for range 30 {
		c := newCalls(slog.New(slog.DiscardHandler))
		c.kernels = kernels.New(kernels.Config{})
		var streams []*callStream
		var sent []*bytes.Buffer
		attach := func() {
			b := new(bytes.Buffer)
			s := &callStream{w: b, ctrl: http.NewResponseController(httptest.NewRecorder()), calls: map[uint32]*toolCall{}, done: make(chan struct{})}
			streams, sent = append(streams, s), append(sent, b)
			c.attach(s)
		}
		attach()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 50 {
					c.begin(&toolCall{conn: deaf{}, done: make(chan struct{})})
				}
			})
		}
		for range 100 {
			attach()
			runtime.Gosched()
		}
		all.Wait()
		c.kernels.Close()
		seen := map[string]bool{}
		for i, s := range streams {
			s.mu.Lock()
			in := bufio.NewReader(sent[i])
			for {
				f, err := guestapi.ReadCallFrame(in)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if f.Kind != guestapi.CallData {
					continue
				}
				line, _, _ := bytes.Cut(f.Data, []byte("\n"))
				var head guestapi.CallHead
				if err := json.Unmarshal(line, &head); err != nil {
					t.Fatal(err)
				}
				if seen[head.Key] || head.Again {
					t.Fatalf("presented twice (%v), or as one that was held (%v)", seen[head.Key], head.Again)
				}
				seen[head.Key] = true
			}
			s.mu.Unlock()
		}
	}
}
