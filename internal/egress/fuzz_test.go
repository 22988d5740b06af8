package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pandastack/pandastack/api"
)

// What is said of a ClientHello does not depend on how it was cut, or on what
// has come of it so far.
func FuzzHello(f *testing.F) {
	for _, sni := range []string{"example.com", "a.b.c.example", ""} {
		f.Add(inRecords(clientHello(f, sni, ""), 1), 3)
		f.Add(inRecords(clientHello(f, sni, ""), 5), 40)
	}
	f.Add(inRecords(clientHello(f, "example.com", "cdn.example"), 2), 1)
	f.Add(inRecords(nameTwice(clientHello(f, "example.com", "")), 1), 9)
	f.Add([]byte{22, 3, 1, 0, 4, 1, 255, 255, 255}, 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		whole, err := parseHello(b)
		if err != nil {
			return
		}
		for i := 0; i < len(b); i += 1 + len(b)/64 {
			part, err := parseHello(b[:i])
			if err == nil && part != whole {
				t.Fatalf("%+v of %d bytes, %+v of all", part, i, whole)
			}
			if err != nil && !errors.Is(err, errMore) {
				t.Fatalf("%v of %d bytes, and all of them are well", err, i)
			}
		}
		message := handshake(b)
		if n > 0 && n <= len(message) {
			if again, err := parseHello(inRecords(message, n)); err != nil || again != whole {
				t.Fatalf("cut into %d records: %+v, %v; before %+v", n, again, err, whole)
			}
		}
	})
}

// handshake gives the first handshake message in records.
func handshake(b []byte) []byte {
	var out []byte
	for len(b) >= 5 {
		n := int(b[3])<<8 | int(b[4])
		out = append(out, b[5:5+n]...)
		b = b[5+n:]
		if len(out) >= 4 && len(out) >= 4+int(out[1])<<16+int(out[2])<<8+int(out[3]) {
			break
		}
	}
	return out[:4+int(out[1])<<16+int(out[2])<<8+int(out[3])]
}

// What is let through as HTTP is read by a server in the same way.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", "POST /x?y HTTP/1.1\r\nhost:example.com:80 \r\nContent-Length: 4\r\n\r\nabcd", "GET http://a/ HTTP/1.0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\nX: \t y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n b: c\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b)
		if err != nil {
			return
		}
		for i := range len(b) {
			if part, err := parseHead(b[:i]); err == nil && part != h || err != nil && !errors.Is(err, errMore) {
				t.Fatalf("%+v, %v of %d bytes; %+v of all", part, err, i, h)
			}
		}
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return // the server refuses it as well
		}
		if r.Method != h.method {
			t.Errorf("method %q, a server reads %q", h.method, r.Method)
		}
		if r.URL.Host == "" && r.Method != http.MethodConnect && r.Host != h.host {
			t.Errorf("host %q, a server reads %q", h.host, r.Host)
		}
	})
}

// Whatever a server takes for a request is looked at as one, also on the ports
// where anything goes.
func FuzzStartsHTTP(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\nGET / HTTP/1.1\nHost: a\n\n", "X-Y a HTTP/1.0\r\n\r\n", "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", "GET a://b c HTTP/1.1\r\nHost: a\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "SSH-2.0-x\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			return
		}
		for n := 1; n <= len(b); n += 1 + len(b)/64 {
			if out, err := look(b[:n], false); err == nil && out.kind == other {
				t.Fatalf("%q is a request to %q, and passes by its first %d bytes", b, r.Host, n)
			}
		}
		if out, err := look(b, false); err == nil && out.kind == overHTTP && r.URL.Host == "" && r.Method != http.MethodConnect && out.head.host != r.Host {
			t.Errorf("%q is to %q for a server, to %q here", b, r.Host, out.head.host)
		}
	})
}

