package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
)

const aKey = "pds_00112233445566778899aabbccddeeff" // a workspace of its own, as every key here

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	h := w.Header()
	h.Add("Set-Cookie", "mine=1; Path=/; Domain=localhost")
	h.Add("Set-Cookie", "pandastack_preview=forged")
	h.Set("Strict-Transport-Security", "max-age=1")
	h.Set("Clear-Site-Data", `"cookies"`)
	h.Set("X-Request-Id", "of the sandbox")
	if r.URL.Path == "/early" {
		w.WriteHeader(http.StatusEarlyHints) // with all of that
	}
	if r.URL.Path == "/away" {
		http.Redirect(w, r, "/there", http.StatusFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "uri": r.RequestURI, "host": r.Host, "header": r.Header, "body": string(body)})
}

type echoed struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

// port is a sandbox with a server on port 8000.
type port struct {
	*live
	path, id string
}

func newPort(t *testing.T, h http.HandlerFunc) port {
	t.Helper()
	l := newLive(t)
	path, id := l.sandbox()
	ln, err := l.host.Guest(id).Serve(8000, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return port{l, path, id}
}

func (p port) name(n int) string {
	u, _ := url.Parse(p.url)
	return fmt.Sprintf("%d-%s.localhost:%s", n, p.id, u.Port())
}

// ask sends a request by a port's own name and does not follow where it leads.
func (p port) ask(host, method, target string, body io.Reader, header ...string) *http.Response {
	p.t.Helper()
	if strings.HasPrefix(target, "//") {
		return p.askAsItIs(host, method, target, header...)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url, body)
	if err != nil {
		p.t.Fatal(err)
	}
	path, query, _ := strings.Cut(target, "?")
	req.URL.Opaque, req.URL.RawQuery = path, query // as it is
	if host != "" {
		req.Host = host
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { res.Body.Close() })
	return res
}

// askAsItIs is for paths that a client would take for hosts.
func (p port) askAsItIs(host, method, target string, header ...string) *http.Response {
	p.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, target, host)
	for i := 0; i < len(header); i += 2 {
		fmt.Fprintf(conn, "%s: %s\r\n", header[i], header[i+1])
	}
	_, _ = io.WriteString(conn, "\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

func (p port) echoed(res *http.Response) (e echoed) {
	p.t.Helper()
	raw, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(raw, &e); err != nil || res.StatusCode != 200 {
		p.t.Fatalf("%d: %s", res.StatusCode, raw)
	}
	return e
}

func (p port) refused(res *http.Response, status int, code api.Code) api.Error {
	p.t.Helper()
	var e api.Error
	raw, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(raw, &e); err != nil || res.StatusCode != status || e.Code != code {
		p.t.Errorf("%d %s, want %d %s: %s", res.StatusCode, e.Code, status, code, raw)
	}
	return e
}

func (p port) link(body string) (t api.PreviewToken) {
	p.t.Helper()
	p.into(&t, 200, "POST", p.path+"/preview-token", body)
	return t
}

// Whatever a visitor carries that is not the sandbox's to see stays outside.
func TestPreviewPassesOnNoSecrets(t *testing.T) {
	p := newPort(t, echo)
	// The test's keys are workspaces: this one is a key as they really are, of another.
	link := p.link(`{"port":8000}`)
	for name, req := range map[string][]string{
		"by its name": {p.name(8000), "/x?a=1&pandastack%5Ftoken=" + link.Token + "&pandastack_token=" + link.Token + "&b=" + aKey + "&c=%70ds_" + aKey[4:]},
		"by the link": {"", "/v1/p/" + link.Token + "/x?a=1&b=" + aKey + "&back=%2Fv1%2Fp%2F" + link.Token},
	} {
		t.Run(name, func(t *testing.T) {
			e := p.echoed(p.ask(req[0], "POST", req[1], strings.NewReader("body"),
				"Cookie", "session=s; pandastack_preview="+link.Token+"; k="+aKey, "Cookie", "PandaStack_Preview=x; other=o",
				"X-Api-Key", aKey, "X-Mine", "kept", "Authorization", "Basic bWluZQ==", "Referer", p.url+"/v1/p/"+link.Token+"/page", "X-Original-URI", "/v1/p/"+link.Token+"/x", "X-Page", "http://x.example/?pandastack_token=abc",
				"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https", "X-Forwarded-Prefix", "/forged", "Forwarded", "for=6.6.6.6"))
			all := fmt.Sprint(e)
			if strings.Contains(all, "pds_") || strings.Contains(all, link.Token) || strings.Contains(strings.ToLower(all), "pandastack_") {
				t.Errorf("a secret came through: %s", all)
			}
			if e.Header.Get("Referer") != p.url+"/" {
				t.Errorf("the referer is %q", e.Header.Get("Referer"))
			}
			if e.URI != "/x?a=1" || e.Body != "body" || e.Method != "POST" || e.Header.Get("X-Mine") != "kept" || e.Header.Get("Cookie") != "session=s; other=o" {
				t.Errorf("%+v", e)
			}
			if e.Header.Get("Authorization") != "Basic bWluZQ==" || e.Header.Get("Forwarded") != "" || e.Header.Get("X-Forwarded-For") == "" || e.Header.Get("X-Forwarded-Host") == "" {
				t.Errorf("%+v", e.Header)
			}
			if name == "by its name" && (e.Host != p.name(8000) || e.Header.Get("X-Forwarded-Prefix") != "") {
				t.Errorf("host %s, prefix %s", e.Host, e.Header.Get("X-Forwarded-Prefix"))
			}
			if name == "by the link" && (e.Host != "localhost:8000" || e.Header.Get("X-Forwarded-Prefix") != "") { // the token is in it
				t.Errorf("host %s, prefix %s", e.Host, e.Header.Get("X-Forwarded-Prefix"))
			}
		})
	}
}

// What a server answers must not reach beyond its port.
func TestPreviewTamesAnswers(t *testing.T) {
	p := newPort(t, echo)
	link := p.link(`{"port":8000}`)
	res := p.ask(p.name(8000), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token)
	if got := res.Header.Values("Set-Cookie"); len(got) != 1 || got[0] != "mine=1; Path=/" {
		t.Errorf("cookies %q", got)
	}
	if h := res.Header; h.Get("Strict-Transport-Security") != "" || h.Get("Clear-Site-Data") != "" || len(h.Values("X-Request-Id")) != 0 || h.Get("Content-Security-Policy") != "" {
		t.Errorf("%v", h)
	}
	var early []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		early = append(early, fmt.Sprint(code, h))
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, "GET", p.url+"/early", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = p.name(8000)
	req.Header.Set("Cookie", "pandastack_preview="+link.Token)
	if res, err := http.DefaultClient.Do(req); err != nil || res.StatusCode != 200 || len(early) > 0 {
		t.Errorf("ahead of %v, %v came %q", res, err, early)
	}
	res = p.ask("", "GET", p.path+"/proxy/8000/", nil, "Authorization", "Bearer ann")
	if got := res.Header.Values("Set-Cookie"); len(got) != 1 || got[0] != "mine=1; Path="+p.path+"/proxy/8000/" {
		t.Errorf("cookies %q", got)
	}
	if csp := res.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox") || strings.Contains(csp, "allow-same-origin") {
		t.Errorf("a page at the API's own address may act as that: %q", csp)
	}
	if res = p.ask("", "GET", p.path+"/proxy/8000/away", nil, "Authorization", "Bearer ann"); res.Header.Get("Location") != p.path+"/proxy/8000/there" {
		t.Errorf("led to %q", res.Header.Get("Location"))
	}
}

func TestPreviewIsPrivate(t *testing.T) {
	p := newPort(t, echo)
	other := p.link(`{"port":8001}`)
	for name, header := range map[string][]string{
		"nothing":                    {},
		"somebody's other password":  {"Authorization", "Basic YTpi"},
		"a cookie that is none":      {"Cookie", "pandastack_preview=x.y"},
		"a link to another port":     {"Cookie", "pandastack_preview=" + other.Token},
		"a key that is no API key's": {"Authorization", "Bearer nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			p := port{&live{t, p.url, p.host, p.stop}, p.path, p.id}
			e := p.refused(p.ask(p.name(8000), "GET", "/", nil, header...), 401, api.CodeUnauthenticated)
			none := p.refused(p.ask(strings.Replace(p.name(8000), p.id, "sb-0000000000000000", 1), "GET", "/", nil, header...), 401, api.CodeUnauthenticated)
			if e.Message != none.Message {
				t.Errorf("%q for one that is there, %q for one that is not", e.Message, none.Message)
			}
		})
	}
	// The key of another workspace: as if there were no such sandbox.
	p.refused(p.ask(p.name(8000), "GET", "/", nil, "Authorization", "Bearer "+aKey), 404, api.CodeNotFound)
	p.refused(p.ask("", "GET", p.path+"/proxy/8000/", nil, "Authorization", "Bearer bob"), 404, api.CodeNotFound)
	p.refused(p.ask("", "GET", p.path+"/proxy/8000/", nil), 401, api.CodeUnauthenticated)
	p.refused(p.ask("", "GET", p.path+"/proxy/0/", nil, "Authorization", "Bearer ann"), 400, api.CodeInvalid)
	// The daemon's other names are as foreign as ever.
	p.refused(p.ask("8000-"+p.id+".evil.example", "GET", "/", nil), 403, api.CodeDenied)
	p.refused(p.ask("evil.example", "GET", "/v1/p/"+other.Token+"/", nil), 403, api.CodeDenied)
	// A port's name leads to the port and never to the API.
	p.refused(p.ask(p.name(8000), "GET", "/v1/me", nil, "Authorization", "Bearer ann"), 401, api.CodeUnauthenticated)
}

