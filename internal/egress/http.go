package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/api"
)

const (
	idleTime      = 5 * time.Minute // of a kept connection between two requests
	handshakeTime = 10 * time.Second
	maxConns      = 32 // to the host, for the requests of one connection of the sandbox
)

// serveHTTP takes requests from a connection of the sandbox, decides each and
// passes it on, until the connection ends. What goes out is written anew, so that
// no two servers can read it differently.
func (f *flow) serveHTTP(conn net.Conn) {
	closed := &closing{Conn: conn, done: make(chan struct{})}
	var accepted net.Conn = closed
	h := &requests{f: f, scheme: "http"}
	if t, ok := conn.(*tls.Conn); ok {
		// The server needs to see that it is TLS; the end is noted below it.
		h.scheme, accepted = "https", t
		closed = t.NetConn().(*closing) //nolint:forcetypeassert // openTLS put it there
	}
	h.transport = h.newTransport(h.scheme)
	defer h.close()
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHead, ErrorLog: quiet,
		BaseContext: func(net.Listener) context.Context { return f.ctx },
		Protocols:   protocols(true, true), TLSConfig: &tls.Config{NextProtos: alpn},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: frame, MaxReceiveBufferPerStream: upStream, MaxReceiveBufferPerConnection: upConn},
	}
	_ = srv.Serve(&one{conn: accepted, done: closed.done}) // its only error is that the connection ended
	h.wait()
	if !h.seen.Load() { // nothing whole came
		f.a.fail(f.decision.rule, f.why(errors.New("no request came")))
	}
}

var (
	quiet = log.New(io.Discard, "", 0) // what goes wrong in a flow is in the audit
	alpn  = []string{"h2", "http/1.1"}
)

func protocols(h1, clearH2 bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(h1)
	p.SetHTTP2(h1)
	p.SetUnencryptedHTTP2(clearH2)
	return p
}

// openTLS ends the sandbox's TLS here, with a certificate of the engine's own CA.
func (f *flow) openTLS(conn net.Conn) {
	f.a.event.Protocol = "https"
	leaf, err := f.s.engine.opt.CA.leaf(f.t.name, f.s.engine.now())
	if err != nil {
		f.tell(conn, overTLS, err)
		return
	}
	two, speaks := f.s.meter.enterHTTP2(), alpn
	if !two {
		speaks = alpn[1:]
	}
	leave := sync.OnceFunc(func() {
		if two {
			f.s.meter.http2.Add(-1)
		}
	})
	defer leave()
	t := tls.Server(&closing{Conn: conn, done: make(chan struct{})}, &tls.Config{Certificates: []tls.Certificate{*leaf}, NextProtos: speaks, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		f.a.fail(f.decision.rule, "TLS is opened for this host, and the client did not go along: "+f.why(err))
		return
	}
	if t.ConnectionState().NegotiatedProtocol != alpn[0] {
		leave()
	}
	f.serveHTTP(t)
}

// requests is the server for one connection of a sandbox.
type requests struct {
	f         *flow
	scheme    string
	transport *http.Transport
	clear     *http.Transport // HTTP/2 without TLS
	windows   []int           // that its transports have
	seen      atomic.Bool

	mu      sync.Mutex
	running sync.WaitGroup
	over    bool
}

func (h *requests) close() {
	for _, n := range h.windows {
		defer h.f.s.meter.giveWindow(n)
	}
	h.transport.CloseIdleConnections()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clear != nil {
		h.clear.CloseIdleConnections()
	}
}

// wait lets no more requests in and waits for those that are.
func (h *requests) wait() {
	h.mu.Lock()
	h.over = true
	h.mu.Unlock()
	h.running.Wait()
}

func (h *requests) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.running.Add(1)
	}
	return !h.over
}

