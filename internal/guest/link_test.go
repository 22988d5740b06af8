package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/driver/fake"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
)

func listen(t testing.TB, dir string, generation int) *guest.Listener {
	t.Helper()
	l, err := guest.Listen(guest.Options{Dir: dir, SandboxID: "sb", Generation: generation})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// honest links a fake guest and gives the host's end.
func honest(t *testing.T) (*fake.Guest, *guest.Listener, *guest.Client) {
	t.Helper()
	dir := t.TempDir()
	l := listen(t, dir, 3)
	g := fake.NewGuest()
	dial(t, g, dir)
	c := client(t, l)
	if _, err := c.Health(context.Background()); err != nil { // the guest serves
		t.Fatal(err)
	}
	return g, l, c
}

func dial(t *testing.T, g *fake.Guest, dir string) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { g.Dial(ctx, dir) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func client(t testing.TB, l *guest.Listener) *guest.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := l.Client(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestFilesBothWays(t *testing.T) {
	_, _, c := honest(t)
	ctx := context.Background()
	content := bytes.Repeat([]byte("0123456789"), 1<<20)
	w, err := c.WriteFile(ctx, "/workspace/ä b/x.bin", guest.WriteOptions{Mode: "0600"}, bytes.NewReader(content))
	if err != nil || w.Bytes != int64(len(content)) {
		t.Fatalf("%+v, %v", w, err)
	}
	f, err := c.ReadFile(ctx, "/workspace/ä b/x.bin", "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f.Body)
	f.Body.Close()
	if err != nil || !bytes.Equal(got, content) || f.Size != int64(len(content)) || f.Total != f.Size || f.Partial || f.ModTime.IsZero() {
		t.Errorf("%d bytes, %+v, %v", len(got), f, err)
	}
	f, err = c.ReadFile(ctx, "/workspace/ä b/x.bin", "bytes=10-14")
	if err != nil {
		t.Fatal(err)
	}
	got, err = io.ReadAll(f.Body)
	f.Body.Close()
	if err != nil || string(got) != "01234" || f.Start != 10 || f.Size != 5 || f.Total != int64(len(content)) || !f.Partial {
		t.Errorf("a range: %q, %+v, %v", got, f, err)
	}
	if _, err := c.ReadFile(ctx, "/none", ""); !errors.Is(err, fault.NotFound) {
		t.Errorf("a file that is not: %v", err)
	}
	if info, err := c.Stat(ctx, "/workspace/ä b/x.bin"); err != nil || info.Size != int64(len(content)) {
		t.Errorf("%+v, %v", info, err)
	}
	if err := c.Move(ctx, api.MoveRequest{From: "/workspace/ä b/x.bin", To: "/workspace/y"}); err != nil {
		t.Error(err)
	}
	if list, err := c.ListDir(ctx, "/workspace", "", 0); err != nil || len(list.Entries) != 1 || list.Entries[0].Name != "y" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := c.RemoveFile(ctx, "/workspace", true); err != nil {
		t.Error(err)
	}
}

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// An upload whose source fails gives the source's error, not the guest's.
func TestSourceOfAnUploadFails(t *testing.T) {
	_, _, c := honest(t)
	tooLarge := fault.New(api.CodeTooLarge, "the body is too large")
	_, err := c.WriteFile(context.Background(), "/x", guest.WriteOptions{}, io.MultiReader(strings.NewReader("some"), broken{tooLarge}))
	if !errors.Is(err, tooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := c.Health(context.Background()); err != nil {
		t.Errorf("the link after that: %v", err)
	}
}

func TestRedial(t *testing.T) {
	g, l, c := honest(t)
	if c.Generation() != 3 {
		t.Errorf("generation %d", c.Generation())
	}
	g.BreakLink()
	<-c.Done()
	if _, err := c.Health(context.Background()); !errors.Is(err, guest.ErrLinkLost) {
		t.Errorf("a call on the broken link: %v", err)
	}
	next := client(t, l)
	if next == c {
		t.Fatal("the broken client was given again")
	}
	if _, err := next.Health(context.Background()); err != nil {
		t.Error(err)
	}
}

// Who asks for the link just after the guest has closed it is not given the one that is no more.
func TestNobodyIsGivenALinkThatHasHungUp(t *testing.T) {
	g, l, _ := honest(t)
	for i := range 100 {
		if _, err := client(t, l).Health(context.Background()); err != nil {
			t.Fatalf("after %d breaks: %v", i, err)
		}
		g.BreakLink()
	}
}

// The socket is made anew at the same place, as after a restart of the daemon.
func TestSocketMadeAnewIsFound(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	g := fake.NewGuest()
	dial(t, g, dir)
	client(t, l)
	l.Close() // takes the socket along
	again := listen(t, dir, 1)
	if _, err := client(t, again).Health(context.Background()); err != nil {
		t.Error(err)
	}
	// A daemon that was killed leaves its socket behind.
	if _, err := os.Stat(filepath.Join(dir, "link.sock")); err != nil {
		t.Fatal(err)
	}
	third := listen(t, dir, 1)
	g.BreakLink()
	if _, err := client(t, third).Health(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestLongPathsAreNoObstacle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 40))
	l := listen(t, dir, 1)
	dial(t, fake.NewGuest(), dir)
	client(t, l)
}

func TestSecondLinkIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	dial(t, fake.NewGuest(), dir)
	c := client(t, l)
	for range 3 {
		_, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: guestapi.Protocol})
		if err == nil || !strings.Contains(err.Error(), "live link") {
			t.Errorf("a second link: %v", err)
		}
	}
	if _, err := c.Health(context.Background()); err != nil {
		t.Errorf("the first link after that: %v", err)
	}
}

// A link whose guest is gone without a word gives way to the next.
func TestDeadLinkGivesWay(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	conn, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: guestapi.Protocol})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // it never answers anything
	dead := client(t, l)
	dial(t, fake.NewGuest(), dir)
	<-dead.Done()
	if _, err := client(t, l).Health(context.Background()); err != nil {
		t.Error(err)
	}
}

