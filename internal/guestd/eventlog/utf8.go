package eventlog

import (
	"bytes"
	"unicode/utf8"
)

// incomplete is how many bytes at the end of b start a character whose rest
// has not come yet.
func incomplete(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		c := b[len(b)-n]
		if utf8.RuneStart(c) {
			if c >= 0xC2 && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// runeStart is the last offset up to n at which no character is cut, or n in
// the midst of bytes that are no characters.
func runeStart(b []byte, n int) int {
	if n >= len(b) {
		return len(b)
	}
	for i := n; i > n-utf8.UTFMax && i >= 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}

func toValid(b []byte) []byte { return bytes.ToValidUTF8(b, []byte("\uFFFD")) }
