package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/coder/websocket"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/http/httpproxy"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// The suite: text files of policies, what a program inside tries, what it sees,
// and the lines of the audit. `go test ./internal/egress -run Suite -rewrite`
// writes what is seen into them; read the difference.
func TestSuite(t *testing.T) {
	datadriven.Walk(t, "testdata/suite", func(t *testing.T, path string) {
		s := &session{t: t, world: newWorld(t)}
		s.open(api.NetworkPolicy{}, nil, nil)
		datadriven.RunTest(t, path, s.run)
		s.sandbox.Close()
	})
}

// session is one sandbox and the programs in it.
type session struct {
	t       *testing.T
	world   *world
	sandbox *Sandbox
	flows   sync.WaitGroup
	named   map[string]api.NetworkPolicy
}

const wait = 20 * time.Second // for what must happen; reached by failing tests alone

func (s *session) run(t *testing.T, d *datadriven.TestData) string {
	verb, ok := map[string]func(*datadriven.TestData) string{
		"policy": s.policy, "named": s.name, "dns": s.dns, "dns-raw": s.dnsRaw, "http": s.http, "raw": s.raw, "hello": s.hello, "socket": s.socket,
		"packet": s.packet, "restore": s.restore, "proxy": s.proxy, "compile": s.compile, "dials": s.dials, "usage": s.usage, "sibling": s.sibling,
	}[d.Cmd]
	if !ok {
		d.Fatalf(t, "there is no verb %s", d.Cmd)
	}
	out := verb(d)
	s.flows.Wait()
	for _, e := range s.world.take() {
		out += line(e) + "\n"
	}
	return out
}

// line is a line of the audit without what differs from run to run.
func line(e api.NetworkEvent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "audit: %s", e.Protocol)
	for _, s := range []string{e.Method, e.Path} {
		if s != "" {
			b.WriteString(" " + s)
		}
	}
	if e.Name+e.Address != "" {
		fmt.Fprintf(&b, " %s", e.Name)
		if e.Address != "" {
			fmt.Fprintf(&b, "(%s)", e.Address)
		}
	}
	if e.Port != 0 {
		fmt.Fprintf(&b, ":%d", e.Port)
	}
	fmt.Fprintf(&b, " %s", e.Verdict)
	if e.Status != 0 {
		fmt.Fprintf(&b, " %d", e.Status)
	}
	if e.Rule != "" {
		fmt.Fprintf(&b, " rule=%s", e.Rule)
	}
	if e.Secret != "" {
		fmt.Fprintf(&b, " secret=%s", e.Secret)
	}
	if e.ECH {
		b.WriteString(" ech")
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}

type request struct {
	Network api.NetworkPolicy `json:"network"`
	Secrets api.Secrets       `json:"secrets"`
	Sources []struct {
		Host          string
		Port          uint16
		Below         string
		Authorization string
		Distrusts     bool // its roots are other ones than those of the host
	} `json:"sources"`
}

func (s *session) parse(d *datadriven.TestData) (*Policy, error) {
	var in request
	if err := json.Unmarshal([]byte(d.Input), &in); err != nil {
		return nil, err
	}
	p, err := Compile(in.Network, in.Secrets, s.named)
	if err != nil {
		return nil, err
	}
	var sources []Source
	for _, src := range in.Sources {
		out := Source{Host: src.Host, Port: src.Port, Below: src.Below, Open: src.Port != 80}
		if src.Authorization != "" {
			out.Authorization = func(context.Context) (string, error) { return src.Authorization, nil }
		}
		if src.Distrusts {
			out.Roots = x509.NewCertPool()
		}
		sources = append(sources, out)
	}
	return p, p.AddSources(sources)
}

// compile shows what a policy is refused with.
func (s *session) compile(d *datadriven.TestData) string {
	if _, err := s.parse(d); err != nil {
		return explain(err)
	}
	return "ok\n"
}

func explain(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) {
		return "error: " + err.Error() + "\n"
	}
	out := fmt.Sprintf("%s %s\n  %s\n", f.Code, f.Field, f.Message)
	if f.Hint != "" {
		out += "  hint: " + f.Hint + "\n"
	}
	return out
}

// policy gives the sandbox a policy; "policy change" while it runs.
func (s *session) policy(d *datadriven.TestData) string {
	p, err := s.parse(d)
	if err != nil {
		return explain(err)
	}
	if d.HasArg("change") {
		err = s.sandbox.SetPolicy(p)
	} else {
		s.sandbox.Close()
		s.sandbox, err = s.world.engine().Open(Identity{"sb", "team"}, p, nil)
	}
	if err != nil {
		return explain(err)
	}
	return "ok\n"
}

