// Package nearest finds the names that somebody may have meant by one that
// does not exist. Whoever answers "not found" calls it.
package nearest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	most      = 3   // names that are suggested
	maxLength = 256 // of names that are compared
)

// Names gives at most three of have that resemble want, the nearest first.
func Names(want string, have []string) []string {
	type scored struct {
		name string
		d    int
	}
	var found []scored
	w := strings.ToLower(want)
	for _, name := range have {
		h := strings.ToLower(name)
		if len(w) == 0 || len(w) > maxLength || len(h) > maxLength {
			continue
		}
		d := distance(w, h)
		near := d <= max(2, len(w)/3)
		if len(w) >= 3 && (strings.HasPrefix(h, w) || strings.Contains(h, w) || strings.HasPrefix(w, h)) {
			near = true
		}
		if near {
			found = append(found, scored{name, d})
		}
	}
	slices.SortFunc(found, func(a, b scored) int { return cmp.Or(cmp.Compare(a.d, b.d), cmp.Compare(a.name, b.name)) })
	var out []string
	for _, s := range found[:min(most, len(found))] {
		out = append(out, s.name)
	}
	return slices.Compact(out)
}

// Hint is a sentence for an error, "" when nothing is near and nothing exists.
func Hint(want string, have []string, what string) string {
	if near := Names(want, have); len(near) > 0 {
		return fmt.Sprintf("did you mean %s?", strings.Join(near, ", "))
	}
	switch n := len(have); {
	case n == 0:
		return ""
	case n <= most:
		return fmt.Sprintf("there is %s", strings.Join(have, ", "))
	default:
		return fmt.Sprintf("there are %d %s, among them %s", n, what, strings.Join(have[:most], ", "))
	}
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that lead from a to b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
