package auth

import (
	"io"
	"regexp"
)

var keyPattern = regexp.MustCompile(`(?i)(pds_[0-9a-f]{8})[0-9a-f]+`)

// HideKeys gives a writer for logs that takes the secret part out of every key
// in a line, wherever it got there from: a path, a header, an error. The first
// characters, by which a key is known, stay.
func HideKeys(w io.Writer) io.Writer { return hidden{w} }

type hidden struct{ w io.Writer }

func (h hidden) Write(line []byte) (int, error) {
	if _, err := h.w.Write(keyPattern.ReplaceAll(line, []byte("$1…"))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// HoldsKey tells whether something like an API key is in a text.
func HoldsKey(s string) bool { return keyPattern.MatchString(s) }