func (s *session) open(p api.NetworkPolicy, secrets api.Secrets, state *State) {
	s.t.Helper()
	c, err := Compile(p, secrets, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.sandbox, err = s.world.engine().Open(Identity{"sb", "team"}, c, state); err != nil {
		s.t.Fatal(err)
	}
}

// name sets the named policies of the server.
func (s *session) name(d *datadriven.TestData) string {
	s.named = nil
	if err := json.Unmarshal([]byte(d.Input), &s.named); err != nil {
		return explain(err)
	}
	return "ok\n"
}

// proxy sets the upstream proxy of the host's owner, for sandboxes opened from now on.
func (s *session) proxy(d *datadriven.TestData) string {
	s.world.proxy = nil
	if len(d.CmdArgs) > 0 {
		s.world.proxy = &httpproxy.Config{HTTPProxy: d.CmdArgs[0].String(), HTTPSProxy: d.CmdArgs[0].String(), NoProxy: "www.example.com"}
	}
	return "ok\n"
}

// restore opens the sandbox anew with what its snapshot kept.
func (s *session) restore(*datadriven.TestData) string {
	b, err := json.Marshal(s.sandbox.State())
	if err != nil {
		s.t.Fatal(err)
	}
	var state State
	if err := json.Unmarshal(b, &state); err != nil {
		s.t.Fatal(err)
	}
	p := s.sandbox.policy.Load()
	s.sandbox.Close()
	if s.sandbox, err = s.world.engine().Open(Identity{"copy", "team"}, p, &state); err != nil {
		s.t.Fatal(err)
	}
	return string(b) + "\n"
}

// sibling opens another sandbox with the same policy, which knows no names.
func (s *session) sibling(*datadriven.TestData) string {
	var err error
	p := s.sandbox.policy.Load()
	if s.sandbox, err = s.world.engine().Open(Identity{"sibling", "team"}, p, nil); err != nil {
		s.t.Fatal(err)
	}
	return "ok\n"
}

// usage shows what was counted.
func (s *session) usage(*datadriven.TestData) string {
	u := s.sandbox.Usage()
	return fmt.Sprintf("%d bytes, %d flows\n", u.Bytes, u.Flows)
}

// dials shows what was dialled since it was last asked, and what the proxy was asked for.
func (s *session) dials(*datadriven.TestData) string {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	out := strings.Join(append(s.world.dials, s.world.tunnel...), "\n")
	s.world.dials, s.world.tunnel = nil, nil
	return orElse(out, "nothing") + "\n"
}

// packet is one that the stack refuses by itself.
func (s *session) packet(d *datadriven.TestData) string {
	s.sandbox.Refused(d.CmdArgs[0].Key, netip.MustParseAddrPort(d.CmdArgs[1].Key), "")
	return ""
}

func ask(name string, t dnsmessage.Type, class dnsmessage.Class, edns bool) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: t, Class: class}}}
	if edns {
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(1232, 0, false)
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

var types = map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "TXT": dnsmessage.TypeTXT, "HTTPS": dnsmessage.TypeHTTPS, "SVCB": dnsmessage.TypeSVCB,
	"MX": dnsmessage.TypeMX, "SRV": dnsmessage.TypeSRV, "PTR": dnsmessage.TypePTR, "ANY": dnsmessage.TypeALL, "AXFR": dnsmessage.TypeAXFR, "NULL": 10, "CNAME": dnsmessage.TypeCNAME}

// dns TYPE NAME [edns] [chaos] [times=N]: asks, and shows the last answer.
func (s *session) dns(d *datadriven.TestData) string {
	class := dnsmessage.ClassINET
	if d.HasArg("chaos") {
		class = dnsmessage.ClassCHAOS
	}
	times := 1
	scan(s.t, d, "times", &times)
	var out string
	for range times {
		out = show(s.sandbox.Resolve(context.Background(), ask(d.CmdArgs[1].Key+".", types[d.CmdArgs[0].Key], class, d.HasArg("edns")), false))
	}
	if times > 1 {
		lines := s.world.take()
		out += fmt.Sprintf("%d lines, the last: %s\n", len(lines), line(lines[len(lines)-1]))
	}
	return out
}

// dns-raw sends a message in hexadecimal.
func (s *session) dnsRaw(d *datadriven.TestData) string {
	b, err := hex.DecodeString(strings.Join(strings.Fields(d.Input), ""))
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	if d.HasArg("pad") {
		b = append(b, make([]byte, 2000)...)
	}
	return show(s.sandbox.Resolve(context.Background(), b, false))
}

