package guestapi

import (
	"bytes"
	"encoding/json"
)

// Depth is how deep a JSON value is nested.
func Depth(raw json.RawMessage) int {
	dec := json.NewDecoder(bytes.NewReader(raw))
	deepest, now := 0, 0
	for {
		t, err := dec.Token()
		if err != nil {
			return deepest
		}
		if d, ok := t.(json.Delim); ok {
			if d == '{' || d == '[' {
				now++
				deepest = max(deepest, now)
			} else {
				now--
			}
		}
	}
}
