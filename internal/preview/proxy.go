package preview

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
)

const (
	answerTime  = 10 * time.Minute // for the head of an answer
	maxAnswer   = 256 << 10        // bytes of it
	ownCookies  = "pandastack_"    // how the names of our cookies begin
	Cookie      = ownCookies + "preview"
	TokenParam  = "pandastack_token" // of the query, in signed links
	sandboxPage = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
)

// Target is a port of a sandbox that a request is passed on to.
type Target struct {
	Name
	Dial func(ctx context.Context) (net.Conn, error)

	// Prefix is the part of the path that leads to the port at this server's
	// own name; "" when the port is seen under a name of its own.
	Prefix string
	Path   string // escaped, to ask the port for; begins with /
	// Secret is whether the prefix is not the sandbox's to see.
	Secret bool
	// Authorization is whether that header is the sandbox's to see.
	Authorization bool
	Log           *slog.Logger
	Fail          func(w http.ResponseWriter, r *http.Request, err error)
}

// Pass passes a request on and its answer back: each piece as it comes, and an
// upgraded connection until one side closes it. There is a connection to the
// sandbox for each request, so that none outlives what the sandbox was.
func Pass(w http.ResponseWriter, r *http.Request, t Target) {
	transport := &http.Transport{
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return t.Dial(ctx) },
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ResponseHeaderTimeout:  answerTime,
		MaxResponseHeaderBytes: maxAnswer,
		Protocols:              protocols(r),
	}
	defer transport.CloseIdleConnections()
	p := httputil.ReverseProxy{
		Rewrite:        t.rewrite,
		Transport:      transport,
		FlushInterval:  -1, // events are not for a buffer
		ModifyResponse: t.tame,
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { t.Fail(w, r, t.why(err)) },
		ErrorLog:       slog.NewLogLogger(t.Log.Handler(), slog.LevelDebug),
	}
	p.ServeHTTP(final{w}, r)
}

// final is an answer without those that a server sends ahead of it (1xx), which
// nothing has tamed.
type final struct{ http.ResponseWriter }

// WriteHeader sends a status that is one.
func (f final) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is how package http finds what else the answer can do.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// protocols are those of the server inside: HTTP/1.1, and HTTP/2 for what needs it.
func protocols(r *http.Request) *http.Protocols {
	var p http.Protocols
	if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		p.SetUnencryptedHTTP2(true)
	} else {
		p.SetHTTP1(true)
	}
	return &p
}

func (t Target) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	path, err := url.PathUnescape(t.Path)
	if err != nil {
		path = t.Path // it was parsed before
	}
	out.URL.Scheme, out.URL.Host = "http", "sandbox:"+strconv.Itoa(t.Port)
	out.URL.Path, out.URL.RawPath = path, t.Path
	out.URL.RawQuery = cleanQuery(in.URL.RawQuery)
	out.Host = in.Host
	if t.Prefix != "" {
		out.Host = "localhost:" + strconv.Itoa(t.Port)
	}
	out.Header.Del("X-Forwarded-Prefix")
	if t.Prefix != "" && !t.Secret {
		out.Header.Set("X-Forwarded-Prefix", t.Prefix)
	}
	t.forwarded(pr)
	hide(out.Header, t.Authorization)
}

// forwarded tells the server who asked, and how. A proxy in front of us, on
// this machine, knows better.
func (t Target) forwarded(pr *httputil.ProxyRequest) {
	behind := fromLoopback(pr.In)
	if behind {
		pr.Out.Header["X-Forwarded-For"] = pr.In.Header["X-Forwarded-For"]
	}
	pr.SetXForwarded()
	if behind {
		if proto := pr.In.Header.Get("X-Forwarded-Proto"); proto == "http" || proto == "https" {
			pr.Out.Header.Set("X-Forwarded-Proto", proto)
		}
	}
}