// ServeHTTP decides a request and passes it on.
func (h *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		panic(http.ErrAbortHandler)
	}
	defer h.running.Done()
	f := h.f
	h.seen.Store(true)
	a := f.s.attempt(h.scheme)
	if !f.s.meter.enter(&f.s.meter.requests) {
		a.about(f.a)
		a.turnDown(&refusal{reason: "too many requests at once", limit: limitFlows})
		panic(http.ErrAbortHandler) // an answer would wait for the sandbox as the others do
	}
	defer f.s.meter.requests.Add(-1)
	if r.ProtoMajor == 2 { // what the sandbox does not take counts as in progress
		defer func() { _ = http.NewResponseController(w).Flush() }()
	}
	a.about(f.a)
	a.event.Method, a.event.Path = clip(r.Method, maxWord), withoutQuery(r.URL.EscapedPath())
	if r.URL.Host != "" { // as proxies are asked
		a.event.Path = withoutQuery(r.URL.String())
	}
	ask, ref := h.decide(r)
	if ref != nil {
		a.event.Status = http.StatusForbidden
		a.turnDown(ref)
		h.refuse(w, r, ref)
		return
	}
	if ask.secret.header != "" {
		if err := f.s.value(r.Context(), &ask.secret); err != nil {
			a.event.Status = http.StatusBadGateway
			a.fail(ask.rule, err.Error())
			say(w, r, http.StatusBadGateway, "pandastack: the secret for "+f.t.name+" cannot be had")
			return
		}
		a.event.Secret = ask.secret.header
	}
	before := exchange{f.a.out.Load(), f.a.in.Load()}
	var failure error
	whole := false // a proxy panics when an answer breaks off
	proxy := &httputil.ReverseProxy{
		Transport: h.via(r), FlushInterval: -1, BufferPool: f.s.meter, ErrorLog: quiet,
		Rewrite: func(pr *httputil.ProxyRequest) { h.rewrite(pr, ask, a) },
		ModifyResponse: func(res *http.Response) error {
			a.event.Status = res.StatusCode
			res.Header.Del("Alt-Svc") // it leads to QUIC, which is refused
			if res.StatusCode != http.StatusSwitchingProtocols {
				res.Body = &counted{res.Body, &a.in}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			failure = err
			h.fail(w, r, a, err)
		},
	}
	defer func() {
		f.upMu.Lock()
		a.dialled(f.at)
		f.upMu.Unlock()
		if a.event.Status == http.StatusSwitchingProtocols { // what follows is of the connection
			a.out.Store(f.a.out.Load() - before.out)
			a.in.Store(f.a.in.Load() - before.in)
		}
		switch refused := (*refusal)(nil); {
		case errors.As(failure, &refused):
			a.refusedAt(refused)
			a.turnDown(refused)
		case failure != nil:
			a.fail(ask.rule, f.why(failure))
		case !whole:
			a.end(api.NetworkAllowed, ask.rule, f.why(errors.New("it broke off")))
		default:
			a.allow(ask.rule)
		}
	}()
	w.Header()["Content-Type"] = nil // none is guessed for an answer that has none
	proxy.ServeHTTP(w, r)
	whole = true
}

type exchange struct{ out, in int64 }

// asked is a request that was allowed.
type asked struct {
	rule   *rule
	secret secret // its header is empty where there is none
}

// decide says whether a request may go out.
func (h *requests) decide(r *http.Request) (out asked, no *refusal) {
	f := h.f
	p := f.s.policy.Load()
	if !f.s.meter.starts.AllowN(f.s.engine.now(), 1) {
		return out, &refusal{reason: "too many requests a second", limit: limitFlowRate}
	}
	if r.Method == http.MethodConnect {
		return out, &refusal{reason: "CONNECT is never passed on"}
	}
	if r.URL.Host != "" && r.URL.Scheme != h.scheme {
		return out, &refusal{reason: "its target has the scheme " + printable(r.URL.Scheme)}
	}
	if r.Host != "" {
		if no = f.agreesHost(r.Host); no != nil {
			return out, no
		}
	} else if r.ProtoMajor > 1 {
		return out, &refusal{reason: "it says no host"}
	}
	d := f.t.decide(p)
	if !d.allowed {
		return out, &refusal{rule: d.rule, reason: d.reason}
	}
	out.rule = d.rule
	if h.scheme == "https" {
		out.secret = p.secret(f.t.at(), r.Method, r.URL.Path)
	}
	if d.inspect {
		for _, name := range overriding {
			if r.Header.Get(name) != "" {
				return out, &refusal{reason: "the header " + name + " could change what it asks for, and rules are about that"}
			}
		}
		if unclear(r.URL) {
			return out, &refusal{reason: "the path could be read in two ways, and rules name paths"}
		}
		each := d.request(r.Method, r.URL.Path)
		if !each.allowed {
			return out, &refusal{rule: each.rule, reason: each.reason}
		}
		out.rule = each.rule
	}
	if out.secret.header != "" && r.Method == http.MethodTrace {
		return out, &refusal{reason: "TRACE would send the secret back"}
	}
	upgrade := strings.ToLower(r.Header.Get("Upgrade"))
	if upgrade != "" && upgrade != "websocket" && upgrade != "h2c" && (d.inspect || out.secret.header != "") {
		return out, &refusal{reason: "only WebSocket is upgraded to where requests are looked at"}
	}
	return out, nil
}

