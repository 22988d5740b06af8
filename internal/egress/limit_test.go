package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pandastack/pandastack/api"
)

// opened is a sandbox whose TLS to example.com is opened, and a program in it.
func opened(t *testing.T, w *world, flows int) (*Sandbox, *http.Transport) {
	t.Helper()
	p, err := Compile(api.NetworkPolicy{Allow: []api.NetworkRule{{Host: "example.com", Paths: []string{"/"}}}, Flows: flows}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.engine().Open(Identity{}, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Resolve(context.Background(), ask("example.com.", dnsmessage.TypeA, dnsmessage.ClassINET, false), false)
	roots := w.roots.Clone()
	roots.AppendCertsFromPEM(w.own.PEM())
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		f, err := s.Admit(ctx, netip.MustParseAddrPort("198.18.1.0:"+port))
		if err != nil {
			return nil, err
		}
		outside, inside := pair(t)
		go f.Serve(context.Background(), inside)
		return outside, nil
	}}
	t.Cleanup(func() { tr.CloseIdleConnections(); s.Close() })
	return s, tr
}

func get(t *testing.T, tr *http.Transport, path string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tr.RoundTrip(req)
	if err == nil {
		t.Cleanup(func() { res.Body.Close() })
	}
	return res, err
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, wait)
		}
	}
}

// One connection that carries many requests counts for as many.
func TestRequestsAtOnce(t *testing.T) {
	w := newWorld(t)
	s, tr := opened(t, w, 2)
	var held []*http.Response
	for range 2 {
		res, err := get(t, tr, "/hold")
		if err != nil || res.ProtoMajor != 2 {
			t.Fatal(res, err)
		}
		held = append(held, res)
	}
	if res, err := get(t, tr, "/small"); err == nil {
		t.Errorf("one more is answered: %s", res.Status)
	}
	if last := w.take(); !strings.Contains(last[len(last)-1].Reason, "too many requests at once") {
		t.Errorf("the audit says %+v", last)
	}
	if len(w.hits) != 1 || w.hits[0].Limit != "network.flows" {
		t.Errorf("told of %+v", w.hits)
	}
	held[0].Body.Close()
	until(t, "the first has ended", func() bool { return s.meter.requests.Load() == 1 })
	if res, err := get(t, tr, "/small"); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("then %v, %v", res, err)
	}
}

// What hosts send and nobody inside takes waits with them, and not here.
func TestAnswersThatNobodyTakes(t *testing.T) {
	w := newWorld(t)
	s, tr := opened(t, w, 0)
	tr.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10} // that the program keeps
	before := forever.Load()
	for range 20 {
		if _, err := get(t, tr, "/forever"); err != nil {
			t.Fatal(err)
		}
	}
	last, since := forever.Load(), time.Now()
	until(t, "nothing more is sent", func() bool {
		if now := forever.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	if sent := last - before; sent > window1+32<<20 { // the rest is in sockets of this test
		t.Errorf("%d MB were sent", sent>>20)
	}
	if left := s.meter.left; left != windows-window1 {
		t.Errorf("%d bytes of windows are left", left)
	}
}

// More connections than a few speak HTTP/1.1, or are refused.
func TestConnectionsThatSpeakHTTP2(t *testing.T) {
	w := newWorld(t)
	s, tr := opened(t, w, 0)
	s.meter.http2.Store(maxHTTP2 - 1)
	other := tr.Clone()
	for i, tr := range []*http.Transport{tr, other} {
		res, err := get(t, tr, "/small")
		if err != nil || res.ProtoMajor != 2-i {
			t.Fatal(res, err)
		}
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
	}
	tr.CloseIdleConnections()
	other.CloseIdleConnections()
	until(t, "they have ended", func() bool { return s.meter.http2.Load() == maxHTTP2-1 && s.meter.left == windows })

	s.meter.http2.Store(maxHTTP2)
	f, err := s.Admit(t.Context(), netip.MustParseAddrPort("198.18.1.0:80"))
	if err != nil {
		t.Fatal(err)
	}
	outside, inside := pair(t)
	go f.Serve(context.Background(), inside)
	_, _ = outside.Write(prefaceH2)
	if b, err := io.ReadAll(outside); len(b) > 0 {
		t.Errorf("one more without TLS is answered %q, %v", b, err)
	}
}

// A connection that has little to say holds little, and only so many hold much.
func TestChunks(t *testing.T) {
	p, err := Compile(api.NetworkPolicy{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := newMeter(p, 0, time.Now())
	var asked []int
	sizes := []int{10, smallChunk, chunk, 100, 1}
	err = m.move(io.Discard, reader(func(b []byte) (int, error) {
		asked = append(asked, len(b))
		if len(sizes) == 0 {
			return 0, io.EOF
		}
		n := min(sizes[0], len(b))
		sizes = sizes[1:]
		return n, nil
	}))
	if want := []int{smallChunk, smallChunk, chunk, chunk, smallChunk, smallChunk}; err != nil || !slices.Equal(asked, want) {
		t.Errorf("it reads into %d, and is to read into %d: %v", asked, want, err)
	}
	if len(m.large) != 0 {
		t.Errorf("%d are still lent", len(m.large))
	}
	var lent [][]byte
	for range maxLarge {
		lent = append(lent, m.Get())
	}
	if b := m.Get(); len(b) != smallChunk {
		t.Errorf("one more has %d bytes", len(b))
	}
	for _, b := range lent {
		m.Put(b)
	}
	if b := m.Get(); len(b) != chunk {
		t.Errorf("given back, the next has %d bytes", len(b))
	}
}

type reader func([]byte) (int, error)

func (r reader) Read(b []byte) (int, error) { return r(b) }

// A limit is told of once a minute, with how often it was met.
func TestLimitsAreTold(t *testing.T) {
	w := newWorld(t)
	s, _ := opened(t, w, 1)
	for range 3 {
		s.limited(limitNames, "x")
	}
	s.Refused("tcp", netip.MustParseAddrPort("198.18.1.0:443"), TooMany)
	w.now = w.now.Add(hitAgain)
	s.limited(limitNames, "x")
	want := []Hit{{limitNames, 1, "x"}, {limitFlows, 1, TooMany}, {limitNames, 4, "x"}}
	if !slices.Equal(w.hits, want) {
		t.Errorf("told of %+v, not %+v", w.hits, want)
	}
}
