package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd"
)

// agent links the real agent, which runs on this machine.
func agent(t *testing.T) *guest.Client {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"etc", "link"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, filepath.Join(dir, "link"), 1)
	a, err := guestd.New(guestd.Config{
		Link: filepath.Join(dir, "link", filepath.Base(guestapi.LinkSocket)), Programs: dir, Workspace: filepath.Join(dir, "w"), OutputDir: filepath.Join(dir, "log"),
		GenerationFile: filepath.Join(dir, "generation"), Etc: filepath.Join(dir, "etc"), ProcNet: "/proc/net",
		Console: guestd.NewConsole(null), Log: slog.New(slog.DiscardHandler), Memory: func() (int64, int64, error) { return 0, 1 << 40, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended; null.Close() })
	return client(t, l)
}

// serve listens on a free port and serves each connection with f.
func serve(t *testing.T, f func(conn *net.TCPConn)) (port int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go f(conn.(*net.TCPConn))
		}
	}()
	return ln.Addr().(*net.TCPAddr).Port
}

func dialPort(t *testing.T, c *guest.Client, port int) *guest.Flow {
	t.Helper()
	f, err := c.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFlowsCarryBytesBothWays(t *testing.T) {
	c := agent(t)
	port := serve(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn); conn.Close() })
	f := dialPort(t, c, port)
	sent := make([]byte, 5<<20)
	rand.Read(sent)
	go func() {
		_, _ = f.Write(sent)
		_ = f.CloseWrite()
	}()
	got, err := io.ReadAll(f)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Errorf("%d bytes came back of %d: %v", len(got), len(sent), err)
	}
}

// A program that has said all may still listen.
func TestFlowsEndOneSideAtATime(t *testing.T) {
	c := agent(t)
	heard := make(chan string, 1)
	port := serve(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, "all I say")
		_ = conn.CloseWrite()
		b, _ := io.ReadAll(conn)
		heard <- string(b)
		conn.Close()
	})
	f := dialPort(t, c, port)
	if b, err := io.ReadAll(f); string(b) != "all I say" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	big := bytes.Repeat([]byte("x"), 3*guestapi.FlowWindow)
	if _, err := f.Write(big); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := <-heard; got != string(big) {
		t.Errorf("the program heard %d bytes", len(got))
	}
}

