package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxLine   = 4 << 20  // of a stream, and of an event
	maxRefuse = 64 << 10 // the words of a refusal
	maxShown  = 200      // of what is no stream of events
)

// mostText bounds text, reasoning and arguments of a reply together, in bytes: a
// server that pays no heed to the tokens it was asked for is not listened to for
// ever.
func mostText(tokens int) int { return min(max(64*tokens, 1<<20), 32<<20) }

// mostStream bounds the stream that they come in, some hundred bytes each time.
func mostStream(tokens int) int64 { return 4<<20 + 1024*int64(tokens) }

// Endpoint is where a provider is reached. Zero values mean the defaults.
type Endpoint struct {
	BaseURL string
	Key     string
	Client  *http.Client  // default: one without a timeout of its own that follows no redirects
	Quiet   time.Duration // how long nothing may come at all; default 5 min
	Idle    time.Duration // how long a stream may go on without a word of the reply; default 15 min
}

func (e Endpoint) withDefaults(base string) Endpoint {
	if e.BaseURL == "" {
		e.BaseURL = base
	}
	e.BaseURL = strings.TrimRight(e.BaseURL, "/")
	if e.Client == nil {
		e.Client = &http.Client{
			// A redirect could carry the key, or the conversation, somewhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if e.Quiet == 0 {
		e.Quiet = 5 * time.Minute
	}
	if e.Idle == 0 {
		e.Idle = 15 * time.Minute
	}
	return e
}

var (
	errQuiet = errors.New("nothing came for too long")
	errIdle  = errors.New("it went on for too long without a word")
	errLong  = errors.New("it is longer than was asked for")
)

// said is what an event adds to a reply.
type said int

const (
	nothing said = iota
	some
	all // there is no more
)

// stream posts a request and gives the data of each server-sent event to read.
// It ends with errLong when more than most bytes come.
func (e Endpoint) stream(ctx context.Context, path string, header http.Header, body any, most int64, read func(data []byte) (said, error)) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("writing the request: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(e.Quiet, func() { cancel(errQuiet) })
	defer quiet.Stop()
	idle := time.AfterFunc(e.Idle, func() { cancel(errIdle) })
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.BaseURL+path, bytes.NewReader(raw))
	if err != nil {
		return &Error{Kind: Refused, Message: "the base URL is not one", Err: err}
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "pandastack")
	res, err := e.Client.Do(req)
	if err != nil {
		return broken(ctx, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return refusal(res)
	}
	limited := &io.LimitedReader{R: res.Body, N: most}
	in := bufio.NewReaderSize(limited, 64<<10)
	if err := eventStream(res, in); err != nil {
		return err
	}
	var data []byte
	for {
		line, err := readLine(in)
		if err != nil && limited.N <= 0 {
			return errLong
		}
		if err != nil {
			return broken(ctx, err)
		}
		quiet.Reset(e.Quiet)
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if len(data)+len(value) > maxLine {
				return broken(ctx, fmt.Errorf("an event is longer than %d bytes", maxLine))
			}
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "":
			if len(line) > 0 || data == nil {
				continue // a comment, or an event without data
			}
			heard, err := read(data)
			if heard == all || err != nil {
				return err
			}
			if heard == some {
				idle.Reset(e.Idle)
			}
			data = nil
		}
	}
}

// eventStream refuses an answer that is no stream of events, such as the page of
// a server that is no model's provider.
func eventStream(res *http.Response, in *bufio.Reader) error {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "text/html" {
		return nil // servers that stream name it in many ways
	}
	shown, _ := in.Peek(maxShown) // what there is of it
	return &Error{Kind: Unreadable, Message: fmt.Sprintf("the address answers with %s where a model's provider streams events: %s", kind, strings.ToValidUTF8(string(shown), "\uFFFD"))}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return nil, err
		}
		if line = append(line, part...); len(line) > maxLine {
			return nil, fmt.Errorf("a line is longer than %d bytes", maxLine)
		}
		if !more {
			return line, nil
		}
	}
}

// broken explains a connection that failed, unless the caller ended it.
func broken(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errQuiet), errors.Is(cause, errIdle):
		err = cause
	case ctx.Err() != nil:
		return cause
	case errors.Is(err, io.EOF):
		return &Error{Kind: Broken, Message: "the model's reply broke off", Err: io.ErrUnexpectedEOF}
	}
	return &Error{Kind: Broken, Message: "the connection to the model's provider failed", Err: err}
}

// refusal reads what a provider says when it does not do what was asked.
func refusal(res *http.Response) *Error {
	raw, _ := io.ReadAll(io.LimitReader(res.Body, maxRefuse)) // what there is of it
	e := &Error{Status: res.StatusCode, Message: wordsOf(raw), RetryAfter: retryAfter(res.Header)}
	if e.Message == "" {
		e.Message = http.StatusText(res.StatusCode)
	}
	e.Kind = kindOf(res.StatusCode, e.Message)
	return e
}

func kindOf(status int, words string) string {
	words = strings.ToLower(words)
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return BadKey
	case status == http.StatusPaymentRequired, strings.Contains(words, "insufficient_quota"), strings.Contains(words, "exceeded your current quota"),
		strings.Contains(words, "credit balance is too low"):
		return NoMoney
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest &&
		(strings.Contains(words, "context length") || strings.Contains(words, "context_length") || strings.Contains(words, "context size") ||
			strings.Contains(words, "prompt is too long") || strings.Contains(words, "maximum context")):
		return TooLong
	case status == http.StatusNotFound:
		return NotFound
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		return Overloaded
	}
	return Refused
}

// wordsOf finds the message in the shapes that errors have.
func wordsOf(raw []byte) string {
	var doc struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(raw, &doc) != nil {
		return strings.TrimSpace(string(raw[:min(len(raw), 500)]))
	}
	var inner struct {
		Message string `json:"message"`
		Code    any    `json:"code"`
	}
	var text string
	switch {
	case json.Unmarshal(doc.Error, &inner) == nil && inner.Message != "":
		if code, ok := inner.Code.(string); ok && code != "" {
			return inner.Message + " (" + code + ")"
		}
		return inner.Message
	case json.Unmarshal(doc.Error, &text) == nil && text != "":
		return text
	case doc.Message != "":
		return doc.Message
	}
	return strings.TrimSpace(string(raw[:min(len(raw), 500)]))
}

// retryAfter is how long a provider asks to wait, in seconds or as a date.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(time.Until(t), 0)
	}
	return 0
}
