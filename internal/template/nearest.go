package template

import (
	"cmp"
	"slices"
)

// nearestShown is how many names an error offers.
const nearestShown = 3

// Nearest gives the names and aliases of templates that are most like a name
// nobody has, the likeliest first.
func Nearest(name string, all []Template) []string {
	var names []string
	for _, t := range all {
		names = append(append(names, t.Name), t.Aliases...)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance(name, a), distance(name, b)) })
	return names[:min(len(names), nearestShown)]
}

// distance counts the letters to add, drop or replace to get from a to b.
func distance(a, b string) int {
	from, to := []rune(a), []rune(b)
	if len(from) > 128 { // nobody's typing error
		from = from[:128]
	}
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j := range to {
			cost := diagonal
			if from[i] != to[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(to)]
}
