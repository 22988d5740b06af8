package files

import (
	"strconv"
	"strings"
)

// ParseRange reads an HTTP Range header for a file of a size. What it does not
// understand, several ranges among it, means the whole file, as HTTP has it.
// satisfiable is false when the range begins behind the end.
func ParseRange(header string, size int64) (start, length int64, partial, satisfiable bool) {
	whole := func() (int64, int64, bool, bool) { return 0, size, false, true }
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return whole()
	}
	first, last, ok := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || strings.Contains(last, ",") {
		return whole()
	}
	if first == "" {
		n, ok := number(last)
		if !ok {
			return whole()
		}
		if n == 0 || size == 0 {
			return 0, 0, true, false
		}
		n = min(n, size)
		return size - n, n, true, true
	}
	a, ok := number(first)
	if !ok {
		return whole()
	}
	b := size - 1
	if last != "" {
		if b, ok = number(last); !ok || b < a {
			return whole()
		}
		b = min(b, size-1)
	}
	if a >= size {
		return 0, 0, true, false
	}
	return a, b - a + 1, true, true
}

func number(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= 0 && s[0] != '+'
}
