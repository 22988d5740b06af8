package netstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/egress"
)

// The engine that decides for sandboxes, above this stack: what programs inside
// see of both together.
func TestEngineOverTheStack(t *testing.T) {
	w := newWorld(t)
	h := newHosts(t)
	s := h.open(t, api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com"), api.Rule("other.example")}})
	w.ours.SetGate(s)
	example, other := h.address(t, s, "example.com"), h.address(t, s, "other.example")

	t.Run("requests on a kept connection", func(t *testing.T) {
		c := w.must(example + ":80")
		defer c.Close()
		r := bufio.NewReader(c)
		for i := range 3 {
			fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: example.com\r\n\r\n", i)
			if got, want := answered(t, r), fmt.Sprintf("/%d at example.com", i); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
		if got := answered(t, r); !strings.HasPrefix(got, "blocked by policy: example.com: ") {
			t.Errorf("another site on the same connection: %q", got)
		}
	})
	t.Run("each direction ends by itself", func(t *testing.T) {
		c := w.must(example + ":5432")
		defer c.Close()
		sent := strings.Repeat("all of it ", 100_000)
		go func() {
			_, _ = io.WriteString(c, sent)
			_ = c.CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != fmt.Sprintf("got %d bytes", len(sent)) {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("what breaks off does not look whole", func(t *testing.T) {
		c := w.must(example + ":9")
		defer c.Close()
		half := make([]byte, len("the first half"))
		if _, err := io.ReadFull(c, half); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "now")
		if rest, err := io.ReadAll(c); len(rest) > 0 || err == nil {
			t.Errorf("then %q, %v: it looks like all", rest, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, to := range []string{"8.8.8.8:443", "169.254.169.254:443", "198.18.200.1:443", example + ":1", "[fd70:616e:6461::3]:5432"} {
			if c, err := w.dial(to); err == nil {
				c.Close()
				t.Errorf("%s connects", to)
			} else if !strings.Contains(err.Error(), "refused") {
				t.Errorf("%s: %v", to, err)
			}
		}
	})
	t.Run("a policy that changes", func(t *testing.T) {
		stays, goes := w.must(example+":5432"), w.must(other+":5432")
		defer stays.Close()
		defer goes.Close()
		p, err := egress.Compile(api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com")}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SetPolicy(p); err != nil {
			t.Fatal(err)
		}
		_ = goes.SetReadDeadline(time.Now().Add(patience))
		if _, err := goes.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("what is no longer allowed was not reset: %v", err)
		}
		fmt.Fprint(stays, "hello")
		_ = stays.CloseWrite()
		if got, err := io.ReadAll(stays); string(got) != "got 5 bytes" {
			t.Errorf("what still is: %q, %v", got, err)
		}
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if c, err := w.dial(example + ":5432"); err == nil {
		c.Close()
		t.Error("a closed gate lets through")
	}
}

// hosts is an internet of one public address, which loopback listeners stand for.
type hosts struct {
	at map[string]string // port → listener
}

func newHosts(t *testing.T) *hosts {
	t.Helper()
	h := &hosts{at: map[string]string{}}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	for port, serve := range map[string]func(net.Conn){
		"5432": func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			fmt.Fprintf(c, "got %d bytes", n)
		},
		"9": func(c net.Conn) {
			fmt.Fprint(c, "the first half")
			_ = c.(*net.TCPConn).SetLinger(0) // reset, when it is closed
			_, _ = c.Read(make([]byte, 1))
		},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		h.at[port] = l.Addr().String()
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					serve(c)
					c.Close()
				})
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s at %s", r.URL.Path, r.Host) })}
	t.Cleanup(func() { srv.Close() })
	go func() { _ = srv.Serve(l) }()
	h.at["80"] = l.Addr().String()
	return h
}

func (h *hosts) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

func (h *hosts) open(t *testing.T, p api.NetworkPolicy) *egress.Sandbox {
	t.Helper()
	c, err := egress.Compile(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := egress.New(egress.Options{Resolver: h, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil || h.at[port] == "" {
			return nil, errors.New("nobody is there")
		}
		return (&net.Dialer{}).DialContext(ctx, network, h.at[port])
	}})
	s, err := e.Open(egress.Identity{Sandbox: "sb"}, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// address asks for a name as a program inside would.
func (h *hosts) address(t *testing.T, s *egress.Sandbox, name string) string {
	t.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(s.Resolve(context.Background(), b, false)); err != nil || len(m.Answers) != 1 {
		t.Fatalf("%s: %+v, %v", name, m, err)
	}
	return netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A).String()
}

func answered(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
