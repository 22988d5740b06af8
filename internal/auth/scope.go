package auth

import (
	"slices"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Scope is how much a key may do, as in the API. "" is nothing.
type Scope api.Scope

// The scopes, from little to much.
const (
	Read  = Scope(api.ScopeRead)
	Run   = Scope(api.ScopeRun)
	Admin = Scope(api.ScopeAdmin)
)

var scopes = []Scope{Read, Run, Admin}

// Covers tells whether a key of this scope may do what needs the other.
func (s Scope) Covers(need Scope) bool {
	has, wants := slices.Index(scopes, s), slices.Index(scopes, need)
	return wants >= 0 && has >= wants
}

// Words lists the scope and those that it includes, as the API shows them.
func (s Scope) Words() []api.Scope {
	var out []api.Scope
	for _, each := range scopes {
		if s.Covers(each) {
			out = append(out, api.Scope(each))
		}
	}
	return out
}

// ParseScopes gives the largest of the scopes named; def when there are none.
func ParseScopes(words []api.Scope, def Scope) (Scope, error) {
	if len(words) == 0 {
		return def, nil
	}
	var largest Scope
	for _, w := range words {
		s := Scope(w)
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