func TestPreviewForTheKey(t *testing.T) {
	l := newLive(t)
	var info api.SandboxInfo
	res, err := l.request(t.Context(), aKey, "POST", "/v1/sandboxes", strings.NewReader(`{"template":"base"}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(res.Body).Decode(&info); err != nil {
		t.Fatal(err)
	}
	ln, err := l.host.Guest(info.ID).Serve(8000, http.HandlerFunc(echo))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := port{l, "/v1/sandboxes/" + info.ID, info.ID}
	e := p.echoed(p.ask(p.name(8000), "PUT", "/a%2Fb//../c?q=%zz;1", nil, "Authorization", "Bearer "+aKey, "X-Request-Id", "abc"))
	if e.URI != "/a%2Fb//../c?q=%zz;1" || e.Header.Get("Authorization") != "" {
		t.Errorf("%+v", e)
	}
	e = p.echoed(p.ask("", "DELETE", p.path+"/proxy/8000//a/../b%2f/?x", nil, "Authorization", "Bearer "+aKey))
	if e.URI != "//a/../b%2f/?x" || e.Header.Get("Authorization") != "" || e.Header.Get("X-Forwarded-Prefix") != p.path+"/proxy/8000" {
		t.Errorf("%+v", e)
	}
}

func TestPublicPorts(t *testing.T) {
	p := newPort(t, echo)
	p.do(201, "POST", p.path+"/ports", `{"port":8000,"label":"web","public":true}`)
	if e := p.echoed(p.ask(p.name(8000), "GET", "/", nil, "Authorization", "Bearer theirs")); e.Header.Get("Authorization") != "Bearer theirs" {
		t.Errorf("%v", e.Header)
	}
	p.refused(p.ask(p.name(8001), "GET", "/", nil), 401, api.CodeUnauthenticated)
	p.do(201, "POST", p.path+"/ports", `{"port":8000}`)
	p.refused(p.ask(p.name(8000), "GET", "/", nil), 401, api.CodeUnauthenticated)
}

func TestLinks(t *testing.T) {
	p := newPort(t, echo)
	link := p.link(`{"port":8000,"paths":["/api"]}`)
	if !strings.HasPrefix(link.URL, p.url+"/v1/p/"+link.Token+"/") || link.SandboxID != p.id || time.Until(link.ExpiresAt) > time.Hour || time.Until(link.ExpiresAt) < 50*time.Minute {
		t.Errorf("%+v", link)
	}
	cookie := []string{"Cookie", "pandastack_preview=" + link.Token}
	if e := p.echoed(p.ask(p.name(8000), "GET", "/api/x", nil, cookie...)); e.URI != "/api/x" {
		t.Error(e.URI)
	}
	for _, path := range []string{"/", "/apix", "/api/../x", "/api/%2e%2e/x", "/api%2f..%2fx", "//api"} {
		p.refused(p.ask(p.name(8000), "GET", path, nil, cookie...), 403, api.CodeDenied)
		p.refused(p.ask("", "GET", "/v1/p/"+link.Token+path, nil), 403, api.CodeDenied)
	}
	p.refused(p.ask("", "GET", "/v1/p/"+link.Token[:len(link.Token)-2]+"AA/api", nil), 401, api.CodeUnauthenticated)

	// A browser is led to the port's own name, and from there to the same page without the token.
	page := []string{"Accept", "text/html,*/*"}
	res := p.ask("", "GET", "/v1/p/"+link.Token+"/api?a=1", nil, page...)
	want := "http://" + p.name(8000) + "/api?a=1&pandastack_token=" + link.Token
	if res.StatusCode != 303 || strings.Replace(res.Header.Get("Location"), "127.0.0.1", "localhost", 1) != want {
		t.Errorf("%d to %q, want %q", res.StatusCode, res.Header.Get("Location"), want)
	}
	res = p.ask(p.name(8000), "GET", "/api?a=1&pandastack_token="+link.Token, nil, page...)
	if res.StatusCode != 303 || res.Header.Get("Location") != "/api?a=1" {
		t.Errorf("%d to %q", res.StatusCode, res.Header.Get("Location"))
	}
	if c := res.Cookies(); len(c) != 1 || c[0].Name != "pandastack_preview" || !c[0].HttpOnly || c[0].SameSite != http.SameSiteLaxMode || c[0].Domain != "" {
		t.Errorf("%v", c)
	}
	// Nowhere else, whatever the path looks like.
	res = p.ask(p.name(8000), "GET", "//evil.example?pandastack_token="+p.link(`{"port":8000}`).Token, nil, page...)
	if to := res.Header.Get("Location"); to != "/evil.example" {
		t.Errorf("led to %q", to)
	}

	for body, field := range map[string]string{
		`{"port":0}`: "port", `{"port":65536}`: "port", `{}`: "port", `{"port":80,"ttl_seconds":0}`: "ttl_seconds", `{"port":80,"ttl_seconds":604801}`: "ttl_seconds",
		`{"port":80,"paths":["/a|b"]}`: "paths", `{"port":80,"paths":["/a,b"]}`: "paths", `{"port":80,"paths":["a"]}`: "paths", `{"port":"80"}`: "port",
	} {
		if got := p.do(400, "POST", p.path+"/preview-token", body); !strings.Contains(got, `"field":"`+field+`"`) {
			t.Errorf("%s: %s", body, got)
		}
	}
}

// What another site makes a browser do that has our cookie is refused, unless
// somebody follows a link.
func TestPreviewFromAnotherSite(t *testing.T) {
	p := newPort(t, echo)
	link := p.link(`{"port":8000}`)
	for _, tc := range []struct {
		method string
		header []string
		status int
	}{
		{"POST", []string{"Origin", "http://" + p.name(8000), "Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
		{"POST", []string{"Origin", "http://" + p.name(8001)}, 403},
		{"POST", []string{"Origin", "null"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", []string{"Origin", "http://evil.example", "Connection", "Upgrade", "Upgrade", "websocket"}, 403},
	} {
		res := p.ask(p.name(8000), tc.method, "/", nil, append(tc.header, "Cookie", "pandastack_preview="+link.Token)...)
		if res.StatusCode != tc.status {
			t.Errorf("%s %v: %d, want %d", tc.method, tc.header, res.StatusCode, tc.status)
		}
	}
}

func TestPreviewErrorsAreShownToWhoAsks(t *testing.T) {
	p := newPort(t, echo)
	link := p.link(`{"port":9}`)
	e := p.refused(p.ask(p.name(9), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token), 502, api.CodeUnreachable)
	if !strings.Contains(e.Message, "nothing listens on port 9") || e.Hint == "" || e.RequestID == "" {
		t.Errorf("%+v", e)
	}
	res := p.ask(p.name(9), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token, "Accept", "text/html")
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != 502 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || !strings.Contains(string(body), "nothing listens on port 9") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	// A server that does not speak HTTP.
	p.host.Guest(p.id).Listen(22, listening(t, func(conn net.Conn) { _, _ = io.WriteString(conn, "SSH-2.0-x\r\n") }))
	link = p.link(`{"port":22}`)
	p.refused(p.ask(p.name(22), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token), 502, api.CodeUnreachable)

	link = p.link(`{"port":8000}`)
	p.do(204, "POST", p.path+"/pause", "")
	p.refused(p.ask(p.name(8000), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token), 409, api.CodeConflict)
	p.do(204, "DELETE", p.path, "")
	p.refused(p.ask(p.name(8000), "GET", "/", nil, "Cookie", "pandastack_preview="+link.Token), 404, api.CodeNotFound)
}

// Events come through one by one, bodies of any size both ways, and protocols
// that a connection is upgraded to.
func TestPreviewStreams(t *testing.T) {
	goOn := make(chan struct{})
	p := newPort(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(w, "data: %d\n\n", i)
				w.(http.Flusher).Flush()
				<-goOn
			}
		case "/big":
			w.Header().Set("Content-Type", "application/octet-stream")
			_ = http.NewResponseController(w).EnableFullDuplex()
			_, _ = io.Copy(w, r.Body)
		case "/ws":
			conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
			if err != nil {
				return
			}
			for {
				kind, b, err := conn.Read(r.Context())
				if err != nil || conn.Write(r.Context(), kind, append([]byte("heard "), b...)) != nil {
					return
				}
			}
		}
	})
	link := p.link(`{"port":8000}`)
	cookie := "pandastack_preview=" + link.Token
	res := p.ask(p.name(8000), "GET", "/events", nil, "Cookie", cookie)
	lines := bufio.NewScanner(res.Body)
	for i := range 3 {
		for lines.Scan() && lines.Text() == "" {
		}
		if lines.Text() != fmt.Sprintf("data: %d", i) {
			t.Fatalf("%q instead of event %d", lines.Text(), i)
		}
		goOn <- struct{}{} // the server sends the next only now
	}
	sent := make([]byte, 20<<20)
	rand.Read(sent)
	res = p.ask(p.name(8000), "POST", "/big", bytes.NewReader(sent), "Cookie", cookie)
	if got, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d: %v", len(got), len(sent), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, p.url+"/v1/p/"+link.Token+"/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("this")); err != nil {
		t.Fatal(err)
	}
	if _, b, err := conn.Read(ctx); string(b) != "heard this" {
		t.Errorf("%q, %v", b, err)
	}
}

// listening is the address of a server that does this with each connection.
func listening(t *testing.T, do func(net.Conn)) string {
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
			do(conn)
			conn.Close()
		}
	}()
	return ln.Addr().String()
}

// A connection over a WebSocket carries any protocol, each side to its end.
func TestConnect(t *testing.T) {
	p := newPort(t, echo)
	p.host.Guest(p.id).Listen(7, listening(t, func(conn net.Conn) {
		b, _ := io.ReadAll(conn)
		slices.Reverse(b)
		_, _ = conn.Write(b)
	}))
	header := http.Header{"Authorization": {"Bearer ann"}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, p.url+p.path+"/ports/7/connect", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"abc", "def"} {
		if err := conn.Write(ctx, websocket.MessageBinary, []byte(m)); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte("eof")); err != nil {
		t.Fatal(err)
	}
	if kind, b, err := conn.Read(ctx); kind != websocket.MessageBinary || string(b) != "fedcba" {
		t.Errorf("%v %q %v", kind, b, err)
	}
	if kind, b, err := conn.Read(ctx); kind != websocket.MessageText || string(b) != "eof" {
		t.Errorf("%v %q %v", kind, b, err)
	}
	if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v", err)
	}
	if _, res, err := websocket.Dial(ctx, p.url+p.path+"/ports/9/connect", &websocket.DialOptions{HTTPHeader: header}); err == nil || res.StatusCode != 502 {
		t.Errorf("nobody listens: %v", err)
	}
	p.do(426, "GET", p.path+"/ports/7/connect", "")
	p.do(400, "GET", p.path+"/ports/x/connect", "")
}

func TestPorts(t *testing.T) {
	p := newPort(t, echo)
	p.do(201, "POST", p.path+"/ports", `{"port":3000,"label":"later"}`)
	var list []api.Port
	p.into(&list, 200, "GET", p.path+"/ports", "")
	if len(list) != 2 || list[0].Port != 3000 || list[0].Label != "later" || list[0].Listening || list[0].Source != "user" ||
		list[1].Port != 8000 || !list[1].Listening || list[1].Source != "detected" || list[1].Public {
		t.Errorf("%+v", list)
	}
	if want := "http://" + p.name(8000) + "/"; list[1].URL != want || list[1].ProxyURL != p.url+p.path+"/proxy/8000/" {
		t.Errorf("%s, %s", list[1].URL, list[1].ProxyURL)
	}
	p.do(204, "DELETE", p.path+"/ports/3000", "")
	p.do(404, "DELETE", p.path+"/ports/3000", "")
	p.do(400, "POST", p.path+"/ports", `{"port":70000}`)
	p.do(400, "POST", p.path+"/ports", `{"port":1,"label":"`+strings.Repeat("x", 101)+`"}`)
	// A sandbox that sleeps stays asleep.
	p.do(201, "POST", p.path+"/ports", `{"port":8000}`)
	p.do(200, "POST", p.path+"/hibernate", "")
	p.into(&list, 200, "GET", p.path+"/ports", "")
	if len(list) != 1 || list[0].Listening {
		t.Errorf("%+v", list)
	}
	if got := p.do(200, "GET", p.path, ""); !strings.Contains(got, `"status":"hibernated"`) {
		t.Error(got)
	}
	// A visit wakes it.
	link := p.link(`{"port":8000}`)
	p.ask("", "GET", "/v1/p/"+link.Token+"/", nil)
	if got := p.do(200, "GET", p.path, ""); !strings.Contains(got, `"status":"running"`) {
		t.Error(got)
	}
}
