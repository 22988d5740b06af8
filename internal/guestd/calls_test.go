package guestd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
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
		c := testCalls(t)
		var streams []*callStream
		var sent []*bytes.Buffer
		attach := func() {
			b := new(bytes.Buffer)
			streams, sent = append(streams, c.host(b)), append(sent, b)
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

func (c *calls) host(w io.Writer) *callStream {
	s := &callStream{w: w, ctrl: http.NewResponseController(httptest.NewRecorder()), calls: map[uint32]*toolCall{}, done: make(chan struct{})}
	c.attach(s)
	return s
}

func testCalls(t *testing.T) *calls {
	c := newCalls(slog.New(slog.DiscardHandler))
	c.kernels = kernels.New(kernels.Config{})
	t.Cleanup(c.kernels.Close)
	return c
}

// program is a connection of one, whose other side is served.
func (c *calls) program(t *testing.T) (net.Conn, func()) {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); c.serve(theirs) }()
	return ours, func() { ours.Close(); <-served }
}

func request(n int) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(n)<<32|7), make([]byte, n)...)
}

func answerOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A program that leaves after its last call was refused here ends with it, and nothing else does.
func TestAProgramLeavesAfterARefusal(t *testing.T) {
	c := testCalls(t)
	c.host(io.Discard)
	for range guestapi.MaxCallsAtOnce {
		c.pending[&toolCall{}] = struct{}{}
	}
	conn, leave := c.program(t)
	if _, err := conn.Write(request(2)); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, conn); !strings.Contains(got, "rate_limited") {
		t.Errorf("answered %s", got)
	}
	leave()
}

// Who is told that a call is too large had to write it first, and can go on.
func TestACallThatIsTooLarge(t *testing.T) {
	c := testCalls(t)
	c.host(io.Discard)
	conn, leave := c.program(t)
	defer leave()
	for range 2 {
		if _, err := conn.Write(request(guestapi.MaxCallRequest + 1)); err != nil {
			t.Fatal(err)
		}
		if got := answerOf(t, conn); !strings.Contains(got, "too_large") {
			t.Errorf("answered %s", got)
		}
	}
}

// meddler does something when the first piece of a call is written.
type meddler struct {
	bytes.Buffer
	once sync.Once
	do   func()
}

func (m *meddler) Write(b []byte) (int, error) {
	m.once.Do(m.do)
	return m.Buffer.Write(b)
}

// A call that is cancelled while it is sent ends where it is: none of it comes after that.
func TestACallIsCancelledWhileItIsSent(t *testing.T) {
	c := testCalls(t)
	call := &toolCall{conn: deaf{}, done: make(chan struct{}), request: make([]byte, 10*guestapi.CallPiece)}
	cancelled := make(chan struct{})
	m := &meddler{do: func() {
		go func() { defer close(cancelled); c.cancel(call) }()
		<-call.done
	}}
	c.host(m)
	c.begin(call)
	<-cancelled
	var kinds []byte
	for {
		f, err := guestapi.ReadCallFrame(m)
		if err != nil {
			break
		}
		kinds = append(kinds, f.Kind)
	}
	if want := []byte{guestapi.CallData, guestapi.CallCancel, guestapi.CallEnd}; !bytes.Equal(kinds, want) {
		t.Errorf("frames of the kinds %v", kinds)
	}
}

// A call that was cancelled before any of it was sent is not heard of; one that was sent whole is cancelled.
func TestACallIsCancelledBeforeAndAfter(t *testing.T) {
	c := testCalls(t)
	var sent bytes.Buffer
	s := c.host(&sent)
	early, late := &toolCall{conn: deaf{}, done: make(chan struct{})}, &toolCall{conn: deaf{}, done: make(chan struct{})}
	c.mu.Lock()
	c.pending[early] = struct{}{}
	s.put(early)
	c.mu.Unlock()
	c.cancel(early)
	c.present(s, early, false)
	if sent.Len() != 0 {
		t.Errorf("%d bytes of a call that is over", sent.Len())
	}
	c.begin(late)
	sent.Reset()
	c.cancel(late)
	c.cancel(late)
	if f, err := guestapi.ReadCallFrame(&sent); err != nil || f.Kind != guestapi.CallCancel || sent.Len() != 0 {
		t.Errorf("%+v, %v, and %d bytes more", f, err, sent.Len())
	}
}

// Nothing is written to a request that is over: net/http ends the program for it.
func TestAStreamThatIsOverIsNotWrittenTo(t *testing.T) {
	a := &Agent{calls: testCalls(t)}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		body, _ := io.Pipe()
		r := httptest.NewRequestWithContext(ctx, "POST", "/calls", body)
		_ = a.postCalls(httptest.NewRecorder(), r)
	}()
	s := a.calls.waitStream()
	cancel()
	<-over
	if err := s.write(guestapi.CallFrame{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("written: %v", err)
	}
	if err := s.flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("flushed: %v", err)
	}
}