// A guest that says goodbye in HTTP/2 and keeps the connection is made to dial
// again.
func TestGoodbyeEndsTheConnection(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	conn, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: guestapi.Protocol})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := client(t, l)
	const settings, goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, settings+goAway); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(context.Background()); err == nil {
		t.Error("a call was answered")
	}
	waiting, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _, _ = l.Client(waiting) }()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the connection stays open: %v", err)
	}
}

func TestBadHandshakes(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	for _, say := range []string{
		"", "\n", "{}\n", "null\n", `{"protocol":99,"oldest":99}` + "\n", `{"protocol":-1}` + "\n", `{"protocol":"1"}` + "\n", `{"protocol":1}` + "\nmore",
		strings.Repeat("x", 1<<16), strings.Repeat("[", 4000) + "\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn := knock(t, dir)
		_, _ = conn.Write([]byte(say)) // the host may hang up in the middle
		_ = conn.(*net.UnixConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if c, err := l.Client(ctx); err == nil {
		t.Errorf("one of them became the link: %v", c)
	}
	dial(t, fake.NewGuest(), dir)
	client(t, l)
}

// An agent of the release before is served as it was; what it cannot do is
// refused with words, and is not asked of it.
func TestAgentOfTheVersionBefore(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 4)
	conn, welcome, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if welcome.Protocol != 1 || welcome.Generation != 4 {
		t.Errorf("it is welcomed with %+v, and would hang up", welcome)
	}
	var asked []string
	var mu sync.Mutex
	go fake.Serve(conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		_, _ = io.WriteString(w, `{"ready":true}`)
	}))
	c := client(t, l)
	if h, err := c.Health(context.Background()); err != nil || !h.Ready || c.Protocol() != 1 {
		t.Errorf("%+v, %v, protocol %d", h, err, c.Protocol())
	}
	for _, err := range c.Log(context.Background(), 0, false) {
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != api.CodeUnsupported || f.Hint == "" {
			t.Errorf("its log: %v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if strings.Join(asked, " ") != "/health" {
		t.Errorf("it was asked for %q", asked)
	}
}

// The newest version that both know is spoken; when there is none, whoever
// waits for the guest hears so at once instead of waiting in vain.
func TestVersionsAreNegotiated(t *testing.T) {
	for _, tc := range []struct{ newest, oldest, want int }{
		{guestapi.Protocol, guestapi.OldestProtocol, guestapi.Protocol},
		{guestapi.Protocol + 5, guestapi.Protocol, guestapi.Protocol},
		{guestapi.OldestProtocol, 0, guestapi.OldestProtocol},
		{guestapi.Protocol + 1, 0, 0}, {guestapi.Protocol + 2, guestapi.Protocol + 1, 0}, {guestapi.OldestProtocol - 1, 0, 0}, {-7, -9, 0},
	} {
		dir := t.TempDir()
		l := listen(t, dir, 1)
		waiting := make(chan error, 1)
		if tc.want == 0 {
			go func() {
				_, err := l.Client(context.Background())
				waiting <- err
			}()
		}
		conn, welcome, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: tc.newest, Oldest: tc.oldest})
		if tc.want > 0 {
			if err != nil || welcome.Protocol != tc.want {
				t.Errorf("%+v: %+v, %v", tc, welcome, err)
			} else if c := client(t, l); c.Protocol() != tc.want {
				t.Errorf("%+v: the host speaks %d", tc, c.Protocol())
			}
		} else {
			if err == nil || welcome.Protocol != guestapi.Protocol {
				t.Errorf("%+v: let in with %+v", tc, welcome)
			}
			for done := false; !done; { // it may have begun to wait after that
				select {
				case err := <-waiting:
					done = true
					if !errors.Is(err, guest.ErrProtocol) {
						t.Errorf("%+v: who waits hears %v", tc, err)
					}
				default:
					if c, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: tc.newest, Oldest: tc.oldest}); err == nil {
						c.Close()
					}
				}
			}
		}
		if conn != nil {
			conn.Close()
		}
	}
}

