package httpapi

import (
	"math"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

const (
	maxTimeout = 24 * time.Hour
	maxPath    = 4096
	maxEnvs    = 1024
)

// absolute checks a path inside a sandbox.
func absolute(field, p string) (string, error) {
	switch {
	case p == "":
		return "", fault.InvalidField(field, "%s is missing", field)
	case len(p) > maxPath:
		return "", fault.InvalidField(field, "%s is longer than %d bytes", field, maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return "", fault.InvalidField(field, "%s holds a NUL byte", field)
	case p[0] != '/':
		return "", fault.InvalidField(field, "%s must be absolute, but is %s", field, shown(p)).
			WithHint("did you mean %q?", path.Join("/workspace", p))
	}
	return path.Clean(p), nil
}

// optionalPath is absolute, or empty for the default.
func optionalPath(field, p string) error {
	if p == "" {
		return nil
	}
	_, err := absolute(field, p)
	return err
}

// query parses the query strictly: half of a broken one is not what was meant.
func query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.InvalidField("query", "the query string is malformed: %v", err)
	}
	return q, nil
}

func notNegative[T int | int64 | float64](field string, v *T) error {
	if v != nil && *v < 0 {
		return fault.InvalidField(field, "%s must not be negative, but is %v", field, *v)
	}
	return nil
}

// seconds reads a timeout given in seconds; 0 stays 0.
func seconds(field string, v float64) (time.Duration, error) {
	if err := notNegative(field, &v); err != nil {
		return 0, err
	}
	if v > maxTimeout.Seconds() || math.IsNaN(v) {
		return 0, fault.InvalidField(field, "%s must be at most %d", field, int(maxTimeout.Seconds()))
	}
	return time.Duration(v * float64(time.Second)), nil
}

func millis(field string, v int64) (time.Duration, error) {
	if err := notNegative(field, &v); err != nil {
		return 0, err
	}
	if v > maxTimeout.Milliseconds() {
		return 0, fault.InvalidField(field, "%s must be at most %d", field, maxTimeout.Milliseconds())
	}
	return time.Duration(v) * time.Millisecond, nil
}

// envs checks names and values of an environment.
func envs(field string, m map[string]string) error {
	if len(m) > maxEnvs {
		return fault.InvalidField(field, "%s has more than %d entries", field, maxEnvs)
	}
	for k, v := range m {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return fault.InvalidField(field, "%s: %s is not a name of an environment variable", field, shown(k))
		}
		if strings.IndexByte(v, 0) >= 0 {
			return fault.InvalidField(field, "%s: the value of %s holds a NUL byte", field, k)
		}
	}
	return nil
}

// noNUL refuses what the kernel could not be given.
func noNUL(field string, words ...string) error {
	for _, w := range words {
		if strings.IndexByte(w, 0) >= 0 {
			return fault.InvalidField(field, "%s holds a NUL byte", field)
		}
	}
	return nil
}

// truth reads a yes or no from the query; absent is no.
func truth(q url.Values, name string) (bool, error) {
	s := q.Get(name)
	if s == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fault.InvalidField(name, "%s must be true or false, but is %s", name, shown(s))
	}
	return b, nil
}

// natural reads a whole number from the query; def when it is absent.
func natural(q url.Values, name string, def int64) (int64, error) {
	s := q.Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fault.InvalidField(name, "%s must be a whole number, 0 or more, but is %s", name, shown(s))
	}
	return n, nil
}

// upTo reads one of at most so much.
func upTo(q url.Values, name string, def, most int64) (int64, error) {
	n, err := natural(q, name, def)
	if err == nil && n > most {
		err = fault.InvalidField(name, "%s must be at most %d, but is %d", name, most, n)
	}
	return n, err
}

// clientName checks a name that a client may choose: it ends up in paths and
// logs.
func clientName(field, s string) error {
	if s == "" {
		return nil
	}
	return guestapi.CheckID(field, s)
}
