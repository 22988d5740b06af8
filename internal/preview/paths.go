package preview

import (
	"net/url"
	"slices"
	"strings"

	"github.com/pandastack/pandastack/internal/fault"
)

const (
	maxPaths = 32
	maxPath  = 512
)

// CheckPaths refuses paths to which a link cannot be limited.
func CheckPaths(paths []string) error {
	if len(paths) > maxPaths {
		return fault.InvalidField("paths", "paths has %d entries, and may have %d", len(paths), maxPaths)
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") || len(p) > maxPath || strings.ContainsAny(p, "|,?#\\%;") ||
			strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || strings.Contains(p, "//") || climbs(p) {
			return fault.InvalidField("paths", "paths: %.100q is no path to which a link can be limited", p).
				WithHint("a path begins with / and has no dots as a part, no // and none of | , ? # \\ %% ; in it; it stands for itself and all below it")
		}
	}
	return nil
}

// Allowed tells whether a link that is limited to paths opens one, given as it
// stands in the request. What a server could read in more ways than one is not
// open: parts of dots, slashes that are encoded, doubled or the wrong way round.
func Allowed(paths []string, escaped string) bool {
	if len(paths) == 0 {
		return true
	}
	if lower := strings.ToLower(escaped); strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") {
		return false
	}
	path, stable := escaped, false
	for range 4 { // servers that decode twice see this path as well
		if unfit(path) {
			return false
		}
		decoded, err := url.PathUnescape(path)
		if err != nil {
			// A % that was encoded once and means itself.
			stable = path != escaped
			break
		}
		if stable = decoded == path; stable {
			break
		}
		path = decoded
	}
	if !stable || unfit(path) {
		return false
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		p = strings.TrimSuffix(p, "/")
		return plain == p || strings.HasPrefix(plain, p+"/")
	})
}

func unfit(path string) bool {
	return !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\\x00") || strings.Contains(path, "//") || climbs(path)
}

// climbs tells whether a part of a path is "." or "..", with parameters or without.
func climbs(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		part, _, _ = strings.Cut(part, ";")
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