func fromLoopback(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// Secure tells whether the visitor came by TLS, to us or to a proxy on this machine.
func Secure(r *http.Request) bool {
	return r.TLS != nil || fromLoopback(r) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// hide takes out of a request what is not the sandbox's to see: our cookies,
// and every API key, wherever it stands.
func hide(h http.Header, authorization bool) {
	if !authorization {
		h.Del("Authorization")
	}
	var kept []string
	for _, line := range h.Values("Cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.TrimSpace(pair)
			if pair != "" && !strings.HasPrefix(strings.ToLower(pair), ownCookies) && !auth.HoldsKey(pair) {
				kept = append(kept, pair)
			}
		}
	}
	h.Del("Cookie")
	if len(kept) > 0 {
		h.Set("Cookie", strings.Join(kept, "; "))
	}
	for name, values := range h {
		for i, v := range values {
			switch {
			case !ours(v):
			case name == "Referer":
				values[i] = cleanReferer(v)
			default:
				delete(h, name)
			}
		}
	}
}

// ours tells whether a key of ours or the token of a link is in a text, as it is
// or as it stands in addresses.
func ours(s string) bool {
	for range 2 {
		if auth.HoldsKey(s) || strings.Contains(s, TokenParam+"=") || tokenForm.MatchString(s) {
			return true
		}
		plain, err := url.QueryUnescape(s)
		if err != nil || plain == s {
			break
		}
		s = plain
	}
	return false
}

// cleanQuery takes our token, and keys, out of a query and leaves the rest as it is.
func cleanQuery(raw string) string {
	var kept []string
	for pair := range strings.SplitSeq(raw, "&") {
		if !ours(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

// WithoutToken is the address of a request as it is after the visit of a signed link.
func WithoutToken(u *url.URL) string {
	clean := *u
	clean.RawQuery = strings.ReplaceAll(cleanQuery(u.RawQuery), "#", "%23") // a browser would begin a fragment there
	return "/" + strings.TrimLeft(clean.RequestURI(), "/")                  // "//host" would lead elsewhere
}

func cleanReferer(v string) string {
	u, err := url.Parse(v)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host + "/"
}

// tame takes out of an answer what would reach beyond the port that it is from.
func (t Target) tame(res *http.Response) error {
	h := res.Header
	// Clear-Site-Data takes the cookies of all names below the same domain along.
	for _, name := range []string{"X-Request-Id", "Strict-Transport-Security", "Alt-Svc", "Public-Key-Pins", "Clear-Site-Data"} {
		h.Del(name)
	}
	t.cookies(h)
	if t.Prefix == "" {
		return nil
	}
	// The page is at this server's own name. It must not act as that.
	for _, name := range []string{"Service-Worker-Allowed", "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials"} {
		h.Del(name)
	}
	h.Add("Content-Security-Policy", sandboxPage)
	h.Set("X-Content-Type-Options", "nosniff")
	if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") {
		h.Set("Location", t.Prefix+to)
	}
	return nil
}

// cookies keeps those that a server sets for itself from reaching others, and
// from being taken for ours.
func (t Target) cookies(h http.Header) {
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		c, err := http.ParseSetCookie(line)
		if err != nil || strings.HasPrefix(strings.ToLower(c.Name), ownCookies) {
			continue
		}
		c.Domain = ""
		if t.Prefix != "" {
			c.Path = t.Prefix + "/" + strings.TrimPrefix(c.Path, "/")
		}
		if s := c.String(); s != "" {
			h.Add("Set-Cookie", s)
		}
	}
}

// why puts what went wrong between us and the port into words.
func (t Target) why(err error) error {
	var f *fault.Error
	var timeout net.Error
	switch {
	case errors.As(err, &f), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.Wrap(err, api.CodeTimeout, "the server on port %d has not answered for %s", t.Port, answerTime)
	}
	return fault.Wrap(err, api.CodeUnreachable, "the server on port %d broke off, or does not speak HTTP", t.Port).
		WithHint("its own output says why; it must speak HTTP without TLS")
}