// Whatever is asked, the answer is short, is an answer to it, and holds nothing
// but made-up addresses.
func FuzzDNS(f *testing.F) {
	for name, t := range types {
		f.Add(ask("example.com.", t, dnsmessage.ClassINET, name == "A"))
	}
	f.Add(ask("evil.example.", dnsmessage.TypeA, dnsmessage.ClassINET, true))
	f.Add(ask("0.1.18.198.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.ClassINET, true))
	p, err := Compile(api.NetworkPolicy{Allow: []api.NetworkRule{api.Rule("example.com"), api.Rule("*.example.com")}}, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	s, err := New(Options{IPv6: true}).Open(Identity{}, p, nil)
	if err != nil {
		f.Fatal(err)
	}
	s.questions.SetLimit(1e9)
	s.questions.SetBurst(1e9)
	f.Fuzz(func(t *testing.T, b []byte) {
		out := s.Resolve(context.Background(), b, false)
		if out == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil {
			t.Fatal(err)
		}
		if len(out) > maxUDP || !m.Response || m.ID != uint16(b[0])<<8|uint16(b[1]) {
			t.Errorf("%d bytes: %+v", len(out), m.Header)
		}
		for _, a := range m.Answers {
			switch body := a.Body.(type) {
			case *dnsmessage.AResource:
				if addr := netip.AddrFrom4(body.A); !madeUp.Contains(addr) || StackAddresses.Contains(addr) {
					t.Errorf("answered %s", addr)
				}
			case *dnsmessage.AAAAResource:
				if addr := netip.AddrFrom16(body.AAAA); !madeUpV6.Contains(addr) {
					t.Errorf("answered %s", addr)
				}
			case *dnsmessage.PTRResource:
			default:
				t.Errorf("answered %T", body)
			}
		}
	})
}

// A rule that is taken means the same after it went through JSON, and opens no
// closed address that it does not name.
func FuzzRule(f *testing.F) {
	for _, s := range []string{
		`"example.com"`, `"*.example.com"`, `"*"`, `"10.1.0.0/16"`, `"0.0.0.0/0"`, `"[2001:db8::7]:443"`, `"::/0"`, `"example.com:443"`, `"2130706433"`, `"0x7f.1"`, `"bücher.example"`,
		`{"host":"example.com","ports":[443],"methods":["GET"],"paths":["/v1"]}`, `{"cidr":"169.254.169.254/32"}`, `{"host":"a","cidr":"b"}`, `"169.254.169.254"`, `"198.18.0.0/15"`, `"ｅxample.com"`, `"a.*.b"`,
	} {
		f.Add([]byte(s))
	}
	var all []netip.Addr
	for p := range closedRanges.All() {
		all = append(all, p.Addr(), p.Addr().Next())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in api.NetworkRule
		if json.Unmarshal(b, &in) != nil {
			return
		}
		r, err := parseRule("network.allow[0]", in)
		if err != nil {
			return
		}
		if (r.host != "" || r.below) == r.prefix.IsValid() {
			t.Fatalf("%+v names a host and a range, or neither", r)
		}
		out, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var again api.NetworkRule
		if err := json.Unmarshal(out, &again); err != nil {
			t.Fatal(err)
		}
		if r2, err := parseRule("network.allow[0]", again); err != nil || r2.host != r.host || r2.below != r.below || r2.prefix != r.prefix {
			t.Fatalf("%+v, after JSON %+v, %v", r, r2, err)
		}
		p, err := Compile(api.NetworkPolicy{Allow: []api.NetworkRule{in}}, nil, nil)
		if err != nil {
			return // it names a metadata service
		}
		for _, addr := range all {
			where, isClosed := closed(addr)
			for _, port := range []uint16{22, 443} {
				if isClosed && p.address(addr, port).allowed && !(where.contains(r.prefix) && r.prefix.Contains(addr)) {
					t.Errorf("%s opens %s, in %s", r.text, addr, where.prefix)
				}
			}
		}
	})
}
