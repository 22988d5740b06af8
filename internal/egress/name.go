package egress

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/idna"
)

// names of hosts that people write are mapped as browsers do it, but may hold
// underscores.
var written = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.BidiRule())

var errNumeric = errors.New("it looks like an address in an old form: write it as four decimal numbers")

// canonical gives a name that somebody wrote the form in which names are
// compared: lower case, punycode, no final dot.
func canonical(s string) (string, error) {
	ascii, err := written.ToASCII(strings.TrimSuffix(s, "."))
	if err != nil {
		return "", fmt.Errorf("not a host name: %w", err)
	}
	return onWire(ascii)
}

// onWire is canonical for a name out of a packet, where it is ASCII already.
func onWire(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return "", errors.New("not a host name: it must have 1 to 253 characters")
	}
	last := s
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return "", errors.New("not a host name: its parts must have 1 to 63 characters")
		}
		for i := range len(label) {
			if c := label[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
				return "", fmt.Errorf("not a host name: it holds %q", c)
			}
		}
		last = label
	}
	if numeric(last) {
		return "", errNumeric
	}
	return strings.ToLower(s), nil
}

// numeric says whether a name with that last part is read as an address by
// somebody: 2130706433, 0x7f.1, 127.1, 0177.0.0.1.
func numeric(label string) bool {
	digits, set := label, "0123456789"
	if rest, ok := strings.CutPrefix(strings.ToLower(label), "0x"); ok {
		digits, set = rest, "0123456789abcdef"
	}
	return strings.Trim(digits, set) == ""
}
