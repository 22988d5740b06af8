package api

// Code names a kind of failure. It is stable: programs switch on it.
type Code string

// The codes of the API and the HTTP status each one travels with.
const (
	CodeInvalid         Code = "invalid"         // 400: the request is malformed; Field says where
	CodeUnauthenticated Code = "unauthenticated" // 401: no key, or not one of ours
	CodeDenied          Code = "denied"          // 403: the key may not do this
	CodeNotFound        Code = "not_found"       // 404
	CodeConflict        Code = "conflict"        // 409: the state forbids it, or an execution id was reused for other code
	CodeTooLarge        Code = "too_large"       // 413
	CodeRateLimited     Code = "rate_limited"    // 429: retry after the Retry-After header
	CodeInternal        Code = "internal"        // 500: RequestID leads to the log line
	CodeUnsupported     Code = "unsupported"     // 501: this driver or template cannot
	CodeUnreachable     Code = "unreachable"     // 502: nothing in the sandbox listens on the port, or it does not speak HTTP
	CodeNoCapacity      Code = "no_capacity"     // 503: retry after the Retry-After header
	CodeTimeout         Code = "timeout"         // 504
	CodeNoSpace         Code = "no_space"        // 507
)

// Error is the body of every response that is not a success. It is flat, so
// that clients that only look for a string under "error" find one.
type Error struct {
	Message   string `json:"error"`
	Code      Code   `json:"code"`
	Hint      string `json:"hint,omitempty"`       // what to do about it
	Field     string `json:"field,omitempty"`      // the request field at fault
	RequestID string `json:"request_id,omitempty"` // also in the X-Request-Id header
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }
