package httpapi

import (
	"net/http"
	"slices"
	"strings"
)

// What a page of a named origin may send and read beyond the ordinary. Cookies
// are not among it: the key is in a header, and nothing else says who asks.
const (
	corsMethods = "GET, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Range, X-Request-Id"
	corsExposed = "Content-Range, Link, Retry-After, X-Next-Cursor, X-Request-Id"
	corsMaxAge  = "600" // seconds that a browser need not ask again
)

// welcome lets a page of a named origin read the answer, and tells whether it
// is one.
func (s *Server) welcome(w http.ResponseWriter, origin string) bool {
	if len(s.Origins) == 0 {
		return false
	}
	w.Header().Add("Vary", "Origin")
	if origin == "" || !slices.Contains(s.Origins, strings.ToLower(origin)) {
		return false
	}
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Set("Access-Control-Expose-Headers", corsExposed)
	return true
}

// preflight answers the question that a browser asks before a page's request.
// Only pages of named origins get here with one.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" || w.Header().Get("Access-Control-Allow-Origin") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", corsMethods)
	h.Set("Access-Control-Allow-Headers", corsHeaders)
	h.Set("Access-Control-Max-Age", corsMaxAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}
