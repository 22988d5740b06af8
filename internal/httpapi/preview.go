package httpapi

import (
	"context"
	_ "embed" // for the page
	"errors"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guest"
	"github.com/pandastack/pandastack/internal/preview"
	"github.com/pandastack/pandastack/internal/store"
)

const (
	proxyRoute = "/v1/sandboxes/{id}/proxy/{port}/{path}" // with the key
	linkRoute  = "/v1/p/{token}/{path}"                   // with a signed link
	linkPrefix = "/v1/p/"

	routePreview = "preview" // in logs and metrics, of what comes by a port's own name
)

// errNoVisitor is what somebody gets who shows nothing that opens a port. It
// says nothing of whether there is such a port, or such a sandbox.
var errNoVisitor = fault.New(api.CodeUnauthenticated, "this port is private").
	WithHint("open it with a signed link, or send the key as \"Authorization: Bearer pds_…\"")

// visitor is somebody who may see a port.
type visitor struct {
	owner   string // of the sandbox
	life    context.Context
	expires time.Time // zero: never
	// authorization is whether that header of theirs is meant for the sandbox.
	authorization bool
}

// previewName is where ports have their names besides localhost, without the port.
func (s *Server) previewName() string {
	if host, _, err := net.SplitHostPort(s.PreviewDomain); err == nil {
		return host
	}
	return s.PreviewDomain
}

// visit serves a port by its own name, as in http://8000-sb-….localhost:8080/.
func (s *Server) visit(w http.ResponseWriter, r *http.Request, name preview.Name) {
	stateOf(r.Context()).route = routePreview
	s.answerVisit(w, r, func() error {
		v, err := s.admitVisitor(w, r, name)
		if err != nil || stateOf(r.Context()).wrote {
			return err
		}
		return s.pass(w, r, name, v, "", r.URL.EscapedPath())
	})
}

// visitLink serves a port to whoever has a signed link. A browser is led to the
// port's own name, where pages may do what pages do.
func (s *Server) visitLink(w http.ResponseWriter, r *http.Request, rest string) {
	st := stateOf(r.Context())
	st.route, st.path = r.Method+" "+linkRoute, linkPrefix+"…" // the token is a secret
	s.answerVisit(w, r, func() error {
		if err := s.refuseForeignHost(r); err != nil {
			return err
		}
		token, path, found := strings.Cut(rest, "/")
		v, name, err := s.openLink(r, token, "/"+path)
		if err != nil {
			return err
		}
		if domain := s.previewHost(r); domain != "" && r.Method == http.MethodGet && wantsPage(r) {
			to := url.URL{Scheme: scheme(r), Host: name.Host(domain), RawQuery: r.URL.RawQuery}
			q := preview.TokenParam + "=" + token
			if to.RawQuery != "" {
				q = to.RawQuery + "&" + q
			}
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Location", to.Scheme+"://"+to.Host+"/"+path+"?"+q)
			w.WriteHeader(http.StatusSeeOther)
			return nil
		}
		if !found { // so that what a page names relative to itself is found
			w.Header().Set("Location", linkPrefix+token+"/")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return nil
		}
		return s.pass(w, r, name, v, linkPrefix+token, "/"+path)
	})
}

// proxied takes the path of proxyRoute apart.
func proxied(r *http.Request) (id, port, path string, is bool) {
	rest, is := strings.CutPrefix(r.URL.EscapedPath(), "/v1/sandboxes/")
	id, rest, ok := strings.Cut(rest, "/proxy/")
	if !is || !ok || id == "" || strings.Contains(id, "/") {
		return "", "", "", false
	}
	port, path, _ = strings.Cut(rest, "/")
	return id, port, "/" + path, true
}

// visitProxy serves a port to whoever has the key, below the API's own address.
func (s *Server) visitProxy(w http.ResponseWriter, r *http.Request, id, port, path string) {
	stateOf(r.Context()).route = r.Method + " " + proxyRoute
	s.answerVisit(w, r, func() error {
		return s.authenticated(auth.Run, func(w http.ResponseWriter, r *http.Request) error {
			n, err := parsePort(port)
			if err != nil {
				return err
			}
			// What is another's is not there; that the port is named or not is no matter.
			if _, err := s.Sandboxes.Ports(r.Context(), owner(r), id); err != nil {
				return err
			}
			return s.pass(w, r, preview.Name{Port: n, SandboxID: id}, visitor{owner: owner(r)}, "/v1/sandboxes/"+id+"/proxy/"+port, path)
		})(w, r)
	})
}

func parsePort(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fault.InvalidField("port", "port must be a whole number, but is %s", shown(s))
	}
	return n, checkPort(n)
}

func checkPort(n int) error {
	if n < 1 || n > 65535 {
		return fault.InvalidField("port", "port must be between 1 and 65535, but is %d", n)
	}
	return nil
}