func TestLogOfTheGuest(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "7" {
			_, _ = io.WriteString(w, "\n{\"seq\":8,\"stream\":\"stdout\",\"line\":\"a\\u0007b\\nc\"}\n{\"seq\":10,\"stream\":\"x\",\"time\":\"2030-01-01T00:00:00Z\"}\n")
			return
		}
		for range 3 * guestapi.KeepLogLines { // more than there can be
			_, _ = io.WriteString(w, "\n")
		}
	})
	var got []guestapi.LogLine
	for l, err := range c.Log(context.Background(), 7, false) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l)
	}
	if len(got) != 2 || got[0].Line != "ab c" || got[0].Stream != "stdout" || got[1].Stream != "stderr" || got[1].Seq != 10 {
		t.Errorf("%+v", got)
	}
	for _, err := range c.Log(context.Background(), 0, false) {
		if err == nil || !strings.Contains(err.Error(), "makes no sense") {
			t.Errorf("an endless log: %v", err)
		}
	}
}

// The id of a request travels to the guest.
func TestRequestIDGoesAlong(t *testing.T) {
	got := make(chan string, 2)
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("X-Request-Id")
		_, _ = io.WriteString(w, "{}")
	})
	for _, id := range []string{"my-id", ""} {
		if _, err := c.Health(caller.With(context.Background(), caller.Caller{RequestID: id})); err != nil {
			t.Fatal(err)
		}
		if have := <-got; have != id {
			t.Errorf("%q arrived as %q", id, have)
		}
	}
}

func knock(t testing.TB, dir string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(dir, "link.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Whoever knocks and says nothing keeps nobody else out: the link is there
// before the silent ones are out of time, since the newest of them still wait.
func TestSilentKnockersKeepNobodyOut(t *testing.T) {
	dir := t.TempDir()
	l := listen(t, dir, 1)
	var last net.Conn
	for range 50 {
		last = knock(t, dir)
		defer last.Close()
	}
	dial(t, fake.NewGuest(), dir)
	client(t, l)
	raw, err := last.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if _, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("the last silent connection was closed before the link came: %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestCloseWakesWaiters(t *testing.T) {
	l := listen(t, t.TempDir(), 1)
	done := make(chan error)
	go func() {
		_, err := l.Client(context.Background())
		done <- err
	}()
	l.Close()
	if err := <-done; !errors.Is(err, guest.ErrLinkLost) {
		t.Errorf("%v", err)
	}
}

// hostile links a guest that answers with a handler.
func hostile(t testing.TB, h http.HandlerFunc) *guest.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "link-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l := listen(t, dir, 1)
	conn, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: guestapi.Protocol})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		fake.Serve(conn, h)
	}()
	t.Cleanup(func() { conn.Close(); <-served })
	return client(t, l)
}

