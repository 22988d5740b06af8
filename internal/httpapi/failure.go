package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// statusOf is the one table from error codes to HTTP.
var statusOf = map[api.Code]int{
	api.CodeInvalid:         http.StatusBadRequest,
	api.CodeUnauthenticated: http.StatusUnauthorized,
	api.CodeDenied:          http.StatusForbidden,
	api.CodeNotFound:        http.StatusNotFound,
	api.CodeConflict:        http.StatusConflict,
	api.CodeTooLarge:        http.StatusRequestEntityTooLarge,
	api.CodeRateLimited:     http.StatusTooManyRequests,
	api.CodeInternal:        http.StatusInternalServerError,
	api.CodeUnsupported:     http.StatusNotImplemented,
	api.CodeUnreachable:     http.StatusBadGateway,
	api.CodeNoCapacity:      http.StatusServiceUnavailable,
	api.CodeTimeout:         http.StatusGatewayTimeout,
	api.CodeNoSpace:         http.StatusInsufficientStorage,
}

// StatusOf gives the HTTP status that a code travels with; 0 for no code.
func StatusOf(c api.Code) int { return statusOf[c] }

// withStatus is a failure whose status is not its code's, and the header that
// goes with that status.
type withStatus struct {
	error
	status       int
	header, says string
}

func (e *withStatus) Unwrap() error { return e.error }

func errMethod(r *http.Request, allowed []string) error {
	list := strings.Join(allowed, ", ")
	e := fault.New(api.CodeInvalid, "%s is not allowed on %s", r.Method, shown(r.URL.Path)).WithHint("allowed: %s", list)
	return &withStatus{e, http.StatusMethodNotAllowed, "Allow", list}
}

func errNoRoute(r *http.Request) error {
	return fault.New(api.CodeNotFound, "there is no route %s %s", r.Method, shown(r.URL.Path)).
		WithHint("every route of this API starts with /v1")
}

// errStopping is what a request gets that the daemon's end cuts short.
var errStopping = fault.New(api.CodeNoCapacity, "the server is stopping").
	WithHint("try again in a moment")

// fail writes an error as the response, or cuts the connection when the
// response has begun.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	st := stateOf(r.Context())
	st.err = err
	if errors.Is(err, http.ErrAbortHandler) || st.wrote {
		panic(http.ErrAbortHandler)
	}
	body, status := s.failure(r, err)
	status = failureHeader(w.Header(), err, status)
	var cut *cutShort
	if errors.As(err, &cut) {
		writeJSON(w, status, cut.body(body))
		return
	}
	if strings.HasPrefix(r.URL.Path, jupyterPrefix) { // whose clients look for other names
		writeJSON(w, status, forJupyter(body, status))
		return
	}
	writeJSON(w, status, body)
}

// failureHeader sets what goes with a status, and gives the one that is sent.
func failureHeader(h http.Header, err error, status int) int {
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(retryAfter(err, status)))
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	}
	var special *withStatus
	if errors.As(err, &special) {
		h.Set(special.header, special.says)
		status = special.status
	}
	return status
}

// retryAfter is in how many seconds it makes sense to try again. Where a caller
// has too many of something, time alone does not help: they get a number that
// no client waits for by itself.
func retryAfter(err error, status int) int {
	var f *fault.Error
	if errors.As(err, &f) && f.RetryAfter > 0 {
		return int(math.Ceil(f.RetryAfter.Seconds()))
	}
	if status == http.StatusTooManyRequests {
		return 10
	}
	return 1
}

// failure puts an error into the words of the API. What has no kind is ours
// alone: the caller gets an id to look up in the log.
func (s *Server) failure(r *http.Request, err error) (*api.Error, int) {
	id := stateOf(r.Context()).id
	if keyEnded(r) {
		err = errUnauthenticated
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			f = fault.New(api.CodeTimeout, "timeout: the sandbox did not answer in time")
		case r.Context().Err() != nil:
			f = errStopping // or the client is gone, and nobody reads this
		default:
			f = &fault.Error{Code: api.CodeInternal}
		}
	}
	if f.Code == api.CodeInternal {
		s.Log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("route", stateOf(r.Context()).route), slog.Any("error", err))
		hint := f.Hint // is written for whoever can mend it
		f = fault.New(api.CodeInternal, "internal error; the server's log has it under request id %s", id)
		f.Hint = hint
	}
	status, ok := statusOf[f.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	return &api.Error{Message: f.Message, Code: f.Code, Hint: f.Hint, Field: f.Field, RequestID: id}, status
}

// shown makes a path of the client's fit for a message.
func shown(path string) string {
	if len(path) > 100 {
		path = path[:100] + "…"
	}
	return fmt.Sprintf("%q", path)
}
