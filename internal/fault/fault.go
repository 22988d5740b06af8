// Package fault holds the kinds of errors that PandaStack tells apart. Code
// anywhere makes or wraps an error with a kind; the HTTP API, the command line
// and the MCP server each map kinds to their own codes in one table.
//
// It imports nothing of the project but the error codes of the contract.
package fault

import (
	"errors"
	"fmt"
	"time"

	"github.com/pandastack/pandastack/api"
)

// Error is an error with a kind. Its message is meant for the user; what must
// not be shown stays in the wrapped error, for the log.
type Error struct {
	Code    api.Code
	Message string
	Hint    string // the next thing to do
	Field   string // the input at fault
	Err     error  // the cause, not shown to users of the API

	RetryAfter time.Duration // when it makes sense to try again; 0 where nobody knows
}

// Error returns the message and the cause.
func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, fault.NotFound) true for every error of that kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(kind)
	return ok && api.Code(k) == e.Code
}

type kind api.Code

func (k kind) Error() string { return string(k) }

// The kinds, for errors.Is.
const (
	Invalid     = kind(api.CodeInvalid)
	Denied      = kind(api.CodeDenied)
	NotFound    = kind(api.CodeNotFound)
	Conflict    = kind(api.CodeConflict)
	TooLarge    = kind(api.CodeTooLarge)
	RateLimited = kind(api.CodeRateLimited)
	Unsupported = kind(api.CodeUnsupported)
	NoCapacity  = kind(api.CodeNoCapacity)
	Timeout     = kind(api.CodeTimeout)
	NoSpace     = kind(api.CodeNoSpace)
)

// New makes an error of a kind.
func New(code api.Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// InvalidField makes an error that names the input at fault.
func InvalidField(field, format string, args ...any) *Error {
	return &Error{Code: api.CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Wrap gives a cause a kind and words for the user.
func Wrap(err error, code api.Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Err: err}
}

// WithHint returns a copy with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	c := *e
	c.Hint = fmt.Sprintf(format, args...)
	return &c
}

// After returns a copy that says when to try again.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// CodeOf gives the kind of an error, api.CodeInternal for one without.
func CodeOf(err error) api.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return api.CodeInternal
}
