package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http/httpproxy"

	"github.com/pandastack/pandastack/api"
)

// world is an internet in which every address is a listener on loopback.
type world struct {
	t       testing.TB
	names   map[string][]string // a name's addresses, by look-up; the last one stays
	serving map[string]string   // "address:port" → the listener that stands for it
	ca      *x509.Certificate   // of the hosts
	roots   *x509.CertPool
	own     *CA // of the engine
	proxy   *httpproxy.Config
	vault   map[string]string

	now time.Time

	mu     sync.Mutex
	asked  map[string]int // look-ups
	dials  []string
	lines  []api.NetworkEvent
	hits   []Hit
	tunnel []string // what the proxy was asked for
}

const v6 = "2606:2800:220:1::1"

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, now: time.Now(), serving: map[string]string{}, asked: map[string]int{}, vault: map[string]string{"kept": "Bearer from-the-store", "broken": "a\r\nb"}}
	public := "93.184.216.34"
	w.names = map[string][]string{
		"example.com": {public}, "www.example.com": {public}, "api.example.com": {public}, "deep.api.example.com": {public}, "other.example": {public},
		"xn--bcher-kva.example": {public}, "db_1.example": {public}, "redirect.example": {public},
		"v6.example": {v6}, "both.example": {"2606:2800:220:1::dead " + public}, "proxy.example": {"93.184.216.60"},
		"mixed.example": {"10.1.2.3 " + public}, "internal.example": {"10.1.2.3"}, "loop.example": {"127.0.0.1"}, "loop6.example": {"::1"},
		"mapped.example": {"::ffff:127.0.0.1"}, "meta.example": {"169.254.169.254"}, "azure.example": {"168.63.129.16"}, "alibaba.example": {"100.100.100.200"},
		"ula.example": {"fd00::1"}, "meta6.example": {"fd00:ec2::254"}, "nat64.example": {"64:ff9b::7f00:1"}, "sixtofour.example": {"2002:7f00:1::"}, "zero.example": {"0.0.0.0"},
		"link.example": {"fe80::1"}, "multicast.example": {"224.0.0.251"}, "cgnat.example": {"100.64.0.9"}, "madeup.example": {"198.18.1.0"}, "compat.example": {"::7f00:1"},
		"rebind.example": {public, "127.0.0.1"}, "host.example": {"93.184.216.99"}, "daemon.example": {"10.9.9.9"}, "down.example": {"93.184.216.50"}, "wrongcert.example": {public},
		"metadata.google.internal": {"169.254.169.254"}, "169-254-169-254.nip.example": {"169.254.169.254"}, "broadcast.example": {"255.255.255.255"},
	}
	cert := w.certify()
	plain := w.listen(func(l net.Listener) { w.serve(l) })
	secure := w.listen(func(l net.Listener) {
		w.serve(tls.NewListener(l, &tls.Config{GetCertificate: cert, NextProtos: []string{"h2", "http/1.1"}}))
	})
	secureProxy := w.listen(func(l net.Listener) { w.relays(tls.NewListener(l, &tls.Config{GetCertificate: cert})) })
	w.serving["proxy.example:3129"], w.serving["proxy.example:80"] = secureProxy, plain
	banner, echo, proxy := w.listen(speaksFirst), w.listen(echoes), w.listen(w.relays)
	for _, host := range []string{public, v6, "10.1.2.3", "127.0.0.1", "::1", "169.254.169.254", "168.63.129.16", "100.100.100.200", "fd00::1", "fd00:ec2::254", "0.0.0.0",
		"64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1", "224.0.0.251", "100.64.0.9", "198.18.1.0", "::7f00:1", "93.184.216.99", "10.9.9.9", "8.8.8.8", "93.184.216.60"} {
		for port, l := range map[int]string{80: plain, 443: secure, 8443: secure, 8080: plain, 9090: plain, 25: banner, 22: banner, 5432: echo, 3128: proxy, 1080: proxy} {
			w.serving[net.JoinHostPort(host, strconv.Itoa(port))] = l
		}
	}
	ca, err := LoadCA(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	w.own = ca
	return w
}

func (w *world) engine() *Engine {
	return New(Options{
		Resolver: w, Dial: w.dial, CA: w.own, Roots: w.roots, Proxy: w.proxy, IPv6: true,
		Own: func() []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:8080"), netip.MustParseAddrPort("127.0.0.1:9090")}
		},
		HostAddrs: func() ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr("93.184.216.99")}, nil
		},
		Secret: func(_ context.Context, workspace, ref string) (string, error) {
			if v, ok := w.vault[ref]; ok && workspace == "team" {
				return v, nil
			}
			return "", errors.New("no secret " + ref)
		},
		Now: func() time.Time { return w.now },
		Limited: func(_ Identity, h Hit) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.hits = append(w.hits, h)
		},
		Audit: func(e api.NetworkEvent) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lines = append(w.lines, e)
		},
	})
}

// LookupNetIP answers from the names of this world.
func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	host = strings.TrimSuffix(host, ".")
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.names[host]
	if len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	answer := answers[min(w.asked[host], len(answers)-1)]
	w.asked[host]++
	var out []netip.Addr
	for s := range strings.FieldsSeq(answer) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, address)
	at := w.serving[address]
	w.mu.Unlock()
	if at == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", at)
}