func TestNobodyListens(t *testing.T) {
	c := agent(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	list, err := c.Listeners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, l := range list {
		found = found || l == guestapi.Listener{Port: port, Address: "127.0.0.1"}
	}
	if !found {
		t.Errorf("port %d is not among %v", port, list)
	}
	ln.Close()
	if _, err := c.Dial(t.Context(), port); !errors.Is(err, guest.ErrNotListening) || !errors.Is(err, fault.Conflict) {
		t.Errorf("%v", err)
	}
	if _, err := c.Health(t.Context()); err != nil {
		t.Errorf("the link: %v", err)
	}
}

// Programs that do not read hold up themselves and nobody else: neither the
// calls on the same link, nor uploads.
func TestFlowsThatStandStillHoldUpNobody(t *testing.T) {
	c := agent(t)
	stop := make(chan struct{})
	defer close(stop)
	port := serve(t, func(conn *net.TCPConn) {
		_ = conn.SetReadBuffer(1 << 10)
		<-stop
		conn.Close()
	})
	for range guestapi.MaxFlows {
		f := dialPort(t, c, port)
		go func() { _, _ = f.Write(make([]byte, 8<<20)) }()
	}
	if _, err := c.Dial(t.Context(), port); !errors.Is(err, fault.RateLimited) {
		t.Errorf("one more than there may be: %v", err)
	}
	path := filepath.Join(t.TempDir(), "f")
	if _, err := c.WriteFile(t.Context(), path, guest.WriteOptions{}, bytes.NewReader(make([]byte, 8<<20))); err != nil {
		t.Errorf("an upload: %v", err)
	}
}

// A connection that is reset is not taken for one that has ended.
func TestResetFlows(t *testing.T) {
	c := agent(t)
	port := serve(t, func(conn *net.TCPConn) {
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_ = conn.SetLinger(0)
		conn.Close()
	})
	f := dialPort(t, c, port)
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if _, err := c.Health(t.Context()); err != nil {
		t.Errorf("the link: %v", err)
	}
}

// When the host lets go, the program sees it.
func TestClosedFlowsReachTheProgram(t *testing.T) {
	c := agent(t)
	over := make(chan error, 1)
	port := serve(t, func(conn *net.TCPConn) { _, err := io.Copy(io.Discard, conn); over <- err })
	f := dialPort(t, c, port)
	f.Close()
	select {
	case <-over:
	case <-time.After(20 * time.Second):
		t.Fatal("the program still has its connection")
	}
	if _, err := f.Read(make([]byte, 1)); err == nil {
		t.Error("a closed flow can be read")
	}
	if _, err := f.Write(make([]byte, 1)); err == nil {
		t.Error("a closed flow can be written")
	}
}

// A link that breaks breaks its flows, for those who read and those who write.
func TestFlowsEndWithTheLink(t *testing.T) {
	c := agent(t)
	port := serve(t, func(*net.TCPConn) {})
	f := dialPort(t, c, port)
	read, wrote := make(chan error, 1), make(chan error, 1)
	go func() { _, err := f.Read(make([]byte, 1)); read <- err }()
	go func() { _, err := f.Write(make([]byte, 64<<20)); wrote <- err }()
	c.Close()
	for _, ch := range []chan error{read, wrote} {
		select {
		case err := <-ch:
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%v", err)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("somebody waits still")
		}
	}
}

// What a guest may say in a flow that is a lie.
func TestLyingFlowsAreCut(t *testing.T) {
	frame := func(kind byte, n int) []byte {
		b := make([]byte, guestapi.FlowHeader)
		guestapi.PutFlowHeader(b, kind, n)
		return b
	}
	for name, say := range map[string][]byte{
		"an unknown kind":          frame(9, 0),
		"an end with a length":     frame(guestapi.FlowEOF, 5),
		"more taken than was sent": frame(guestapi.FlowTaken, 1),
		"half a head":              {0, 0},
		"half a frame":             append(frame(guestapi.FlowData, 10), "half"...),
		"nothing":                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				_, _ = w.Write(say)
			})
			f := dialPort(t, c, 1)
			if b, err := io.ReadAll(f); err == nil {
				t.Errorf("taken for a whole answer: %q", b)
			}
		})
	}
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a guest that does not answer: %v", err)
	}
}

// A guest that never stops talking makes us hold no more than a window.
func TestEndlessFlowsAreNotHeld(t *testing.T) {
	sent := make(chan int, 1)
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		total, b := 0, make([]byte, 64<<10)
		guestapi.PutFlowHeader(b, guestapi.FlowData, len(b)-guestapi.FlowHeader)
		for {
			n, err := w.Write(b)
			total += n
			if err != nil {
				sent <- total
				return
			}
		}
	})
	f := dialPort(t, c, 1)
	if _, err := io.ReadFull(f, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if n := <-sent; n > 8<<20 {
		t.Errorf("it could say %d bytes that nobody had asked for", n)
	}
}

func FuzzFlow(f *testing.F) {
	f.Add([]byte{guestapi.FlowData, 0, 0, 1, 'x', guestapi.FlowEOF, 0, 0, 0})
	f.Add([]byte{guestapi.FlowTaken, 0, 0, 1})
	f.Fuzz(func(t *testing.T, say []byte) {
		r := bytes.NewReader(say)
		for {
			kind, n, err := guestapi.ReadFlowHeader(r)
			if err != nil {
				return
			}
			if kind > guestapi.FlowTaken || n < 0 || n > guestapi.MaxFrame || kind == guestapi.FlowEOF && n != 0 {
				t.Fatalf("kind %d, length %d", kind, n)
			}
			if kind == guestapi.FlowData {
				_, _ = io.CopyN(io.Discard, r, int64(n))
			}
		}
	})
}