func show(b []byte) string {
	if b == nil {
		return "no answer\n"
	}
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		return "bad answer: " + err.Error() + "\n"
	}
	out := strings.TrimPrefix(m.RCode.String(), "RCode")
	for _, a := range m.Answers {
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			out += " " + netip.AddrFrom4(body.A).String()
		case *dnsmessage.AAAAResource:
			out += " " + netip.AddrFrom16(body.AAAA).String()
		case *dnsmessage.PTRResource:
			out += " " + body.PTR.String()
		default:
			out += fmt.Sprintf(" %T", body)
		}
	}
	for _, a := range m.Additionals {
		for _, o := range a.Body.(*dnsmessage.OPTResource).Options {
			out += fmt.Sprintf(" ede %d %q", int(o.Data[0])<<8|int(o.Data[1]), o.Data[2:])
		}
	}
	return out + "\n"
}

var errNoName = errors.New("there is no such name")

// connect is what connect(2) does inside, after a look-up.
func (s *session) connect(ctx context.Context, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		var m dnsmessage.Message
		if err := m.Unpack(s.sandbox.Resolve(ctx, ask(host+".", dnsmessage.TypeA, dnsmessage.ClassINET, false), false)); err != nil {
			return nil, err
		}
		if len(m.Answers) == 0 {
			return nil, errNoName
		}
		s.dropLastDNS()
		addr = netip.AddrFrom4(m.Answers[0].Body.(*dnsmessage.AResource).A)
	}
	f, err := s.sandbox.Admit(ctx, netip.AddrPortFrom(addr, uint16(port)))
	if err != nil {
		return nil, errors.New("connection refused")
	}
	outside, inside := pair(s.t)
	s.flows.Go(func() { f.Serve(context.Background(), inside) })
	return outside, nil
}

// dropLastDNS leaves look-ups that succeeded out of what a case shows.
func (s *session) dropLastDNS() {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if n := len(s.world.lines); n > 0 && s.world.lines[n-1].Protocol == "dns" {
		s.world.lines = s.world.lines[:n-1]
	}
}

// pair gives both ends of a connection.
func pair(t testing.TB) (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = a.SetDeadline(time.Now().Add(wait))
	return a, b
}

// http METHOD URL [follow] [h1] [h2c] [untrusting] [times=N]: a program asks; the input is header lines, and a body after an empty one.
func (s *session) http(d *datadriven.TestData) string {
	var issuers []string
	pool := s.world.roots.Clone()
	pool.AppendCertsFromPEM(s.world.own.PEM())
	if d.HasArg("untrusting") {
		pool = s.world.roots // a program with a list of its own, or a pin
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return s.connect(ctx, address) }, ForceAttemptHTTP2: !d.HasArg("h1"), DisableCompression: true}
	if d.HasArg("h2c") {
		tr.Protocols = protocols(false, true)
	}
	tr.TLSClientConfig = &tls.Config{RootCAs: pool, VerifyConnection: func(c tls.ConnectionState) error {
		who := "untouched"
		if c.PeerCertificates[0].CheckSignatureFrom(s.world.own.cert) == nil {
			who = "opened"
		}
		issuers = append(issuers, who+" "+c.NegotiatedProtocol)
		return nil
	}}
	client := &http.Client{Transport: tr, Timeout: wait, CheckRedirect: func(*http.Request, []*http.Request) error {
		if d.HasArg("follow") {
			return nil
		}
		return http.ErrUseLastResponse
	}}
	times := 1
	scan(s.t, d, "times", &times)
	var out string
	for range times {
		head, body, _ := strings.Cut(d.Input, "\n\n")
		req, err := http.NewRequest(d.CmdArgs[0].Key, d.CmdArgs[1].String(), strings.NewReader(body))
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		for l := range strings.SplitSeq(head, "\n") {
			if name, value, ok := strings.Cut(l, ": "); ok {
				req.Header.Set(name, value)
				if name == "Host" {
					req.Host = value
				}
			}
		}
		out += s.roundTrip(client, req)
	}
	tr.CloseIdleConnections()
	for _, who := range issuers {
		out += "tls: " + who + "\n"
	}
	return out
}

func (s *session) roundTrip(client *http.Client, req *http.Request) string {
	res, err := client.Do(req)
	if err != nil {
		return "error: " + plain(err) + "\n"
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	out := fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(b)))
	if len(b) > 1000 {
		out = fmt.Sprintf("%d and %d bytes", res.StatusCode, len(b))
	}
	for _, name := range []string{"Location", "Alt-Svc"} {
		if v := res.Header.Get(name); v != "" {
			out += " " + name + "=" + v
		}
	}
	if err != nil {
		out += " then error: " + plain(err)
	}
	return out + "\n"
}

