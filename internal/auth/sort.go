package auth

import (
	"cmp"
	"slices"
)

func sortKeys(keys []Key) {
	slices.SortFunc(keys, func(a, b Key) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return cmp.Compare(a.Prefix, b.Prefix)
	})
}
