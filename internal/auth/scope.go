package auth

import (
	"slices"
	"strings"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Scope is how much a key may do. Each one includes those before it.
type Scope string

// The scopes, from little to much.
const (
	Read  Scope = "read"  // look: lists, descriptions, files, output
	Run   Scope = "run"   // and make, change, use and end sandboxes
	Admin Scope = "admin" // and manage keys
)

var scopes = []Scope{Read, Run, Admin}

// Covers tells whether a key of this scope may do what needs the other.
func (s Scope) Covers(need Scope) bool {
	has, wants := slices.Index(scopes, s), slices.Index(scopes, need)
	return wants >= 0 && has >= wants
}

// Words lists the scope and those that it includes, as the API shows them.
func (s Scope) Words() []string {
	var out []string
	for _, each := range scopes {
		if s.Covers(each) {
			out = append(out, string(each))
		}
	}
	return out
}

// ParseScopes gives the largest of the scopes named; def when there are none.
func ParseScopes(words []string, def Scope) (Scope, error) {
	if len(words) == 0 {
		return def, nil
	}
	var largest Scope
	for _, w := range words {
		s := Scope(strings.ToLower(strings.TrimSpace(w)))
		if !slices.Contains(scopes, s) {
			return "", fault.InvalidField("scopes", "there is no scope %.40q", w).WithHint("there are: read, run, admin; each includes those before it")
		}
		if !largest.Covers(s) {
			largest = s
		}
	}
	return largest, nil
}

// errScope says what a key would need. It says nothing about what exists.
func errScope(need Scope) error {
	return fault.New(api.CodeDenied, "this key lacks the scope %s", need).
		WithHint("use a key that has it; pandastack key create --scope %s makes one", need)
}