// answerVisit serves a visit, and says what went wrong as a page to a browser
// and as JSON to all others.
func (s *Server) answerVisit(w http.ResponseWriter, r *http.Request, serve func() error) {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		s.fail(w, r, errMethod(r, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}))
		return
	}
	if err := serve(); err != nil {
		s.failVisit(w, r, err)
	}
}

// admitVisitor says who asks for a port by its own name: anybody, when it is
// public; who has the key; who comes by a signed link, or came by one before
// and has a cookie since. It answers itself when a link leads a browser on.
func (s *Server) admitVisitor(w http.ResponseWriter, r *http.Request, name preview.Name) (visitor, error) {
	owner, port, err := s.ownerOf(r, name)
	if err != nil {
		return visitor{}, err
	}
	if key := bearer(r); auth.HoldsKey(key) {
		return s.admitKey(r, name, owner, key)
	}
	if port.Public {
		return visitor{owner: owner, authorization: true}, s.visits.take(owner)
	}
	if token := r.URL.Query().Get(preview.TokenParam); token != "" {
		v, err := s.admitLink(r, name, token, r.URL.EscapedPath())
		if err != nil {
			return v, err
		}
		http.SetCookie(w, &http.Cookie{
			Name: preview.Cookie, Value: token, Path: "/", Expires: v.expires, HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: preview.Secure(r),
		})
		if r.Method == http.MethodGet && wantsPage(r) {
			w.Header().Set("Cache-Control", "no-store")
			w.Header().Set("Location", preview.WithoutToken(r.URL))
			w.WriteHeader(http.StatusSeeOther)
		}
		return v, nil
	}
	worst := error(errNoVisitor)
	for _, c := range r.CookiesNamed(preview.Cookie) {
		v, err := s.admitLink(r, name, c.Value, r.URL.EscapedPath())
		if err == nil {
			return v, ofItself(r)
		}
		worst = err
	}
	return visitor{}, worst
}

// ownerOf is whose sandbox it is, "" when there is none.
func (s *Server) ownerOf(r *http.Request, name preview.Name) (string, store.Port, error) {
	owner, port, err := s.Sandboxes.OwnerOf(r.Context(), name.SandboxID, name.Port)
	if errors.Is(err, fault.NotFound) {
		return "", store.Port{}, nil
	}
	return owner, port, err
}

func (s *Server) admitKey(r *http.Request, name preview.Name, owner, key string) (visitor, error) {
	who, ok := s.Keys.Check(key)
	if !ok || who.Owner == "" {
		return visitor{}, errUnauthenticated
	}
	st := stateOf(r.Context())
	st.who = who
	if err := s.calls.take(who.Owner); err != nil {
		return visitor{}, err
	}
	if err := who.Require(auth.Run); err != nil {
		return visitor{}, err
	}
	if who.Owner != owner {
		_, err := s.Sandboxes.Ports(r.Context(), who.Owner, name.SandboxID)
		if err == nil {
			err = errNoVisitor // it came into being at this moment
		}
		return visitor{}, err
	}
	return visitor{owner: owner, life: who.Life}, nil
}

// openLink checks a link that names its port itself.
func (s *Server) openLink(r *http.Request, token, path string) (visitor, preview.Name, error) {
	if s.Links == nil {
		return visitor{}, preview.Name{}, linkFault(preview.ErrToken)
	}
	c, err := s.Links.Verify(token)
	if err != nil {
		return visitor{}, preview.Name{}, linkFault(err)
	}
	name := preview.Name{Port: c.Port, SandboxID: c.SandboxID}
	v, err := s.admitLink(r, name, token, path)
	return v, name, err
}

// admitLink lets in who has a signed link to this port and this path.
func (s *Server) admitLink(r *http.Request, name preview.Name, token, path string) (visitor, error) {
	if s.Links == nil {
		return visitor{}, linkFault(preview.ErrToken)
	}
	c, err := s.Links.Verify(token)
	if err == nil && (c.SandboxID != name.SandboxID || c.Port != name.Port) {
		err = preview.ErrToken
	}
	if err != nil {
		return visitor{}, linkFault(err)
	}
	owner, _, err := s.ownerOf(r, name)
	if err != nil {
		return visitor{}, err
	}
	life, good := s.Keys.Life(c.Key)
	switch {
	case owner == "":
		return visitor{}, fault.New(api.CodeNotFound, "the sandbox of this link has ended")
	case owner != c.Owner:
		return visitor{}, linkFault(preview.ErrToken)
	case !good:
		return visitor{}, linkFault(preview.ErrExpired)
	}
	if err := s.visits.take(owner); err != nil {
		return visitor{}, err
	}
	if !preview.Allowed(c.Paths, path) {
		return visitor{}, fault.New(api.CodeDenied, "this link does not open this path").WithHint("it is limited to %s", strings.Join(c.Paths, ", "))
	}
	st := stateOf(r.Context())
	st.who = auth.Identity{Owner: owner, Prefix: c.Key}
	return visitor{owner: owner, life: life, expires: c.ExpiresAt(), authorization: true}, nil
}

