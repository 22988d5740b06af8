package files

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	nearestLook  = 2000 // names that are compared
	nearestNames = 3
	nearestBytes = 128 // a longer name is not compared
)

// nearest says what there is instead of a path that does not exist.
func nearest(path string) string {
	dir, name := filepath.Dir(path), filepath.Base(path)
	for dir != "/" {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			break
		}
		dir, name = filepath.Dir(dir), filepath.Base(dir)
	}
	f, err := os.Open(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, _ := f.Readdirnames(nearestLook)
	slices.Sort(names)
	type match struct {
		name string
		away int
	}
	var near []match
	for _, n := range names {
		if len(n) > nearestBytes || len(name) > nearestBytes {
			continue
		}
		if d := distance(strings.ToLower(n), strings.ToLower(name)); d <= max(len(name)/3, 1) {
			near = append(near, match{filepath.Join(dir, n), d})
		}
	}
	slices.SortStableFunc(near, func(a, b match) int { return a.away - b.away })
	var out []string
	for _, m := range near[:min(len(near), nearestNames)] {
		out = append(out, m.name)
	}
	switch {
	case len(out) > 0:
		return "did you mean " + strings.Join(out, " or ") + "?"
	case dir != filepath.Dir(path):
		return "the folder " + filepath.Join(dir, name) + " does not exist"
	case len(names) == 0:
		return dir + " is empty"
	}
	return dir + " holds " + strings.Join(names[:min(len(names), nearestNames)], ", ")
}

// distance is how many letters must be changed, added or left out to make one
// string of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