// plain says what an error comes to, without ports that differ from run to run.
func plain(err error) string {
	var alert tls.AlertError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, errNoName):
		return errNoName.Error()
	case errors.As(err, &alert):
		return alert.Error()
	case errors.As(err, &unknown):
		return "certificate not trusted"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "cut off"
	case strings.Contains(err.Error(), "connection refused"):
		return "connection refused"
	case strings.Contains(err.Error(), "connection reset"), strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "broken pipe"):
		return "connection reset"
	case strings.Contains(err.Error(), "access denied"):
		return "access denied"
	}
	return err.Error()
}

// raw ADDRESS [open] [bytewise] [repeat=N]: sends the input, each line a Go string without its quotes, and shows what comes.
func (s *session) raw(d *datadriven.TestData) string {
	conn, err := s.connect(context.Background(), d.CmdArgs[0].String())
	if err != nil {
		return "error: " + plain(err) + "\n"
	}
	defer conn.Close()
	for l := range strings.SplitSeq(d.Input, "\n") {
		text, err := strconv.Unquote(`"` + l + `"`)
		if err != nil {
			d.Fatalf(s.t, "%s: %v", l, err)
		}
		repeat := 1
		scan(s.t, d, "repeat", &repeat)
		text = strings.Repeat(text, repeat)
		if d.HasArg("bytewise") {
			for i := range len(text) {
				_, _ = conn.Write([]byte{text[i]})
			}
			continue
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return "error: " + plain(err) + "\n"
		}
	}
	if !d.HasArg("open") {
		_ = conn.(*net.TCPConn).CloseWrite()
	}
	return received(conn)
}

var dates = regexp.MustCompile("Date: [^\\r]*\\r\\n")

// received shows all that comes.
func received(conn net.Conn) string {
	b, err := io.ReadAll(conn)
	out := ""
	if bytes.HasPrefix(b, alertDenied) {
		out, b = "alert: access denied\n", b[len(alertDenied):]
	}
	if len(b) > 0 && b[0] == recordHandshake {
		out, b = "server hello\n", nil
	}
	if len(b) > 0 {
		b = dates.ReplaceAll(b, nil)
		out += strings.TrimRight(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n") + "\n"
	}
	if err != nil && len(out) == 0 {
		out = "error: " + plain(err) + "\n"
	}
	return orElse(out, "closed\n")
}

// hello ADDRESS sni=NAME [records=N] [bytewise] [ech=PUBLIC] [twice] [trailing]: a ClientHello cut into records.
func (s *session) hello(d *datadriven.TestData) string {
	var sni, ech string
	records := 1
	scan(s.t, d, "sni", &sni)
	scan(s.t, d, "ech", &ech)
	scan(s.t, d, "records", &records)
	b := inRecords(clientHello(s.t, sni, ech), records)
	if d.HasArg("twice") {
		b = inRecords(nameTwice(clientHello(s.t, sni, ech)), 1)
	}
	if d.HasArg("empty-record") {
		b = append([]byte{22, 3, 1, 0, 0}, b...)
	}
	if d.HasArg("cut") {
		b = b[:len(b)/2]
	}
	conn, err := s.connect(context.Background(), d.CmdArgs[0].String())
	if err != nil {
		return "error: " + plain(err) + "\n"
	}
	defer conn.Close()
	step := len(b)
	if d.HasArg("bytewise") {
		step = 1
	}
	for len(b) > 0 {
		n := min(step, len(b))
		if _, err := conn.Write(b[:n]); err != nil {
			break
		}
		b = b[n:]
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	return received(conn)
}

// socket URL: a WebSocket client says hello.
func (s *session) socket(d *datadriven.TestData) string {
	pool := s.world.roots.Clone()
	pool.AppendCertsFromPEM(s.world.own.PEM())
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return s.connect(ctx, address) }, TLSClientConfig: &tls.Config{RootCAs: pool}}
	c, res, err := websocket.Dial(ctx, d.CmdArgs[0].String(), &websocket.DialOptions{HTTPClient: &http.Client{Transport: tr}})
	if err != nil {
		if res != nil {
			return fmt.Sprintf("error: %d\n", res.StatusCode)
		}
		return "error: " + plain(err) + "\n"
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return "error: " + plain(err) + "\n"
	}
	_, b, err := c.Read(ctx)
	if err != nil {
		return "error: " + plain(err) + "\n"
	}
	_ = c.Close(websocket.StatusNormalClosure, "")
	return string(b) + "\n"
}

// scan reads an argument that may be left out.
func scan(t *testing.T, d *datadriven.TestData, name string, to any) {
	t.Helper()
	if d.HasArg(name) {
		d.ScanArgs(t, name, to)
	}
}