func linkFault(err error) error {
	return fault.Wrap(err, api.CodeUnauthenticated, "%s", err.Error()).WithHint("ask whoever sent it for a new one: POST …/preview-token makes it")
}

// ofItself refuses what another site could make a browser do that has our cookie.
func ofItself(r *http.Request) error {
	foreign := false
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		foreign = err != nil || !strings.EqualFold(u.Host, r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		looks := r.Method == http.MethodGet || r.Method == http.MethodHead
		foreign = foreign || !looks || r.Header.Get("Sec-Fetch-Mode") != "navigate"
	}
	if foreign {
		return fault.New(api.CodeDenied, "this request is from another site").
			WithHint("open the port itself, or make it public: POST …/ports")
	}
	return nil
}

// pass passes a request on to a port, waking the sandbox when it sleeps. As
// long as it lasts the sandbox is in use.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, name preview.Name, v visitor, prefix, path string) error {
	if !strings.HasPrefix(path, "/") {
		return fault.New(api.CodeInvalid, "there is no path %s", shown(path))
	}
	ctx := caller.With(r.Context(), caller.Caller{RequestID: stateOf(r.Context()).id, Key: stateOf(r.Context()).who.Prefix})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if v.life != nil {
		defer context.AfterFunc(v.life, func() { cancel(auth.ErrEnded) })()
	}
	if !v.expires.IsZero() {
		end := time.AfterFunc(time.Until(v.expires), func() { cancel(preview.ErrExpired) })
		defer end.Stop()
	}
	w.Header().Del(caller.Header) // the answer is the sandbox's
	// A server may answer while it is still being asked. HTTP/2 has no need of it.
	_ = http.NewResponseController(w).EnableFullDuplex()
	preview.Pass(w, r.WithContext(ctx), preview.Target{
		Name: name, Prefix: prefix, Secret: strings.HasPrefix(prefix, linkPrefix), Path: path, Authorization: v.authorization, Log: s.Log, Fail: s.failVisit,
		Dial: func(ctx context.Context) (net.Conn, error) {
			return s.dialPort(ctx, v.owner, name.SandboxID, name.Port)
		},
	})
	return nil
}

// dialPort connects to a port. Until the connection is closed the sandbox is in use.
func (s *Server) dialPort(ctx context.Context, owner, id string, port int) (*portConn, error) {
	for n := 0; ; n++ {
		g, done, err := s.Sandboxes.Guest(ctx, owner, id)
		if err != nil {
			return nil, err
		}
		flow, err := g.Dial(ctx, port)
		if err == nil {
			return &portConn{Flow: flow, done: done}, nil
		}
		done()
		switch {
		case errors.Is(err, guest.ErrNotListening):
			return nil, fault.Wrap(err, api.CodeUnreachable, "nothing listens on port %d of sandbox %s", port, id).
				WithHint("start a server there; GET …/ports lists what listens")
		case n == relinks || !errors.Is(err, guest.ErrLinkLost):
			return nil, err
		}
	}
}

// portConn is a connection to a port that says when it is over.
type portConn struct {
	*guest.Flow
	once sync.Once
	done func()
}

// Close ends the connection.
func (c *portConn) Close() error {
	defer c.once.Do(c.done)
	return c.Flow.Close()
}

// previewHost is where the one who asks finds ports by their names; "" when
// there is no such place.
func (s *Server) previewHost(r *http.Request) string {
	if s.PreviewDomain != "" {
		return s.PreviewDomain
	}
	host := hostname(r.Host)
	ip := net.ParseIP(strings.Trim(host, "[]"))
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return ""
	}
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return "localhost:" + port
	}
	return "localhost"
}

func scheme(r *http.Request) string {
	if preview.Secure(r) {
		return "https"
	}
	return "http"
}

// wantsPage tells a browser that shows a page from all that fetch.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

//go:embed visit.html
var visitHTML string

var visitPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("visit").Parse(visitHTML)) })

// failVisit says why a port cannot be seen.
func (s *Server) failVisit(w http.ResponseWriter, r *http.Request, err error) {
	switch cause := context.Cause(r.Context()); {
	case errors.Is(cause, preview.ErrExpired):
		err = linkFault(cause)
	case errors.Is(cause, auth.ErrEnded):
		err = errUnauthenticated
	}
	st := stateOf(r.Context())
	if st.wrote || !wantsPage(r) {
		w.Header().Set(caller.Header, st.id)
		s.fail(w, r, err)
		return
	}
	st.err = err
	body, status := s.failure(r, err)
	h := w.Header()
	status = failureHeader(h, err, status)
	h.Set(caller.Header, st.id)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = visitPage().Execute(w, struct {
		*api.Error
		Status int
	}{body, status}) // a client that is gone is noticed by the server
}