// everyCall makes every call of a Client. None may hang or panic.
func everyCall(ctx context.Context, c *guest.Client) map[string]error {
	drain := func(e *guest.Events, err error) error {
		if err != nil {
			return err
		}
		defer e.Close()
		for {
			if _, err := e.Next(); err != nil {
				return err
			}
		}
	}
	out := map[string]error{}
	call := func(name string, f func() error) { out[name] = f() }
	call("Health", func() error { _, err := c.Health(ctx); return err })
	call("Assign", func() error { _, err := c.Assign(ctx, guestapi.AssignRequest{}); return err })
	call("Warm", func() error { _, err := c.Warm(ctx, guestapi.WarmRequest{}); return err })
	call("Contexts", func() error { _, err := c.Contexts(ctx); return err })
	call("CreateContext", func() error { _, err := c.CreateContext(ctx, api.CreateContextRequest{ID: "x"}); return err })
	call("Context", func() error { _, err := c.Context(ctx, "x"); return err })
	call("CloseContext", func() error { return c.CloseContext(ctx, "x") })
	call("InterruptContext", func() error { return c.InterruptContext(ctx, "x") })
	call("RestartContext", func() error { _, err := c.RestartContext(ctx, "x"); return err })
	call("Run", func() error { return drain(c.Run(ctx, "x", guestapi.RunRequest{ExecutionID: "e", Follow: true})) })
	call("Attach", func() error { return drain(c.Attach(ctx, "x", "e", 0, false)) })
	call("InterruptExecution", func() error { return c.InterruptExecution(ctx, "x", "e") })
	call("Processes", func() error { _, err := c.Processes(ctx); return err })
	call("StartProcess", func() error { _, err := c.StartProcess(ctx, guestapi.StartProcess{}); return err })
	call("Process", func() error { _, err := c.Process(ctx, 1); return err })
	call("ProcessEvents", func() error { return drain(c.ProcessEvents(ctx, 1, 0, true)) })
	call("WriteStdin", func() error { return c.WriteStdin(ctx, 1, strings.NewReader("x")) })
	call("CloseStdin", func() error { return c.CloseStdin(ctx, 1) })
	call("SignalProcess", func() error { return c.SignalProcess(ctx, 1, "TERM") })
	call("KillProcess", func() error { return c.KillProcess(ctx, 1) })
	call("ReadFile", func() error {
		f, err := c.ReadFile(ctx, "/x", "bytes=0-1")
		if err != nil {
			return err
		}
		defer f.Body.Close()
		_, err = io.Copy(io.Discard, io.LimitReader(f.Body, 1<<20))
		return err
	})
	call("WriteFile", func() error {
		_, err := c.WriteFile(ctx, "/x", guest.WriteOptions{Mode: "0644"}, strings.NewReader("x"))
		return err
	})
	call("RemoveFile", func() error { return c.RemoveFile(ctx, "/x", true) })
	call("Stat", func() error { _, err := c.Stat(ctx, "/x"); return err })
	call("ListDir", func() error { _, err := c.ListDir(ctx, "/x", "", 0); return err })
	call("Mkdir", func() error { return c.Mkdir(ctx, "/x") })
	call("Move", func() error { return c.Move(ctx, api.MoveRequest{}) })
	return out
}

// knownCodes are the kinds that a guest can bring about.
var knownCodes = map[api.Code]bool{
	api.CodeInvalid: true, api.CodeDenied: true, api.CodeNotFound: true, api.CodeConflict: true, api.CodeTooLarge: true, api.CodeRateLimited: true,
	api.CodeInternal: true, api.CodeUnsupported: true, api.CodeNoCapacity: true, api.CodeTimeout: true, api.CodeNoSpace: true,
}

func TestErrorsOfTheGuestHaveKnownKinds(t *testing.T) {
	for _, answer := range []struct {
		status int
		body   string
	}{
		{404, `{"error":"no","code":"not_found","hint":"h","field":"f"}`},
		{401, `{"error":"no","code":"unauthenticated"}`},
		{500, `{"error":"\u001b[31mred\u0000","code":"made_up"}`},
		{500, ``}, {500, `{`}, {302, ``}, {100 + 199, ``}, {400, `{"error":{"nested":1}}`},
		{400, `{"error":"` + strings.Repeat("x", 1<<20) + `","code":"invalid"}`},
	} {
		c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		})
		for name, err := range everyCall(context.Background(), c) {
			if answer.status == 299 {
				continue // a success with nothing in it
			}
			if err == nil || !knownCodes[fault.CodeOf(err)] || len(err.Error()) > 10<<10 || strings.ContainsAny(err.Error(), "\x1b\x00") {
				t.Errorf("%d %.60s: %s gives %.200v", answer.status, answer.body, name, err)
			}
			if answer.status == 404 && !errors.Is(err, fault.NotFound) {
				t.Errorf("%s: %v is not a not_found", name, err)
			}
		}
	}
}

