package pandastack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Error is a refusal or failure that the server reported.
type Error struct {
	StatusCode int
	Code       api.Code
	Message    string
	Hint       string        // what to do about it
	Field      string        // of the request, at fault
	RequestID  string        // leads to the server's log
	RetryAfter time.Duration // to wait before another try; 0 when the server did not say
	Body       []byte        // of the response, at most 1 MiB
}

// Error gives the message and the hint.
func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

// Output is what a command had written until it failed, "" for other errors.
func (e *Error) Output() (stdout, stderr string) {
	var body api.ExecFailure
	_ = json.Unmarshal(e.Body, &body) // of another shape it holds none
	return body.Stdout, body.Stderr
}

// Is makes errors.Is(err, pandastack.ErrNotFound) true for every error of that
// kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(kind)
	return ok && api.Code(k) == e.Code
}

type kind api.Code

func (k kind) Error() string { return "pandastack: " + string(k) }

// The kinds of errors, for errors.Is.
const (
	ErrInvalid         = kind(api.CodeInvalid)
	ErrUnauthenticated = kind(api.CodeUnauthenticated)
	ErrDenied          = kind(api.CodeDenied)
	ErrNotFound        = kind(api.CodeNotFound)
	ErrConflict        = kind(api.CodeConflict)
	ErrTooLarge        = kind(api.CodeTooLarge)
	ErrRateLimited     = kind(api.CodeRateLimited)
	ErrInternal        = kind(api.CodeInternal)
	ErrUnsupported     = kind(api.CodeUnsupported)
	ErrUnreachable     = kind(api.CodeUnreachable)
	ErrNoCapacity      = kind(api.CodeNoCapacity)
	ErrTimeout         = kind(api.CodeTimeout)
	ErrNoSpace         = kind(api.CodeNoSpace)
)

// ErrConnection is in every error of a call that reached no server, or whose
// connection broke.
var ErrConnection = errors.New("pandastack: no connection to the server")

// TimeoutError is a command that ran out of time, with its output so far.
type TimeoutError struct {
	Err    *Error
	Result ExecResult
}

func (e *TimeoutError) Error() string { return e.Err.Error() }

// Unwrap gives the server's error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// CommandError is a command that returned non-zero and was to be checked.
type CommandError struct{ Result ExecResult }

func (e *CommandError) Error() string {
	if e.Result.Reason == api.ReasonOOM {
		return "pandastack: the command was ended because the sandbox ran out of memory"
	}
	return fmt.Sprintf("pandastack: the command returned %d: %s", e.Result.ExitCode, strings.TrimSpace(e.Result.Stderr))
}

func connectionError(ctx context.Context, root string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("pandastack: %w", ctx.Err())
	}
	return fmt.Errorf("%w %s: %w", ErrConnection, root, err)
}

// unreached is a connection that was never made: nothing was sent.
func unreached(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// codeOf guesses the code for servers that send none.
var codeOf = map[int]api.Code{
	http.StatusUnauthorized:          api.CodeUnauthenticated,
	http.StatusForbidden:             api.CodeDenied,
	http.StatusNotFound:              api.CodeNotFound,
	http.StatusConflict:              api.CodeConflict,
	http.StatusRequestEntityTooLarge: api.CodeTooLarge,
	http.StatusTooManyRequests:       api.CodeRateLimited,
	http.StatusNotImplemented:        api.CodeUnsupported,
	http.StatusServiceUnavailable:    api.CodeNoCapacity,
	http.StatusGatewayTimeout:        api.CodeTimeout,
	http.StatusInsufficientStorage:   api.CodeNoSpace,
}

func readError(res *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	var body api.Error
	_ = json.Unmarshal(raw, &body) // what is not JSON is shown as it is
	e := &Error{
		StatusCode: res.StatusCode, Code: body.Code, Message: body.Message, Hint: body.Hint,
		Field: body.Field, RequestID: body.RequestID, Body: raw,
	}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && n > 0 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	if e.Message == "" {
		e.Message = fmt.Sprintf("HTTP %s: %.200s", res.Status, strings.TrimSpace(string(raw)))
	}
	if e.Code == "" {
		e.Code = codeOf[res.StatusCode]
	}
	if e.Code == "" {
		e.Code = api.CodeInvalid
		if res.StatusCode >= 500 {
			e.Code = api.CodeInternal
		}
	}
	return e
}