// overriding are headers that make some servers take a request for one with
// another method or path.
var overriding = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri", "X-Original-Method"}

// unclear says whether servers may disagree about what a path is.
func unclear(u *url.URL) bool {
	raw := strings.ToLower(u.EscapedPath())
	for _, escaped := range []string{"%2f", "%5c", "%00", "%25"} {
		if strings.Contains(raw, escaped) {
			return true
		}
	}
	return ambiguous(u.Path)
}

// agreesHost holds the Host of a request against where the connection is to.
func (f *flow) agreesHost(host string) *refusal {
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		name, port = host[:i], host[i+1:]
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || n != int(f.t.port)) {
		return &refusal{reason: "the Host header, " + printable(host) + ", names another port than " + strconv.Itoa(int(f.t.port))}
	}
	return f.agrees("the Host header", name)
}

// rewrite makes what goes out of what came in: the same, to the one place.
func (h *requests) rewrite(pr *httputil.ProxyRequest, ask asked, a *attempt) {
	f, out := h.f, pr.Out
	out.URL.Scheme, out.URL.Host = h.scheme, f.t.hostPort()
	out.URL.RawQuery = pr.In.URL.RawQuery
	out.Host = orElse(pr.In.Host, f.t.host())
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := pr.In.Header[name]; ok {
			out.Header[name] = v
		}
	}
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") { // what it leads to could not be looked at
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
		out.Header.Del("Http2-Settings")
	}
	if ask.secret.header != "" {
		out.Header[ask.secret.header] = []string{ask.secret.value}
	}
	if out.Body != nil && out.Body != http.NoBody {
		out.Body = &counted{out.Body, &a.out}
	}
}

// refuse answers with words.
func (h *requests) refuse(w http.ResponseWriter, r *http.Request, ref *refusal) {
	say(w, r, http.StatusForbidden, strings.TrimSuffix(h.f.t.words(ref), "\n"))
}

// say answers in the place of the host.
func say(w http.ResponseWriter, r *http.Request, status int, words string) {
	if hijack, ok := w.(http.Hijacker); ok && r.ProtoMajor == 1 {
		if conn, _, err := hijack.Hijack(); err == nil {
			inWords(conn, status, words+"\n", r.Method == http.MethodHead)
			_ = conn.Close()
			return
		}
	}
	http.Error(w, words, status)
}

// fail answers that the host could not be reached, or why it is not.
func (h *requests) fail(w http.ResponseWriter, r *http.Request, a *attempt, err error) {
	if ref := (*refusal)(nil); errors.As(err, &ref) {
		a.event.Status = http.StatusForbidden
		h.refuse(w, r, ref)
		return
	}
	a.event.Status = http.StatusBadGateway
	say(w, r, http.StatusBadGateway, "pandastack: "+h.f.t.host()+" could not be reached: "+brief(err))
}