// A guest that answers without end, in any way, is cut off.
func TestEndlessAnswersAreCut(t *testing.T) {
	endless := strings.Repeat("x", 64<<10)
	for name, start := range map[string]string{
		"garbage": "", "a string": `"`, "an array": "[", "blank lines": "\n", "an event": `{"seq":1,"type":"stdout","text":"`, "nesting": strings.Repeat("[", 64<<10),
	} {
		t.Run(name, func(t *testing.T) {
			piece := endless
			if name == "blank lines" {
				piece = strings.Repeat("\n", 64<<10)
			}
			if name == "nesting" {
				piece = start
			}
			var sent atomic.Int64
			c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/files") && r.Method == "GET" && r.URL.Path == "/files" {
					w.Header().Set("Content-Range", "bytes 0-1/2")
					w.WriteHeader(206)
				}
				_, _ = io.WriteString(w, start)
				for {
					n, err := io.WriteString(w, piece)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // only for the blank lines
			defer cancel()
			for _, call := range []string{"Contexts", "Run", "Stat"} {
				var err error
				switch call {
				case "Contexts":
					_, err = c.Contexts(ctx)
				case "Stat":
					_, err = c.Stat(ctx, "/x")
				case "Run":
					var e *guest.Events
					if e, err = c.Run(ctx, "x", guestapi.RunRequest{ExecutionID: "e"}); err == nil {
						_, err = e.Next()
						e.Close()
					}
				}
				if err == nil {
					t.Errorf("%s took it", call)
				}
			}
			if most := int64(3*(guestapi.MaxEventLine+guestapi.MaxJSONBody) + 64<<20); name != "blank lines" && sent.Load() > most {
				t.Errorf("%d bytes were taken", sent.Load())
			}
		})
	}
}

func TestSilentGuestIsLeft(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for name, err := range everyCall(ctx, c) {
		if err == nil {
			t.Errorf("%s succeeded", name)
		}
	}
}

func TestCallsAtOnceAreBounded(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	limited := 0
	for range 300 {
		wg.Go(func() {
			_, err := c.Health(ctx)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, fault.RateLimited) {
				limited++
				if limited == 44 { // of 300 calls 256 may be in progress
					cancel()
				}
			}
		})
	}
	wg.Wait()
	if limited != 44 {
		t.Errorf("%d of 300 were refused", limited)
	}
}

func TestLyingEventsAreRefused(t *testing.T) {
	for _, lines := range []string{
		`{"seq":0,"type":"stdout","text":"x"}`,
		`{"seq":-1,"type":"stdout"}`,
		`{"seq":1,"type":"stdout"}` + "\n" + `{"seq":1,"type":"stdout"}`,
		`{"seq":5,"type":"stdout"}` + "\n" + `{"seq":4,"type":"end","execution":{"end":"ok"}}`,
		`{"seq":1,"type":"made_up"}`,
		`{"seq":1,"type":"end"}`,
		`{"seq":1,"type":"end","execution":{"end":"made_up"}}`,
		`{"seq":1,"type":"exit"}`,
		`{"seq":1,"type":"gap","stream":"../x","dropped":1}`,
		`{"seq":1,"type":"result"}`,
		`{"seq":1,"type":"result","data":{"":"x"}}`,
		`{"seq":1,"type":"result","data":{"text/plain":"x"},"metadata":{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}}`,
		`{"seq":1e400,"type":"stdout"}`,
		`[]`, `null`, `"x"`, `{"seq":"1"}`,
		`{"seq":1,"type":"stdout"}`, // and then nothing
	} {
		c := hostile(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, lines) })
		e, err := c.Run(context.Background(), "x", guestapi.RunRequest{ExecutionID: "e"})
		if err != nil {
			t.Errorf("%.80s: %v", lines, err)
			continue
		}
		for err == nil {
			_, err = e.Next()
		}
		if err == io.EOF {
			t.Errorf("taken for a whole stream: %.80s", lines)
		}
		e.Close()
	}
}

