package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/fault"
)

// errUnauthenticated says nothing about which part of the key was wrong.
var errUnauthenticated = fault.New(api.CodeUnauthenticated, "unauthorized").
	WithHint("send a valid key as \"Authorization: Bearer pds_…\"")

// authenticated lets a request through that carries a valid key with a scope.
// When the key is revoked or expires, what the request does is given up.
func (s *Server) authenticated(need auth.Scope, next handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		who, ok := s.Keys.Check(bearer(r))
		if !ok || who.Owner == "" { // the domain takes no owner for the administrator
			return errUnauthenticated
		}
		st := stateOf(r.Context())
		st.who = who
		if err := s.calls.take(who.Owner); err != nil {
			return err
		}
		if err := who.Require(need); err != nil {
			return err
		}
		r = r.WithContext(caller.With(r.Context(), caller.Caller{RequestID: st.id, Key: who.Prefix}))
		if who.Life != nil {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			defer context.AfterFunc(who.Life, func() { cancel(auth.ErrEnded) })()
			r = r.WithContext(ctx)
		}
		err := next(w, r)
		if err != nil && keyEnded(r) && !errors.Is(err, http.ErrAbortHandler) {
			return errUnauthenticated
		}
		return err
	}
}

// bearer is the key that a request carries, "" without one.
func bearer(r *http.Request) string {
	offered := offeredKey(r) // taken out, whether it counts or not
	if key := jupyterKey(r); key != "" {
		return key
	}
	given := r.Header.Get("Authorization")
	if given == "" {
		return offered
	}
	scheme, secret, _ := strings.Cut(given, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// keyEnded tells whether the request is given up because its key has ended.
func keyEnded(r *http.Request) bool { return errors.Is(context.Cause(r.Context()), auth.ErrEnded) }

func owner(r *http.Request) string { return stateOf(r.Context()).who.Owner }

// refuseForeign stops what a web page could send from a browser on this
// machine: a request by a name that is not ours (DNS rebinding), or from
// another origin than those the operator has named. Without CORS headers,
// which only those get, answers stay unreadable too.
func (s *Server) refuseForeign(w http.ResponseWriter, r *http.Request) error {
	if err := s.refuseForeignHost(r); err != nil {
		return err
	}
	origin := r.Header.Get("Origin")
	if s.welcome(w, origin) {
		return nil
	}
	if origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) {
			return fault.New(api.CodeDenied, "requests from other origins are refused").
				WithHint("call the API from a program, or add the page's origin to allowed_origins")
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return fault.New(api.CodeDenied, "requests from other sites are refused").
			WithHint("call the API from a program, or add the page's origin to allowed_origins")
	}
	return nil
}

func (s *Server) refuseForeignHost(r *http.Request) error {
	if host := hostname(r.Host); !s.ownHost(host) {
		return fault.New(api.CodeDenied, "this server is not called %s", shown(host)).
			WithHint("use its address, or add the name to allowed_hosts")
	}
	return nil
}

func (s *Server) ownHost(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(strings.Trim(host, "[]")) != nil {
		return true
	}
	return slices.Contains(s.Hosts, "*") || slices.Contains(s.Hosts, host)
}

// hostname takes the port off a Host header.
func hostname(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = h
	}
	return strings.ToLower(strings.TrimSuffix(hostport, "."))
}