// via gives the transport that fits a request.
func (h *requests) via(r *http.Request) *http.Transport {
	if r.ProtoMajor < 2 || h.scheme == "https" {
		return h.transport
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clear == nil {
		h.clear = h.newTransport("http")
		h.clear.Protocols = protocols(false, true)
	}
	return h.clear
}

// newTransport makes a transport, with its part of the memory for what waits.
func (h *requests) newTransport(scheme string) *http.Transport {
	n := h.f.s.meter.window()
	h.windows = append(h.windows, n)
	return h.f.transport(scheme, n)
}

// transport carries the requests of one flow. Nothing is shared between flows,
// so that each goes to what its name is at its own time.
func (f *flow) transport(scheme string, window int) *http.Transport {
	t := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return f.handOut(ctx) },
		MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns, DisableCompression: true, TLSHandshakeTimeout: handshakeTime, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2: scheme == "https",
		HTTP2:             &http.HTTP2Config{MaxReadFrameSize: frame, MaxReceiveBufferPerStream: window, MaxReceiveBufferPerConnection: window, StrictMaxConcurrentRequests: true},
		TLSClientConfig:   &tls.Config{RootCAs: f.roots(), ServerName: f.t.name, MinVersion: tls.VersionTLS12},
	}
	if scheme == "http" && f.up == nil {
		if via, err := f.s.engine.proxyFor("http", f.t); err == nil && via != nil {
			t.Proxy = http.ProxyURL(via)
			t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				// What this host knows to be closed stays closed.
				var unknown *net.DNSError
				if _, err := f.s.engine.lookup(ctx, f.s.policy.Load(), f.t); err != nil && !errors.As(err, &unknown) {
					return nil, err
				}
				return f.s.oneMore(func() (net.Conn, error) { return f.s.engine.opt.Dial(ctx, network, address) })
			}
		}
	}
	return t
}

// roots are what the host's certificate is verified with; nil: the system's.
func (f *flow) roots() *x509.CertPool {
	if own := f.s.policy.Load().roots(f.t.at()); own != nil {
		return own
	}
	return f.s.engine.opt.Roots
}

// handOut gives the connection that was made when the flow was admitted, and
// then new ones.
func (f *flow) handOut(ctx context.Context) (net.Conn, error) {
	f.upMu.Lock()
	fresh := f.up != nil && !f.first
	f.first = true
	f.upMu.Unlock()
	if fresh {
		return f.up, nil
	}
	return f.s.oneMore(func() (net.Conn, error) {
		conn, at, err := f.s.engine.dial(ctx, f.s.policy.Load(), f.t)
		if err != nil {
			return nil, err
		}
		f.upMu.Lock()
		f.at = at
		f.upMu.Unlock()
		return conn, nil
	})
}

// oneMore counts a connection to a host that no connection of the sandbox was
// admitted with, and makes it.
func (s *Sandbox) oneMore(dial func() (net.Conn, error)) (net.Conn, error) {
	if !s.meter.enter(&s.meter.more) {
		return nil, &refusal{reason: "too many connections at once, for requests", limit: limitFlows}
	}
	conn, err := dial()
	if err != nil {
		s.meter.more.Add(-1)
		return nil, err
	}
	return &another{Conn: conn, closed: func() { s.meter.more.Add(-1) }}, nil
}

// another is a connection to a host that says when it was closed.
type another struct {
	net.Conn
	once   sync.Once
	closed func()
}

// Close ends the connection.
func (c *another) Close() error {
	defer c.once.Do(c.closed)
	return c.Conn.Close()
}

// value finds the value of a secret.
func (s *Sandbox) value(ctx context.Context, sec *secret) error {
	var v string
	var err error
	switch {
	case sec.lookup != nil:
		v, err = sec.lookup(ctx)
	case sec.ref != "":
		v, err = s.engine.opt.Secret(ctx, s.id.Workspace, sec.ref)
	default:
		return nil
	}
	switch {
	case err != nil:
		return err
	case v == "" || strings.ContainsAny(v, "\r\n\x00"):
		return errors.New("the secret " + sec.ref + " cannot be the value of a header")
	}
	sec.value = v
	return nil
}

// one is a listener that has one connection.
type one struct {
	conn net.Conn
	done chan struct{} // the connection ended
}

func (l *one) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *one) Close() error   { return nil }
func (l *one) Addr() net.Addr { return &net.TCPAddr{} }

// closing is a connection that says when it was closed.
type closing struct {
	net.Conn
	done chan struct{}
	once sync.Once
}

// CloseWrite says that nothing more comes.
func (c *closing) CloseWrite() error { return closeWrite(c.Conn) }

func (c *closing) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.done) })
	return err
}

// counted counts what is read of a body.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}
