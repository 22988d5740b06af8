package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	maxBody     = guestapi.MaxJSONBody
	bodyTime    = 30 * time.Second // for a JSON body to arrive
	streamStall = 60 * time.Second // without a byte, in either direction of a stream
)

// decode reads a JSON body into v. An empty body leaves v as it is, because
// published clients send one for "no options". Unknown fields are ignored,
// because they send those too.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	raw, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	switch body := bytes.TrimSpace(raw); {
	case len(body) == 0:
		return nil
	case string(body) == "null": // which the decoder would take for no options
		return fault.New(api.CodeInvalid, "the body must be a JSON object, not null").WithHint("leave the body out for no options")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return explain(err)
	}
	return noInnerNull(raw, reflect.TypeOf(v).Elem())
}

// noInnerNull refuses a null inside a list or a map that is a field of t. A
// field that is null is left out, as many clients write it, but the decoder would
// make an empty string of a variable or an argument that is null. What is kept as
// JSON, such as a schema, may hold nulls.
func noInnerNull(raw []byte, t reflect.Type) error {
	if t.Kind() != reflect.Struct || !bytes.Contains(raw, []byte("null")) {
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return explain(err)
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if holdsNull(fields[name], f.Type) {
			return fault.InvalidField(name, "%s holds a null", name).WithHint("leave the entry out")
		}
	}
	return nil
}

// holdsNull tells whether a value that is decoded into a t has a null inside.
func holdsNull(v any, t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[json.RawMessage]() {
		return false
	}
	// A type that decodes itself takes several shapes; then any null counts.
	inner := reflect.TypeFor[any]()
	if !t.Implements(unmarshaler) && !reflect.PointerTo(t).Implements(unmarshaler) {
		switch t.Kind() {
		case reflect.Struct:
			of, _ := v.(map[string]any)
			return slices.ContainsFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				each, given := of[name]
				return given && (each == nil || holdsNull(each, f.Type))
			})
		case reflect.Slice, reflect.Array, reflect.Map:
			inner = t.Elem()
		}
	}
	null := func(each any) bool { return each == nil || holdsNull(each, inner) }
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, null)
	case map[string]any:
		for _, each := range v {
			if null(each) {
				return true
			}
		}
	}
	return false
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTime)) // unsupported only in tests without a connection
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = rc.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, bodyFault(err, limit)
	}
	return raw, nil
}

// bodyFault says why a body could not be read.
func bodyFault(err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(api.CodeTooLarge, "the body is larger than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(api.CodeTimeout, "timeout: the body did not arrive in time")
	}
	return fault.Wrap(err, api.CodeInvalid, "the body broke off")
}

// explain puts an error of the JSON decoder into words that name the field.
func explain(err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fault.New(api.CodeInvalid, "the body is not valid JSON: %s at byte %d", syntax.Error(), syntax.Offset)
	case errors.As(err, &wrong):
		if wrong.Field == "" {
			return fault.New(api.CodeInvalid, "the body must be a JSON object, not %s", wrong.Value)
		}
		field := jsonField(wrong.Field)
		return fault.InvalidField(field, "%s must be %s, not %s", field, jsonName(wrong.Type), wrong.Value)
	}
	// Types that decode themselves say "cmd must be …".
	field, _, _ := strings.Cut(err.Error(), " ")
	return fault.InvalidField(field, "%s", err.Error())
}

// jsonField leaves out the Go types that a field is embedded from: no field of
// the API begins with a capital.
func jsonField(path string) string {
	for {
		first, rest, nested := strings.Cut(path, ".")
		if !nested || first == "" || first[0] < 'A' || first[0] > 'Z' {
			return path
		}
		path = rest
	}
}

// jsonName is what a Go type is called in JSON.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	case reflect.Map:
		return "an object of strings"
	}
	return "an object"
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types always encode
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that is gone is noticed by the server
}

func ok(w http.ResponseWriter, v any) error {
	writeJSON(w, http.StatusOK, v)
	return nil
}

// answer passes on what a call gave: its value as JSON, or its error.
func answer(w http.ResponseWriter, v any, err error) error {
	if err != nil {
		return err
	}
	return ok(w, v)
}

// done passes on how a call went that has nothing else to say.
func done(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	return noContent(w)
}

func noContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// orEmpty makes a list that may be missing one that is an array in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// draining makes a streamed response fail when nobody takes it for a while.
type draining struct {
	rc *http.ResponseController
	w  io.Writer
}

func (d draining) Write(p []byte) (int, error) {
	_ = d.rc.SetWriteDeadline(time.Now().Add(streamStall))
	return d.w.Write(p)
}

// flowing makes a streamed body or response fail when nothing moves for a
// while, however long the whole takes.
type flowing struct {
	rc   *http.ResponseController
	body io.Reader
}

func (f flowing) Read(p []byte) (int, error) {
	_ = f.rc.SetReadDeadline(time.Now().Add(streamStall))
	n, err := f.body.Read(p)
	if err != nil {
		_ = f.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}