// take gives the lines of the audit since it was last called.
func (w *world) take() []api.NetworkEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.lines
	w.lines = nil
	return out
}

func (w *world) listen(serve func(net.Listener)) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { l.Close() })
	go serve(l)
	return l.Addr().String()
}

// certify makes a certificate authority of the hosts.
func (w *world) certify() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	t.Subject.CommonName = "the world"
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.ca, err = x509.ParseCertificate(der); err != nil {
		w.t.Fatal(err)
	}
	w.roots = x509.NewCertPool()
	w.roots.AddCert(w.ca)
	return func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name := h.ServerName
		if name == "wrongcert.example" || name == "" {
			name = "somebody.else"
		}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: w.ca.NotBefore, NotAfter: w.ca.NotAfter, DNSNames: []string{name}}
		der, err := x509.CreateCertificate(rand.Reader, leaf, w.ca, key.Public(), key)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
	}
}

// serve answers HTTP with what it was asked.
func (w *world) serve(l net.Listener) {
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Protocols: protocols(true, true), TLSConfig: &tls.Config{NextProtos: alpn}, Handler: http.HandlerFunc(answer)}
	_ = srv.Serve(l)
}

// forever counts what was sent of /forever.
var forever atomic.Int64

func answer(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/to-other":
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		http.Redirect(rw, r, scheme+"://other.example/landed", http.StatusFound)
		return
	case "/socket":
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		kind, b, err := c.Read(r.Context())
		if err == nil {
			_ = c.Write(r.Context(), kind, append([]byte("auth="+r.Header.Get("Authorization")+" "), b...))
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
		return
	case "/cut":
		rw.Header().Set("Content-Length", "100")
		_, _ = rw.Write([]byte("only this"))
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	case "/alt":
		rw.Header().Set("Alt-Svc", `h3=":443"`)
	case "/huge":
		b := make([]byte, 1<<20)
		for range 64 {
			_, _ = rw.Write(b)
		}
		return
	case "/hold":
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		return
	case "/forever":
		b := make([]byte, 1<<16)
		for {
			n, err := rw.Write(b)
			forever.Add(int64(n))
			if err != nil {
				return
			}
		}
	case "/big":
		_, _ = rw.Write(make([]byte, 1<<20))
		return
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(rw, "%s %s host=%s %s", r.Method, r.URL.RequestURI(), r.Host, r.Proto)
	var names []string
	for name := range r.Header {
		if !slices.Contains([]string{"User-Agent", "Accept-Encoding", "Content-Length"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(rw, " %s=%q", name, strings.Join(r.Header[name], ", "))
	}
	if len(body) > 0 {
		fmt.Fprintf(rw, " body=%s", body)
	}
}

func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// speaksFirst is a mail server.
func speaksFirst(l net.Listener) {
	accept(l, func(c net.Conn) {
		fmt.Fprint(c, "220 hello\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		fmt.Fprintf(c, "250 %s\r\n", strings.TrimSpace(line))
	})
}

// echoes sends back what comes, and says when it has all.
func echoes(l net.Listener) {
	accept(l, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "got %q", b)
	})
}

// relays is a proxy for CONNECT and for plain requests.
func (w *world) relays(l net.Listener) {
	accept(l, func(c net.Conn) {
		in := bufio.NewReader(c)
		if b, err := in.Peek(1); err == nil && b[0] == 5 {
			w.socks(c, in)
			return
		}
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		w.mu.Lock()
		w.tunnel = append(w.tunnel, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		at := w.serving[net.JoinHostPort("93.184.216.34", r.URL.Port())]
		w.mu.Unlock()
		if r.Method != http.MethodConnect {
			body := "the proxy fetched " + r.RequestURI
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			return
		}
		if strings.HasPrefix(r.RequestURI, "denied") {
			fmt.Fprint(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			return
		}
		up, err := net.Dial("tcp", at)
		if err != nil {
			return
		}
		defer up.Close()
		var first []byte
		if r.URL.Port() == "25" { // with the answer comes what the server says at once
			first = make([]byte, len("220 hello\r\n"))
			_, _ = io.ReadFull(up, first)
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s", first)
		go func() { _, _ = io.Copy(up, in) }()
		_, _ = io.Copy(c, up)
	})
}

// socks is the other kind of proxy: SOCKS5, with a name and a password.
func (w *world) socks(c net.Conn, in *bufio.Reader) {
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(in, b)
		return b
	}
	read(int(read(2)[1]))
	_, _ = c.Write([]byte{5, 2})
	user := read(int(read(2)[1]))
	password := read(int(read(1)[0]))
	_, _ = c.Write([]byte{1, 0})
	if read(4)[3] != 3 {
		return // not a name
	}
	name := read(int(read(1)[0]))
	port := read(2)
	address := net.JoinHostPort(string(name), strconv.Itoa(int(port[0])<<8|int(port[1])))
	w.mu.Lock()
	w.tunnel = append(w.tunnel, fmt.Sprintf("SOCKS %s %s:%s", address, user, password))
	at := w.serving[net.JoinHostPort("93.184.216.34", strconv.Itoa(int(port[0])<<8|int(port[1])))]
	w.mu.Unlock()
	up, err := net.Dial("tcp", at)
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	go func() { _, _ = io.Copy(up, in) }()
	_, _ = io.Copy(c, up)
}