// What an event may hold beside the fields of its type does not get through.
// Streams whose readers are slow hold an event each. Of a guest that sends big
// ones only few may be held at once.
func TestFewBigEventsAreHeldAtOnce(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "{\"seq\":1,\"type\":\"stdout\",\"text\":%q}\n", strings.Repeat("x", 1<<20))
		fmt.Fprintln(w, `{"seq":2,"type":"stdout","text":"small"}`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var streams []*guest.Events
	for range 3 {
		e, err := c.Attach(ctx, "c", "e", 0, true)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		streams = append(streams, e)
	}
	for _, e := range streams[:2] {
		if _, err := e.Next(); err != nil {
			t.Fatal(err)
		}
	}
	third := make(chan error, 1)
	go func() { _, err := streams[2].Next(); third <- err }()
	select {
	case err := <-third:
		t.Fatalf("a third big event was taken: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if e, err := streams[0].Next(); err != nil || e.Text != "small" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := <-third; err != nil {
		t.Errorf("after one was let go of: %v", err)
	}
}

func TestEventsHoldOnlyTheirFields(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"seq":1,"type":"stdout","text":"x","execution":{"end":"ok"},"exit":{"exit_code":1},"pid":7,"prompt":"p"}`)
		fmt.Fprintln(w, `{"seq":2,"type":"end","execution":{"end":"ok","stdout":"smuggled","results":[{"a":"b"}],"duration_ms":-1,"stdout_dropped":-5,"step":"nonsense","execution_id":"../x"}}`)
		fmt.Fprintln(w, `{"seq":3,"type":"stdout","text":"after the end"}`)
	})
	e, err := c.Run(context.Background(), "x", guestapi.RunRequest{ExecutionID: "e"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if a, err := e.Next(); err != nil || a.Text != "x" || a.Execution != nil || a.Exit != nil || a.PID != 0 || a.Prompt != "" {
		t.Errorf("%+v, %v", a, err)
	}
	if b, err := e.Next(); err != nil || b.Execution.Stdout != "" || b.Execution.Results != nil || b.Execution.DurationMS != 0 || b.Execution.StdoutDropped != 0 || b.Execution.Step != "" || b.Execution.ExecutionID != "" {
		t.Errorf("%+v, %v", b.Execution, err)
	}
	if _, err := e.Next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// FuzzAnswers has a guest answer anything to everything.
func FuzzAnswers(f *testing.F) {
	f.Add(200, []byte(`{"ready":true}`), "bytes 0-1/2")
	f.Add(206, []byte(`[{"id":"x","state":"idle"}]`), "bytes 5-1/2")
	f.Add(200, []byte("{\"seq\":1,\"type\":\"stdout\",\"text\":\"x\"}\n\n{\"seq\":2,\"type\":\"end\",\"execution\":{\"end\":\"ok\"}}\n"), "")
	f.Add(404, []byte(`{"error":"x","code":"not_found"}`), "\xff")
	f.Add(200, []byte(`{"steps":[{"name":"x","ok":false}],"pid":1,"cmd":["a"],"entries":[{"name":"a"}]}`), "bytes -1-2/x")
	var mu sync.Mutex
	status, body, header := 200, []byte{}, ""
	c := hostile(f, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		s, b, h := status, body, header
		mu.Unlock()
		w.Header()["Content-Range"] = []string{h}
		w.WriteHeader(s)
		_, _ = w.Write(b)
	})
	f.Fuzz(func(t *testing.T, s int, b []byte, h string) {
		mu.Lock()
		status, body, header = 200+(s%400+400)%400, b, strings.Map(printable, h)
		mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for name, err := range everyCall(ctx, c) {
			if err != nil && err != io.EOF && !knownCodes[fault.CodeOf(err)] {
				t.Errorf("%s: %v", name, err)
			}
			if ctx.Err() != nil {
				t.Fatalf("%s hangs", name)
			}
		}
	})
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

// FuzzConnection has a guest speak anything after the handshake instead of
// HTTP/2. The host may give up, but never panics or hangs.
func FuzzConnection(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\n"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00"))                                             // SETTINGS
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping")) // and PING
	f.Add([]byte("\xff\xff\xff\x01\x05\x00\x00\x00\x01"))
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01\x01\x05\x00\x00\x00\x01\x88\x00\x00\x02\x00\x01\x00\x00\x00\x01{}")) // HEADERS :status 200, DATA {}
	dir, err := os.MkdirTemp("", "link-")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	l := listen(f, dir, 1)
	f.Fuzz(func(t *testing.T, say []byte) {
		conn, _, err := fake.Dial(context.Background(), dir, guestapi.Hello{Protocol: guestapi.Protocol})
		if err != nil {
			t.Skip(err) // the last one is not gone yet
		}
		c := client(t, l)
		go func() {
			_, _ = conn.Write(say)
			_, _ = io.CopyN(io.Discard, conn, 1<<10)
			conn.Close()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, _ = c.Health(ctx)
		c.Close()
		<-c.Done()
	})
}
